# SPDX-License-Identifier: GPL-2.0-or-later
"""What senders of `irn`, `srnic` and `rack_tlp` knew by their peers' feedback, and what they may do
by it: retransmit exactly the holes (docs/explanation/transports.md).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules
from softroce_lab.check.striped.controls import ControlMessage, Controls
from softroce_lab.check.striped.feedback import IRN, RACK_TLP, Feedback
from softroce_lab.check.striped.messages import CONTROL, NEVER, Stream, Striped
from softroce_lab.transports.defaults import MILLISECOND_NS

_LONGEST_NS = 40 * MILLISECOND_NS  # SelectiveRepeat::kLongestWait


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Of a stream, ns (docs/explanation/transports.md)."""

    least_ns: int  # no timer is shorter
    longest_ns: int  # nor any wait longer

    @classmethod
    def of(cls, transport: str, view: Striped) -> Timers:
        """RTO_low and RTO_high, SRNIC's 10 base RTTs, or the timeout that a user set for all.

        Those of `rack_tlp` follow the measured RTT: no capture shows how short they may be.
        """
        if transport == RACK_TLP:
            return cls(0, max(view.irn_rto_ns[1], 2 * view.timing.t_max_ns))
        fixed_ns = view.timing.fixed_rto_ns
        low_ns, high_ns = (fixed_ns, fixed_ns) if fixed_ns else view.irn_rto_ns
        least_ns = low_ns if transport == IRN else fixed_ns or 10 * view.timing.initial_rtt_ns
        return cls(least_ns, max(high_ns, min(16 * high_ns, _LONGEST_NS)))


