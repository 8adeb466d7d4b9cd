# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections whose packets have PSNs of their own (native/transport/connection_session.hpp).

A capture does not show these PSNs: they count first transmissions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from softroce_lab.check.striped.acknowledgements import (
    Acknowledgements,
    captures_feedback,
    way_ns,
)
from softroce_lab.check.striped.controls import Controls
from softroce_lab.check.striped.messages import Striped

Indices = npt.NDArray[np.int64]
_GAP_BYTES = 24  # between frames, with the preamble and the frame check sequence


def idle_ns(view: Striped, place: int) -> dict[int, int]:
    """By place of each frame on the link of this one, when that link was last idle.

    A frame may have waited in its host since then.
    """
    packets, in_time = view.evidence.packets, view.evidence.in_time
    link = packets["interface"][in_time[place]]
    places = np.flatnonzero(packets["interface"][in_time] == link)
    times_ns = view.time_ns(places)
    bits = 8 * (packets["length"][in_time[places]].astype(np.int64) + _GAP_BYTES)
    busy_ns = bits * 10**9 // max(view.line_rate_bps, 1) + 1
    is_idle = np.ones(len(places), dtype=np.bool_)
    is_idle[1:] = np.diff(times_ns) > busy_ns[:-1]
    since_ns = np.maximum.accumulate(np.where(is_idle, times_ns, 0))
    return dict(zip(places.tolist(), since_ns.tolist(), strict=True))


class Connection:
    """The packets of a stream by PSN, and what its sender was told of them.

    Times are those at the sender's link. Feedback is at the sender at most `way_ns` later.
    """

    def __init__(
        self,
        view: Striped,
        controls: Controls,
        number: int,
        acknowledgements: Callable[[int], Acknowledgements],
    ) -> None:
        self._view = view
        stream = view.streams[number]
        sent = view.transmissions
        is_mine = view.messages["stream"][sent["message"]] == number
        is_first = np.zeros(len(sent), dtype=np.bool_)
        is_first[view.packet_begins] = True
        first = np.flatnonzero(is_mine & is_first)
        self.first_numbers = first[np.argsort(sent["at"][first], kind="stable")]
        self.first = sent[self.first_numbers]
        self.first_ns = view.time_ns(self.first["at"])
        self.messages = np.flatnonzero(view.messages["stream"] == number).tolist()
        self.acks = {message: acknowledgements(message) for message in self.messages}
        pairs = list(zip(self.first["message"].tolist(), self.first["index"].tolist(), strict=True))
        self.psns = {pair: psn for psn, pair in enumerate(pairs)}
        self.reported_ns = np.array(
            [self.acks[message].reported_ns(index) for message, index in pairs], dtype=np.int64
        )
        # When the packet and all packets before it were reported. `heeded_ns`: so that the sender
        # must have heeded it.
        self.known_ns = np.maximum.accumulate(self.reported_ns)
        self.heeded_ns = np.maximum.accumulate(
            np.array([self.acks[message].heeded_ns(index) for message, index in pairs], np.int64)
        )
        self.heard_ns = np.sort(
            np.concatenate([np.zeros(0, np.int64), *(each.time_ns for each in self.acks.values())])
        )
        self.way_ns = way_ns(view, stream)
        again = np.flatnonzero(is_mine & ~is_first)
        self.retransmissions = again[np.argsort(sent["at"][again], kind="stable")]
        self.doubt = self._doubt(controls, number)

    def _doubt(self, controls: Controls, number: int) -> str | None:
        """Why the sender's state does not follow from the capture."""
        view, stream = self._view, self._view.streams[number]
        if not stream.leaves or not captures_feedback(view, stream):
            return "what the sender received and sent was not captured"
        if doubt := controls.doubts_feedback(stream):
            return doubt
        if not view.messages["begun"][self.messages].all():
            return "a message of the connection began before the capture"
        named = set(self.messages)
        if named & controls.not_ready or named & controls.refused.keys():
            return "a message of the connection was refused, and gave up its PSNs"
        if controls.failed[self.messages].any():
            return "a message of the connection failed, and gave up its PSNs"
        if any(each.unsure for each in self.acks.values()):
            return "bits of feedback may have been flipped"
        return None

    @functools.cached_property
    def idle_ns(self) -> dict[int, int]:
        """Of the link on which the packets leave."""
        return idle_ns(self._view, int(self.first["at"][0]))

    def psn_of(self, one: np.void) -> int:
        return self.psns[int(one["message"]), int(one["index"])]

    def base(self, at_ns: int) -> int:
        """The oldest PSN that was not reported by then."""
        return int(np.searchsorted(self.known_ns, at_ns, side="right"))

    def was_base_ns(self, after_ns: int, now_ns: int) -> int:
        """How long the sender may have had the same base, at some time in between.

        A timer of the connection starts again when the base advances.
        """
        steps = np.unique(np.searchsorted(self.heeded_ns, self.heeded_ns, side="right"))
        bases = np.concatenate([[0], steps[steps < len(self.heeded_ns)]])
        advanced_ns = np.where(bases > 0, self.heeded_ns[bases - 1], 0)
        since_ns = np.maximum(advanced_ns, self.first_ns[bases])
        until_ns = np.minimum(self.heeded_ns[bases] + self.way_ns, now_ns)
        return int((until_ns - since_ns)[until_ns > after_ns].max(initial=0))

    def duplicates(self, after_ns: int, now_ns: int) -> tuple[Indices, Indices]:
        """Acknowledgements without progress: the least and the most that the sender had counted at
        each acknowledgement in between.
        """
        least, most = self._duplicates
        part = slice(*np.searchsorted(self.heard_ns, [after_ns - self.way_ns, now_ns]).tolist())
        return least[part], most[part]

    @functools.cached_property
    def _duplicates(self) -> tuple[Indices, Indices]:
        heard_ns, sure_ns = self.heard_ns, self.heard_ns - self.way_ns
        advanced_ns = _advanced_ns(self.heeded_ns, sure_ns)
        # The acknowledgement that advanced the base is no duplicate.
        begins = np.searchsorted(heard_ns, advanced_ns) + (advanced_ns > 0)
        most = np.searchsorted(heard_ns, heard_ns, side="right") - begins
        live_ns = self._heard_live_ns
        least = np.searchsorted(live_ns, sure_ns, side="right")
        least -= np.searchsorted(live_ns, _advanced_ns(self.known_ns, heard_ns), side="right")
        return np.maximum(least, 0), most

    @functools.cached_property
    def _heard_live_ns(self) -> Indices:
        """As `heard_ns`, without feedback on messages that were over at their sender."""
        live = [np.zeros(0, np.int64)]
        for message, acks in self.acks.items():
            count = int(self._view.messages["count"][message])
            live.append(acks.time_ns[: int(np.searchsorted(acks.cumulative, count))])
        return np.sort(np.concatenate(live))


def _advanced_ns(known_ns: Indices, at_ns: Indices) -> Indices:
    """When the base of each of these times was reached."""
    bases = np.searchsorted(known_ns, at_ns, side="right")
    advanced_ns: Indices = np.where(bases > 0, known_ns[bases - 1], 0)
    return advanced_ns
