# SPDX-License-Identifier: GPL-2.0-or-later
"""What senders knew by feedback on packets, as it reached their links."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules
from softroce_lab.check.striped.controls import ControlMessage
from softroce_lab.check.striped.messages import CONTROL, NEVER, Stream, Striped


class Acknowledgements:
    """All feedback on one message, in time, as it reached the sender's link.

    `unsure`: bits of some of it may have been flipped.
    """

    def __init__(self, view: Striped, message: int, reports: Sequence[ControlMessage]) -> None:
        self._view = view
        ordered = sorted(
            (each for each in reports if each.last_received_at != NEVER), key=_received_at
        )
        self.unsure = not all(each.sure for each in ordered)
        bodies = [each.body for each in ordered]
        self.at = np.array([each.last_received_at for each in ordered], dtype=np.int64)
        self.time_ns = view.time_ns(self.at)
        cumulative = [body.cumulative for body in bodies]  # type: ignore[union-attr]
        ends = [body.end for body in bodies]  # type: ignore[union-attr]
        self.cumulative = np.maximum.accumulate(np.array(cumulative, dtype=np.int64))
        # The sender need not heed what a PACKET_TRIMMED calls here.
        heeded = [0 if body.trimmed else body.cumulative for body in bodies]  # type: ignore[union-attr]
        self._heeded = np.maximum.accumulate(np.array(heeded, dtype=np.int64))
        self.end = np.maximum.accumulate(np.array(ends, dtype=np.int64))
        wanted = [body.wanted for body in bodies]  # type: ignore[union-attr]
        self._wanted = np.array([-1 if each is None else each for each in wanted], dtype=np.int64)
        part = slice(*view.messages[["begin", "end"]][message].item())
        self.sent = view.transmissions[part]
        self.sent_ns = view.time_ns(self.sent["at"])
        self.way_ns = way_ns(view, view.stream(self.sent[0]))
        self._beyond: dict[
            int, int
        ] = {}  # when a packet beyond the cumulative index was first reported
        for time_ns, body in zip(self.time_ns.tolist(), bodies, strict=True):
            for packet in body.packets:  # type: ignore[union-attr]
                self._beyond.setdefault(packet, time_ns)

    def reported_ns(self, packet: int) -> int:
        """When a report of the packet first passed the sender's link; NEVER."""
        return self._first_ns(self.cumulative, packet)

    def heeded_ns(self, packet: int) -> int:
        """When a report passed that the sender must heed; NEVER."""
        return self._first_ns(self._heeded, packet)

    def _first_ns(self, cumulative: npt.NDArray[np.int64], packet: int) -> int:
        place = int(np.searchsorted(cumulative, packet, side="right"))
        below = int(self.time_ns[place]) if place < len(self.time_ns) else NEVER
        return min(below, self._beyond.get(packet, NEVER))

    def wants(self, first: int, last: int, since_ns: int, at: int) -> bool:
        """Whether the receiver asked for one of these packets in between."""
        asked = (first <= self._wanted) & (self._wanted <= last)
        return bool(np.any(asked & (self.time_ns > since_ns) & (self.at < at)))

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

    def gap(self, packet: int, at: int, distance: int = 1) -> bool:
        """Whether one so far behind it, or further, was known to have arrived by then."""
        before = int(np.searchsorted(self.at, at))
        return before > 0 and int(self.end[before - 1]) > packet + distance

    def may_have_restarted(self, before_ns: int, now_ns: int, least_ns: int) -> bool:
        """Whether the message was silent for so long in between."""
        sent_ns = np.sort(self.sent_ns)
        since_ns, until_ns = sent_ns[:-1], sent_ns[1:]
        silent = (since_ns >= before_ns) & (until_ns <= now_ns)
        return bool(np.any(silent & (until_ns - since_ns >= least_ns)))

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


def way_ns(view: Striped, stream: Stream) -> int:
    """From the sender's link to the sender it may take as long as a round trip that was measured.

    Plus the delay of rules on that link: the capture is at its beginning.
    """
    mine = np.flatnonzero(view.stream_of == stream.number)
    srtt, var = (int(view.column(name, mine).max()) for name in ("lab_srtt_ns", "lab_rttvar_ns"))
    usual_ns = max(srtt + view.timing.lost_rttvar_weight * var, view.timing.initial_rtt_ns)
    return usual_ns + fault_rules.held_back_ns(view.evidence, view.answers(stream))


def captures_feedback(view: Striped, stream: Stream) -> bool:
    """Whether what reaches the sender was captured."""
    return stream.back is not None and view.streams[stream.back].arrives
