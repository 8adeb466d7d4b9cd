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

    def rto_ns(self, send: Sending) -> int:
        """max(3 SRTT, T_min); doubling, to T_max, when timeouts in a row bring nothing."""
        srtt_ns, _ = self.rtt_ns(send)
        timing = self.timing
        rto_ns = timing.fixed_rto_ns or max(timing.rto_srtt * srtt_ns, timing.t_min_ns)
        return self.backed_off_ns(send, self.no_shorter_than_measured_ns(send, rto_ns))

    def on_sent(self, send: Sending, now_ns: int) -> Actions:
        return [SetTimer(send, now_ns + self.rto_ns(send))]

    def on_send_timer(self, send: Sending, now_ns: int) -> Actions:
        """The RTO may have grown with the RTT since the timer was set; then the timer goes on."""
        state = self.view.send_state(send.handle)
        rto_ns = self.rto_ns(send)
        timer = SetTimer(send, now_ns + rto_ns)
        if state is None or state.sent < state.count or state.retransmit_pending:
            return [timer]
        due_ns = int(state.sent_ns.max()) + rto_ns
        if now_ns < due_ns:
            return [SetTimer(send, due_ns)]
        return [timer, Retransmit(send, self.missing(send))]
