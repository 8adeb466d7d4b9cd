# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths lose more than the others: the evidence of NACKs, and what follows.

This project's definition (docs/protocols.md, section 1, Multipath): a path that loses more than the
others gets another source port, so that a grey link is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_MEMORY_PACKETS = 4096.0  # evidence beyond this fades
_COUNTS = 1 << 32
_LEAST_EXCESS = 2.0  # losses above expectation before a path is left


class PathHealth:
    """Losses and sends per path to one peer, fading."""

    def __init__(self, paths: int) -> None:
        self._counts = np.zeros(paths, dtype=np.int64)  # as last received, modulo 2**32
        self._sent = np.zeros(paths)
        self._lost = np.zeros(paths)
        self.left = np.zeros(paths, dtype=np.int64)  # how often

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
        """These packets were lost, each on its path; others than there are do not count."""
        self._lost += np.bincount(paths, minlength=len(self._lost))[: len(self._lost)]

    def leave(self) -> list[int]:
        """The paths that are to get another source port; what is known of them is forgotten.

        Those that lost three times what their share of the packets would lose at the rate of the
        best quarter of the paths, and more than `_LEAST_EXCESS` packets beyond that: half of the
        paths may be bad.
        """
        rate = self._lost / np.maximum(self._sent, 1.0)
        best = np.sort(rate)[: max(len(rate) // 4, 1)]
        suspected = self._lost > 3 * float(best.mean()) * self._sent + _LEAST_EXCESS
        if suspected.all():
            return []
        self.left += suspected
        self._sent[suspected] = self._lost[suspected] = 0.0
        return np.flatnonzero(suspected).tolist()
