# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's erasure coding (arXiv 2505.05366): parity instead of retransmissions.

The paper states: submessages of k chunks of data and m of parity, (32, 8) by default; the receiver
acknowledges a message when all of it can be decoded; a fallback timer of
FTO = (M + ceil(M/R)) T_inj + beta RTT, R = k/m, runs from the first bit; when it ends, the receiver
sends a NACK of the submessages that cannot be decoded, and selective repeat carries them.

This project's definition is the rest: parity lies behind the data in the packets of a message
(native/engine/striped/coding.hpp); a submessage is decoded as soon as it can be; FTO does not end
while packets arrive less than beta RTT apart; after it the receiver sends SACKs as that of
`sdr_sr` does, and the sender retransmits missing chunks, each after the RTO of `sdr_sr`. A sender
that receives nothing asks for the state of the message. What bounds all of it is the session's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np

from softroce_lab.erasure import code as erasure
from softroce_lab.erasure.code import ErasureCode, Scheme
from softroce_lab.recovery.api import ReceiveState, SendState, View, packets_in
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.options import Option, OptionError, Value
from softroce_lab.recovery.policy import (
    Actions,
    Encode,
    Feedback,
    Receiving,
    RequestStatus,
    Restore,
    Sending,
    SetTimer,
)
from softroce_lab.recovery.sdr_sr import CHUNK_BYTES, SdrSr

K, M = 32, 8
_MOST_CHUNK_BYTES = 4 << 20

CHUNK = Option("chunk", CHUNK_BYTES, "bytes of a chunk: path MTUs in all", "bytes",
               least=256, most=_MOST_CHUNK_BYTES)  # fmt: skip
BETA = Option("beta", 1.0, "RTTs that the fallback timer waits behind the last packet",
              least=0.0, most=100.0)  # fmt: skip


