# SPDX-License-Identifier: GPL-2.0-or-later
"""A receiver-driven transport: the engine detects gaps, a lost packet is sent on several paths."""

from softroce_lab.transports.policy import (
    DetectGaps,
    Feedback,
    MessagePolicy,
    Option,
    RequestStatus,
    Retransmit,
    SetTimer,
)


class GapNack(MessagePolicy):
    """A NACK for each gap that outlasts the reordering window; retransmissions in copies."""

    name = "gap_nack"
    options = (
        Option("window", 4, "reordering window, as a part of SRTT", least=1, most=64),
        Option("copies", 2, "of a retransmitted packet, on different paths", least=1, most=8),
    )

    # --- Receiver: the engine names the packets that were overtaken

    def on_first_packet(self, receive, now_ns):
        srtt_ns, _ = self.rtt_ns(receive)
        window_ns = max(srtt_ns // self.values["window"], self.timing.reordering_window_least_ns)
        receive.memory = 0  # packets below this one were sent an RTT ago
        return [DetectGaps(receive, window_ns), self.timer(receive, now_ns)]

    def on_gap(self, receive, packets, now_ns):
        return [Feedback(receive)]

    # --- Receiver: no gap shows a lost tail, nor a lost retransmission

    def timer(self, receive, now_ns):
        srtt_ns, var_ns = self.rtt_ns(receive)
        wait_ns = max(srtt_ns + var_ns, self.timing.reordering_window_least_ns)
        return SetTimer(receive, now_ns + self.backed_off_ns(receive, wait_ns))

    def on_receive_timer(self, receive, now_ns):
        state = self.view.receive_state(receive.handle)
        due = state.count if receive.timeouts_without_progress else receive.memory
        receive.memory = state.highest
        nack = [Feedback(receive)] if state.first_missing < due else []
        return [*nack, self.timer(receive, now_ns)]

    # --- Sender: a packet that is missed and was sent a round trip ago is lost

    def on_feedback(self, send, now_ns):
        state = self.view.send_state(send.handle)
        srtt_ns, var_ns = self.rtt_ns(send)
        missing = self.missing(send)
        lost = missing[state.sent_ns[missing] < now_ns - srtt_ns - var_ns]
        return [Retransmit(send, lost, copies=self.values["copies"])]

    # --- Sender: silence. The message may be lost whole, or its acknowledgement

    def patience(self, send, now_ns):
        srtt_ns, var_ns = self.rtt_ns(send)
        wait_ns = max(2 * srtt_ns + 4 * var_ns, self.timing.t_min_ns)
        return SetTimer(send, now_ns + self.backed_off_ns(send, wait_ns))

    def on_sent(self, send, now_ns):
        return [self.patience(send, now_ns)]

    def on_send_timer(self, send, now_ns):
        return [RequestStatus(send), self.patience(send, now_ns)]