class Acknowledgements:
    """All feedback on one message, in time, as it reached the sender's link."""

    def __init__(self, view: Striped, message: int, reports: Sequence[ControlMessage]) -> None:
        self._view = view
        ordered = sorted(
            (each for each in reports if each.last_received_at != NEVER), key=_received_at
        )
        self.unsure = not all(each.sure for each in ordered)  # whether all of it is known
        bodies = [each.body for each in ordered]
        self.at = np.array([each.last_received_at for each in ordered], dtype=np.int64)
        self.time_ns = view.time_ns(self.at)
        cumulative = [body.cumulative for body in bodies]  # type: ignore[union-attr]
        ends = [body.end for body in bodies]  # type: ignore[union-attr]
        self.cumulative = np.maximum.accumulate(np.array(cumulative, dtype=np.int64))
        self.end = np.maximum.accumulate(np.array(ends, dtype=np.int64))
        part = slice(*view.messages[["begin", "end"]][message].item())
        self.sent = view.transmissions[part]
        self.sent_ns = view.time_ns(self.sent["at"])
        self.way_ns = _way_ns(view, view.stream(self.sent[0]))
        self._beyond: dict[
            int, int
        ] = {}  # when a packet beyond the cumulative index was first reported
        for time_ns, body in zip(self.time_ns.tolist(), bodies, strict=True):
            for packet in body.packets:  # type: ignore[union-attr]
                self._beyond.setdefault(packet, time_ns)

    def reported_ns(self, packet: int) -> int:
        """When a report of the packet first passed the sender's link; NEVER."""
        place = int(np.searchsorted(self.cumulative, packet, side="right"))
        below = int(self.time_ns[place]) if place < len(self.time_ns) else NEVER
        return min(below, self._beyond.get(packet, NEVER))

    @functools.cached_property
    def overtaken(self) -> bool:
        """Whether feedback was reordered before the sender's link without a known rule.

        Then it may be reordered after it, too. Each control message has the next number.
        """
        view = self._view
        if fault_rules.are_known(view.evidence):
            return False
        received = (view.stream_of == view.stream(self.sent[0]).back) & view.taps.arrives
        numbers = view.column("lab_message", np.flatnonzero(received & (view.kinds == CONTROL)))
        return bool(np.any(np.diff(numbers.astype(np.int64)) < 0))

    def gap(self, packet: int, at: int) -> bool:
        """Whether a higher one was known to have arrived by then."""
        before = int(np.searchsorted(self.at, at))
        return before > 0 and int(self.end[before - 1]) > packet + 1

    def may_have_run_out(self, before_ns: int, now_ns: int, least_ns: int) -> bool:
        """Whether the timer can have expired in between.

        The packet at the cumulative index is retransmitted then, though others may leave before
        it. If its acknowledgement comes first it is not.
        """
        since_ns, until_ns = self._waits
        expires_ns = np.maximum(since_ns + least_ns, before_ns + 1)
        return bool(np.any(expires_ns <= np.minimum(until_ns, now_ns)))

    @functools.cached_property
    def _waits(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """When the timer began for the packet at the cumulative index, ns, and until when it can
        have expired: that packet was retransmitted, or its acknowledgement had come.

        It begins when the cumulative acknowledgement advances and when that packet is sent.
        """
        steps = np.flatnonzero(np.diff(self.cumulative, prepend=0))
        begin_ns = [0, *self.time_ns[steps].tolist()]
        end_ns = [*(self.time_ns[steps] + self.way_ns).tolist(), NEVER]
        at = np.append(0, self.cumulative[steps])
        index = self.sent["index"]
        first, behind = (np.searchsorted(index, at, side) for side in ("left", "right"))
        waits = list[tuple[int, int]]()
        for step in range(len(at)):
            sent_ns = self.sent_ns[first[step] : behind[step]].tolist()
            for each_ns, next_ns in itertools.pairwise([*sent_ns, NEVER]):
                until_ns = min(next_ns, end_ns[step])
                if each_ns < end_ns[step] and until_ns != NEVER:
                    waits.append((max(each_ns, begin_ns[step]), until_ns))
        since, until = np.array(waits, dtype=np.int64).reshape(-1, 2).T
        return since, until


def _received_at(sent: ControlMessage) -> int:
    return sent.last_received_at


def why_not(
    view: Striped, controls: Controls, acks: Acknowledgements, one: np.void, *, strict: bool
) -> str | None:
    """What forbids this retransmit; None: the sender saw a gap, or its timer ran out.

    `strict`: the timers are known, for the capture lies in its run directory.
    """
    stream = view.stream(one)
    packet, at = int(one["index"]), int(one["at"])
    now_ns = int(view.time_ns(at))
    way_ns = acks.way_ns
    if acks.reported_ns(packet) < now_ns - way_ns:
        return "a report that it had arrived had reached its sender"
    transport = controls.transports[stream.number]
    if acks.gap(packet, at) or not strict or transport == RACK_TLP:
        return None
    number = int(np.flatnonzero((acks.sent["index"] == packet) & (acks.sent["at"] == at))[0])
    before_ns = int(acks.sent_ns[number - 1])
    if acks.may_have_run_out(before_ns, now_ns, Timers.of(transport, view).least_ns):
        return None
    return "no packet behind it was known to have arrived, and no timer ran out"


def _way_ns(view: Striped, stream: Stream) -> int:
    """From the sender's link to the sender it may take as long as a round trip that was measured.

    Plus the delay of rules on that link: the capture is at its beginning.
    """
    mine = np.flatnonzero(view.stream_of == stream.number)
    srtt, var = (int(view.column(name, mine).max()) for name in ("lab_srtt_ns", "lab_rttvar_ns"))
    usual_ns = max(srtt + view.timing.lost_rttvar_weight * var, view.timing.initial_rtt_ns)
    return usual_ns + fault_rules.held_back_ns(view.evidence, view.answers(stream))


@dataclasses.dataclass(frozen=True, slots=True)
class Packets:
    """The packets of a message that were seen, in the order of their indices."""

    index: npt.NDArray[np.int64]
    arrived_at: npt.NDArray[np.int64]  # at the receiver's link, first
    below_at: npt.NDArray[np.int64]  # where the last of the first n had arrived

    @classmethod
    def of(cls, view: Striped, message: int) -> Packets:
        """From all of a view's packets."""
        first = view.packet_message
        part = slice(*np.searchsorted(first, [message, message + 1]).tolist())
        index = view.transmissions["index"][view.packet_begins[part]].astype(np.int64)
        arrived = view.packet_arrived_at[part]
        return cls(index, arrived, np.maximum.accumulate(np.append(-1, arrived)))

    def unfounded(self, sent: ControlMessage) -> int | None:
        """The first packet that this feedback calls there and that had not come; None: all had."""
        body: Feedback = sent.body  # type: ignore[assignment]
        below = int(np.searchsorted(self.index, body.cumulative))
        if below < body.cumulative:
            return int(np.setdiff1d(np.arange(below + 1), self.index[:below])[0])
        if self.below_at[below] > sent.at:
            return int(self.index[np.flatnonzero(self.arrived_at[:below] > sent.at)[0]])
        return next((packet for packet in body.packets if not self._had_come(packet, sent)), None)

    def _had_come(self, packet: int, sent: ControlMessage) -> bool:
        place = int(np.searchsorted(self.index, packet))
        here = place < len(self.index) and self.index[place] == packet
        return bool(here and self.arrived_at[place] < sent.at)
