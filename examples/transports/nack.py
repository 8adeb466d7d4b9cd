# SPDX-License-Identifier: GPL-2.0-or-later
"""A receiver-driven transport: the receiver finds gaps and sends NACKs, the sender retransmits."""

from softroce_lab.transports.policy import (
    Feedback,
    MessagePolicy,
    Option,
    RequestStatus,
    Retransmit,
    SetTimer,
)


class Nack(MessagePolicy):
    """A gap that is older than the reordering window is a loss (RFC 8985, without its timer)."""

    name = "nack"
    options = (Option("window", 4, "reordering window, as a part of SRTT", least=1, most=64),)

    # --- Receiver: is there a gap?

    def timer(self, receive, now_ns):
        srtt_ns, _ = self.rtt_ns(receive)
        window_ns = max(srtt_ns // self.values["window"], self.timing.reordering_window_least_ns)
        return SetTimer(receive, now_ns + self.backed_off_ns(receive, window_ns))

    def on_first_packet(self, receive, now_ns):
        receive.memory = 0  # packets below this one were sent a reordering window ago
        return [self.timer(receive, now_ns)]

    def on_receive_timer(self, receive, now_ns):
        state = self.view.receive_state(receive.handle)
        # Silence since the last check: what is missing at the end was lost, too.
        due = state.count if receive.timeouts_without_progress else receive.memory
        receive.memory = state.highest
        nack = [Feedback(receive)] if state.first_missing < due else []
        return [*nack, self.timer(receive, now_ns)]

    # --- Sender: a packet that is missed and was sent a round trip ago is lost

    def on_feedback(self, send, now_ns):
        state = self.view.send_state(send.handle)
        srtt_ns, var_ns = self.rtt_ns(send)
        missing = self.missing(send)
        overdue = state.sent_ns[missing] < now_ns - srtt_ns - var_ns
        return [Retransmit(send, missing[overdue])]

    # --- Sender: silence. The message may be lost whole, or its acknowledgement

    def patience(self, send, now_ns):
        srtt_ns, var_ns = self.rtt_ns(send)
        wait_ns = max(2 * srtt_ns + 4 * var_ns, self.timing.t_min_ns)
        return SetTimer(send, now_ns + self.backed_off_ns(send, wait_ns))

    def on_sent(self, send, now_ns):
        return [self.patience(send, now_ns)]

    def on_send_timer(self, send, now_ns):
        return [RequestStatus(send), self.patience(send, now_ns)]
