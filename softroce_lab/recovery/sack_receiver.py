# SPDX-License-Identifier: GPL-2.0-or-later
"""The receiver's side of a sender-driven policy: SACKs while packets arrive.

They are a quarter of an RTT apart, then ever more rarely. All of it is this project's definition
(docs/protocols.md, section 2).
"""

from __future__ import annotations

from softroce_lab.recovery.policy import Actions, Feedback, MessagePolicy, Receiving, SetTimer


class SackReceiver(MessagePolicy):
    """Base of `ud_rto`, `sdr_sr` and `sdr_sr_nack`; a receive's memory is its SACK interval."""

    has_rto = True

    def sack_interval_ns(self, receive: Receiving) -> int:
        """A quarter of an RTT, while packets arrive."""
        srtt_ns, _ = self.rtt_ns(receive)
        interval_ns = max(srtt_ns // 4, self.timing.sack_interval_least_ns)
        return min(interval_ns, self.timing.t_max_ns)

    def on_first_packet(self, receive: Receiving, now_ns: int) -> Actions:
        receive.memory = self.sack_interval_ns(receive)
        return [SetTimer(receive, now_ns + receive.memory)]

    def on_last_packet(self, receive: Receiving, now_ns: int) -> Actions:
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
