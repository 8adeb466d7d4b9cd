# SPDX-License-Identifier: GPL-2.0-or-later
"""`ud_rto`: sender-driven recovery over UD, a timer per message; the baseline of `csa_ud`.

This project's definition (docs/protocols.md, section 2). It has the same packets, bitmaps,
reports, congestion control and acknowledgements; only the detection of loss differs. The receiver
sends SACKs while packets arrive, a quarter of an RTT apart; the sender retransmits what
it does not know to have arrived when max(3 SRTT, T_min) have passed since the last packet left.
"""

from __future__ import annotations

from softroce_lab.recovery.policy import (
    Actions,
    Feedback,
    MessagePolicy,
    Receiving,
    Retransmit,
    Sending,
    SetTimer,
)


class UdRto(MessagePolicy):
    """Sender's timer per message, retransmissions by bitmap."""

    name = "ud_rto"

    # ---------------------------------------------------------------- receiver: SACKs

    def sack_interval_ns(self, receive: Receiving) -> int:
        """A quarter of an RTT, while packets arrive."""
        srtt_ns, _ = self.rtt_ns(receive)
        interval_ns = max(srtt_ns // 4, self.timing.sack_interval_least_ns)
        return min(interval_ns, self.timing.t_max_ns)

    def on_first_packet(self, receive: Receiving, now_ns: int) -> Actions:  # noqa: D102
        receive.memory = self.sack_interval_ns(receive)
        return [SetTimer(receive, now_ns + receive.memory)]

    def on_last_packet(self, receive: Receiving, now_ns: int) -> Actions:  # noqa: D102
        return [Feedback(receive)]

    def on_receive_timer(self, receive: Receiving, now_ns: int) -> Actions:
        """Send a SACK when packets came, known ones too; else at doubling intervals."""
        state = self.view.receive_state(receive.handle)
        came = state is not None and state.received + state.duplicates > receive.fed_back
        later_ns = min(2 * receive.memory, self.timing.t_max_ns)
        receive.memory = self.sack_interval_ns(receive) if came else later_ns
        timer = SetTimer(receive, now_ns + receive.memory)
        due = came or receive.memory == self.timing.t_max_ns
        return [Feedback(receive), timer] if due else [timer]

    # ---------------------------------------------------------------- sender: times out

    def timer(self, send: Sending, now_ns: int) -> SetTimer:
        """max(3 SRTT, T_min); doubling, to T_max, when timeouts in a row bring nothing."""
        srtt_ns, _ = self.rtt_ns(send)
        timing = self.timing
        rto_ns = timing.fixed_rto_ns or max(timing.rto_srtt * srtt_ns, timing.t_min_ns)
        return SetTimer(send, now_ns + self.backed_off_ns(send, rto_ns))

    def on_sent(self, send: Sending, now_ns: int) -> Actions:  # noqa: D102
        return [self.timer(send, now_ns)]

    def on_send_timer(self, send: Sending, now_ns: int) -> Actions:  # noqa: D102
        state = self.view.send_state(send.handle)
        timer = self.timer(send, now_ns)
        if state is None or state.sent < state.count or state.retransmit_pending:
            return [timer]
        return [timer, Retransmit(send, self.missing(send))]
