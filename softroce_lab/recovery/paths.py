# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths lose more than the others: the evidence of bitmaps, and the shares that follow.

This project's definition (docs/protocols.md, section 1, Multipath): paths that lose more than the
others are used less and probed now and then, so that a grey link is left within a few RTTs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FULL_SHARE = 16
PROBE_SHARE = 1
_MEMORY_PACKETS = 4096.0  # evidence beyond this fades, so that a healed path is used again
_COUNTS = 1 << 32
_LEAST_EXCESS = 8.0  # losses above expectation before a path is suspected


class PathHealth:
    """Losses and sends per path to one peer, fading."""

    def __init__(self, paths: int) -> None:
        self._counts = np.zeros(paths, dtype=np.int64)  # as last received, modulo 2**32
        self._sent = np.zeros(paths)
        self._lost = np.zeros(paths)
        self.shares = [FULL_SHARE] * paths

    @property
    def suspects(self) -> bool:
        """Whether some path is used less than others."""
        return PROBE_SHARE in self.shares

    def note_sent(self, counts: Sequence[int]) -> None:
        """So many packets have been sent on each path since the beginning, modulo 2**32."""
        reported = np.array(counts, dtype=np.int64)
        self._sent += (reported - self._counts) % _COUNTS
        self._counts = reported
        total = float(self._sent.sum())
        if total > _MEMORY_PACKETS:
            self._sent *= _MEMORY_PACKETS / total
            self._lost *= _MEMORY_PACKETS / total

    def note_lost(self, paths: npt.NDArray[np.uint8]) -> None:
        """These packets were lost, each on the given path."""
        self._lost += np.bincount(paths, minlength=len(self._lost))[: len(self._lost)]

    def reweigh(self) -> list[int] | None:
        """New shares if they changed, else None.

        A path is suspected when it lost three times what its share of the packets would lose at
        the rate of the best quarter of the paths, and at least `_LEAST_EXCESS` packets more than
        that: half of the paths may be dead.
        """
        rate = self._lost / np.maximum(self._sent, 1.0)
        best = np.sort(rate)[: max(len(rate) // 4, 1)]
        expected = float(best.mean()) * self._sent
        suspected = self._lost > 3 * expected + _LEAST_EXCESS
        if suspected.all():
            suspected[:] = False
        shares = [PROBE_SHARE if bad else FULL_SHARE for bad in suspected]
        if shares == self.shares:
            return None
        self.shares = shares
        return shares
