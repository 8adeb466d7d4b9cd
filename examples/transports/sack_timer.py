# SPDX-License-Identifier: GPL-2.0-or-later
"""A sender-driven transport: the receiver sends SACKs, the sender has a retransmission timer."""

from softroce_lab.transports.policy import Feedback, MessagePolicy, Option, Retransmit, SetTimer


class SackTimer(MessagePolicy):
    """The receiver's bitmap (RFC 2018) and a timer of some SRTT for each message (RFC 6298)."""

    name = "sack_timer"
    options = (
        Option("rto", 3, "retransmission timeout, in SRTT", least=1, most=100),
        Option("sacks", 4, "SACKs per SRTT while packets arrive", least=1, most=64),
    )

    # --- Receiver: what has arrived?

    def sack_interval_ns(self, receive):
        srtt_ns, _ = self.rtt_ns(receive)
        interval_ns = max(srtt_ns // self.values["sacks"], self.timing.sack_interval_least_ns)
        return self.backed_off_ns(receive, interval_ns)

    def on_first_packet(self, receive, now_ns):
        return [SetTimer(receive, now_ns + self.sack_interval_ns(receive))]

    def on_last_packet(self, receive, now_ns):
        return [Feedback(receive)]  # all was sent once: what is missing now is late or lost

    def on_receive_timer(self, receive, now_ns):
        return [Feedback(receive), SetTimer(receive, now_ns + self.sack_interval_ns(receive))]

    # --- Sender: when is a packet lost?

    def timer(self, send, now_ns):
        srtt_ns, _ = self.rtt_ns(send)
        rto_ns = max(self.values["rto"] * srtt_ns, self.timing.t_min_ns)
        return SetTimer(send, now_ns + self.backed_off_ns(send, rto_ns))

    def on_sent(self, send, now_ns):
        return [self.timer(send, now_ns)]  # runs from the last packet that left

    def on_send_timer(self, send, now_ns):
        state = self.view.send_state(send.handle)
        if state.sent < state.count or state.retransmit_pending:
            return [self.timer(send, now_ns)]  # on_sent starts it anew
        return [Retransmit(send, self.missing(send)), self.timer(send, now_ns)]
