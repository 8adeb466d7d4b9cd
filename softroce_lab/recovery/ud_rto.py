# SPDX-License-Identifier: GPL-2.0-or-later
"""`ud_rto`: sender-driven recovery over UD, a timer per message; the baseline of `csa_ud`.

This project's definition (docs/protocols.md, section 2). It has the same packets, bitmaps,
reports, congestion control and acknowledgements; only the detection of loss differs. The receiver
sends SACKs (`sack_receiver`); the sender retransmits what it does not know to have arrived when
max(3 SRTT, T_min) have passed since the last packet left.
"""

from __future__ import annotations

from softroce_lab.recovery.policy import Actions, Retransmit, Sending, SetTimer
from softroce_lab.recovery.sack_receiver import SackReceiver


class UdRto(SackReceiver):
    """Sender's timer per message, retransmissions by bitmap."""

    name = "ud_rto"

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
