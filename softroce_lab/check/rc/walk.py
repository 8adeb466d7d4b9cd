# SPDX-License-Identifier: GPL-2.0-or-later
"""A responder's expected PSN, followed through a capture (IBA 9.7.4.1).

What the capture saw may have been lost before it reached the responder, and the capture may have
missed what the responder got. So every response, which carries the expected PSN, corrects the walk,
and what it had to correct is kept: the rules distinguish losses from faults by it.
"""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Indices
from softroce_lab.check.rc.packets import Answers, Requests, Seen


class Place(enum.IntEnum):
    """Where a request stands to the expected PSN when it arrives."""

    EXPECTED = 0
    DUPLICATE = 1
    EARLY = 2
    LOST = 3  # after the capture, as its own records show


@dataclasses.dataclass(frozen=True)
class Surprise:
    """A response that differs from the expectation of the walk."""

    answer: int  # index of Answers
    expected: int  # PSN by the walk


@dataclasses.dataclass
class Walk:
    """The outcome of requests, and the content of responses."""

    place: npt.NDArray[np.uint8]  # of each request
    expected: Indices  # before each response
    early: Indices  # for each response: request that came too early since, the latest; -1: none
    gaps: list[tuple[int, int]]  # the first request behind each, and the PSN that is missing
    ahead: list[Surprise]  # it acknowledges what did not come in order
    behind: list[Surprise]  # it requests what did
    again: list[tuple[int, int]]  # NAKs for one gap: the first, and a further one


def walk(seen: Seen) -> Walk:
    """Follow all packets by time."""
    return _Walker(seen.requests, seen.answers).walk()


class _Walker:
    def __init__(self, requests: Requests, answers: Answers) -> None:
        self.requests, self.answers = requests, answers
        self.expected: int | None = None
        self.early = -1
        self.nak = -1  # the response that reported the gap
        # A responder requested what had passed the capture. It was lost since; or it was on its way
        # when the NAK was sent, and then this is what the responder expects.
        self.otherwise = 0
        self.done = Walk(
            np.zeros(len(requests), np.uint8),
            np.zeros(len(answers), np.int64),
            np.full(len(answers), -1, np.int64),
            [],
            [],
            [],
            [],
        )

    def walk(self) -> Walk:
        """Requests and responses in order of time."""
        bounds = np.searchsorted(self.requests.place, self.answers.place).tolist()
        through = self.answers.through.tolist()
        names_expected = (~self.answers.is_ack & ~self.answers.is_result).tolist()
        is_gap = self.answers.is_sequence_nak.tolist()
        begin = 0
        for answer, end in enumerate(bounds):
            if end > begin:
                self._handle_requests(begin, end)
                begin = end
            self._handle_response(answer, through[answer], names_expected[answer], is_gap[answer])
        self._handle_requests(begin, len(self.requests))
        return self.done

    def _handle_requests(self, begin: int, end: int) -> None:
        if begin == end:
            return
        requests, part = self.requests, slice(begin, end)
        expected = self.expected
        if expected is None:
            expected = int(requests.psn[begin])
        places = []
        rows = zip(
            requests.psn[part].tolist(),
            requests.end[part].tolist(),
            requests.lost[part].tolist(),
            strict=True,
        )
        for at, (psn, behind, lost) in enumerate(rows, begin):
            if psn == self.otherwise and not lost:
                self.otherwise = behind
            if lost:
                places.append(Place.LOST)
            elif psn == expected:
                expected = behind
                self.early = self.nak = -1
                places.append(Place.EXPECTED)
            elif psn < expected:
                places.append(Place.DUPLICATE)
            else:
                if self.early < 0:
                    self.done.gaps.append((at, expected))
                self.early = at
                places.append(Place.EARLY)
        self.done.place[part] = places
        self.expected = expected

    def _handle_response(
        self, answer: int, through: int, names_expected: bool, is_gap: bool
    ) -> None:
        if self.expected is None:
            self.done.expected[answer] = through
            return
        done, expected = self.done, self.expected
        done.expected[answer] = expected
        done.early[answer] = self.early
        if through > expected:
            if through > self.otherwise:
                done.ahead.append(Surprise(answer, expected))
        elif through < expected and names_expected and not self.answers.is_fatal[answer]:
            done.behind.append(Surprise(answer, expected))
            self.otherwise = max(self.otherwise, expected)
        if through > expected or (names_expected and through != expected):
            self.expected, self.early, self.nak = through, -1, -1
        if is_gap:
            if self.nak >= 0:
                done.again.append((self.nak, answer))
            else:
                self.nak = answer