class SdrEc(SdrSr):
    """Erasure coding, with selective repeat of what it cannot restore."""

    name = "sdr_ec"
    options: ClassVar[tuple[Option, ...]] = (
        Option("code", "mds", "erasure code of a submessage", choices=erasure.SCHEMES),
        Option("k", K, "chunks of data in a submessage", least=1, most=erasure.MOST_CHUNKS - 1),
        Option("m", M, "chunks of parity in a submessage", least=1, most=erasure.MOST_CHUNKS - 1),
        CHUNK,
        BETA,
    )

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        path_mtu = view.chunk_bytes + (-view.chunk_bytes) % 256  # its header is shorter than that
        self.chunk_packets: int = self.code_chunk_packets(self.values, path_mtu)
        self._scheme = cast("Scheme", self.values.get("code", "mds"))
        self.restored = 0  # submessages
        self.fallbacks = 0  # messages

    @classmethod
    def check(cls, values: Mapping[str, Value]) -> None:
        """OptionError for a (k, m) that there is no code of."""
        k, m = cast("int", values["k"]), cast("int", values["m"])
        if k + m > erasure.MOST_CHUNKS:
            most = erasure.MOST_CHUNKS - k
            what = f"option 'm': k + m is {k + m}, more than {erasure.MOST_CHUNKS}"
            raise OptionError("m", what, hint=f"with k = {k}: at most {most}")
        if values["code"] == "xor" and m > k:
            what = f"option 'm': {m} chunks of parity for k = {k} chunks of data"
            raise OptionError("m", what, hint="xor has at most k")

    @classmethod
    def codes(cls, values: Mapping[str, Value]) -> tuple[tuple[int, int], ...]:
        """(k, m), of all messages."""
        return ((cast("int", values["k"]), cast("int", values["m"])),)

    @classmethod
    def code_chunk_packets(cls, values: Mapping[str, Value], path_mtu: int) -> int:
        """Packets of a chunk: one for each path MTU in it, whatever their headers take."""
        chunk = cast("int", values["chunk"])
        if chunk % path_mtu:
            below = chunk - chunk % path_mtu or path_mtu
            what = (
                f"option 'chunk': {chunk} bytes are no multiple of the path MTU, {path_mtu} bytes"
            )
            raise OptionError("chunk", what, hint=f"for example {below} bytes")
        return chunk // path_mtu

    # ---------------------------------------------------------------- submessages

    def shape(self, packets: int, parity: int) -> tuple[int, int]:
        """(k, m) of a message with so many packets of data and of parity."""
        return self.codes(self.values)[0]

    def code_of(self, submessage: int, packets: int, parity: int) -> ErasureCode:
        """The code of a submessage of a message with so many packets of data and of parity."""
        k, m = self.shape(packets, parity)
        chunks = -(-packets // self.chunk_packets)
        data = min(k, chunks - submessage * k)
        return _code(self._scheme, data, -(-data * m // k))

    # ---------------------------------------------------------------- sender: parity

    def on_send_posted(self, send: Sending, now_ns: int) -> Actions:
        return [*super().on_send_posted(send, now_ns), *self.encode(send, 0)]

    def on_parity(self, send: Sending, submessage: int, now_ns: int) -> Actions:
        return self.encode(send, submessage + 1)

    def encode(self, send: Sending, submessage: int) -> list[Encode]:
        """Encode one submessage; the next follows when it is done."""
        state = self.view.send_state(send.handle)
        if state is None or not state.parity:
            return []
        k, _ = self.shape(send.count, state.parity)
        if submessage * k * self.chunk_packets >= send.count:
            return []
        return [Encode(send, submessage, self.code_of(submessage, send.count, state.parity))]

    # ---------------------------------------------------------------- sender: fallback

    def _repeats(self, send: Sending, state: SendState) -> bool:
        """Whether selective repeat carries it: there is no parity, or the receiver fell back."""
        return not state.parity or send.known_missing is not None

    def _quiet_ns(self, send: Sending) -> int:
        """The RTO of `sdr_sr`, and until the receiver has fallen back longer than that takes."""
        srtt_ns, _ = self.rtt_ns(send)
        return self.rto_ns(send) + int(self.values["beta"] * srtt_ns)

    def on_sent(self, send: Sending, now_ns: int) -> Actions:
        state = self.view.send_state(send.handle)
        if state is None or self._repeats(send, state):
            return ()  # chunks have timers of their own
        # What was asked before concerned its turn. Turns without effect back off, too: at one
        # interval, a periodic outage may meet each of them.
        missing = np.repeat(send.memory.missing, self.chunk_packets)[: state.count]
        send.memory.timeouts = int(state.attempts[: state.count][missing].max(initial=1)) - 1
        return [SetTimer(send, now_ns + self._quiet_ns(send))]

    def on_feedback(self, send: Sending, now_ns: int) -> Actions:
        """Retransmit what is missing and was sent a round trip ago: the NACK names no other.

        Of a message without parity the SACKs come from the first packet on, and are no NACKs.
        """
        super().on_feedback(send, now_ns)
        state = self.view.send_state(send.handle)
        if state is None or not state.parity or state.retransmit_pending:
            return ()
        missing, sent_ns = self.outstanding(send, state)
        lost = missing & (sent_ns <= now_ns - self.rtt_ns(send)[0])
        repeats = self._repeats(send, state)
        wait_ns = self.rto_ns(send) if repeats else self._quiet_ns(send)
        timer = SetTimer(send, now_ns + wait_ns)
        return [timer, *self.repeat(send, state, lost, now_ns)]

    def on_send_timer(self, send: Sending, now_ns: int) -> Actions:
        state = self.view.send_state(send.handle)
        if state is None:
            return ()
        if self._repeats(send, state):
            return super().on_send_timer(send, now_ns)
        quiet_ns = int(state.sent_ns.max()) + self._quiet_ns(send)
        if state.sent and now_ns < quiet_ns:  # packets are leaving: the receiver's FTO runs
            return [SetTimer(send, quiet_ns)]
        send.memory.timeouts += 1
        return [SetTimer(send, now_ns + self._quiet_ns(send)), RequestStatus(send)]

    # ---------------------------------------------------------------- receiver

    def fto_ns(self, state: ReceiveState) -> int:
        """What a message takes to arrive, at the rate of the port; without the RTTs behind it."""
        bytes_ = (state.count + state.parity) * self.view.chunk_bytes
        return bytes_ * 8 * 1_000_000_000 // self.view.line_rate_bps

    def slack_ns(self, receive: Receiving) -> int:
        """Beta RTT; at least what a machine delays packets by."""
        srtt_ns, _ = self.rtt_ns(receive)
        least_ns = self.timing.reordering_window_least_ns if self.values["beta"] else 0
        return max(int(self.values["beta"] * srtt_ns), least_ns)

    def on_first_packet(self, receive: Receiving, now_ns: int) -> Actions:
        """FTO begins; `memory` is None until it ends, then the interval of SACKs."""
        state = self.view.receive_state(receive.handle)
        if state is None or not state.parity:
            return super().on_first_packet(receive, now_ns)
        fto_ns = self.fto_ns(state) + self.slack_ns(receive)
        return [SetTimer(receive, state.first_ns + fto_ns)]

    def on_last_packet(self, receive: Receiving, now_ns: int) -> Actions:
        return () if receive.memory is None else [Feedback(receive)]

    def on_receive_timer(self, receive: Receiving, now_ns: int) -> Actions:
        if receive.memory is not None:
            return super().on_receive_timer(receive, now_ns)
        state = self.view.receive_state(receive.handle)
        if state is None:
            return ()
        slack_ns = self.slack_ns(receive)
        due_ns = max(state.first_ns + self.fto_ns(state), state.last_ns) + slack_ns
        if now_ns < due_ns:
            return [SetTimer(receive, due_ns)]
        self.fallbacks += 1
        receive.memory = self.sack_interval_ns(receive)
        return [Feedback(receive), SetTimer(receive, now_ns + receive.memory)]

    def on_chunk(self, receive: Receiving, submessage: int, now_ns: int) -> Actions:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return ()
        code = self.code_of(submessage, state.count, state.parity)
        if not code.decodable(self.chunks_there(state, submessage, code)):
            return ()
        self.restored += 1
        return [Restore(receive, submessage, code)]

    def chunks_there(
        self, state: ReceiveState, submessage: int, code: ErasureCode
    ) -> erasure.Presence:
        """Which chunks of a submessage are complete, data first; shape (k + m,)."""
        packets = self.chunk_packets
        there = packets_in(state.words, state.count + state.parity)
        k, m = self.shape(state.count, state.parity)
        data = there[: state.count][submessage * k * packets :][: code.data_chunks * packets]
        parity = there[state.count + submessage * m * packets :]
        of_row = min(packets, len(data)) if code.data_chunks == 1 else packets
        parity = parity[: code.parity_chunks * of_row]
        of_data = np.logical_and.reduceat(data, np.arange(0, len(data), packets))
        return np.concatenate([of_data, parity.reshape(code.parity_chunks, of_row).all(axis=1)])

    def summary(self) -> dict[str, Any]:
        return {"restored": self.restored, "fallbacks": self.fallbacks}


@cache
def _code(scheme: Scheme, k: int, m: int) -> ErasureCode:
    return ErasureCode(scheme, k, m)
