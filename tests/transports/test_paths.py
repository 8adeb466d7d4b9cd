# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths are left, and when."""

import numpy as np
import pytest
from softroce_lab._native import PathHealth

PATHS = 8
ALL = range(PATHS)


class Health:
    """Told of packets as the engine counts them."""

    def __init__(self, first_count=0):
        self._health = PathHealth(PATHS)
        self.counts = np.zeros(16, dtype=np.int64)  # of the engine's paths at most
        self.counts[:PATHS] = first_count
        self.sent(0)

    def sent(self, packets_each):
        self.counts[:PATHS] = (self.counts[:PATHS] + packets_each) % 2**32
        self._health.note_sent(self.counts.tolist())

    def lose(self, lost):
        """`lost`: packets by path."""
        for path, packets in lost.items():
            for _ in range(packets):
                self._health.note_lost(path)
        return self._health.leave()


@pytest.mark.parametrize(
    ("sent", "lost", "left"),
    [
        (100, {}, []),
        (100, {3: 50}, [3]),
        (20, dict.fromkeys(range(4), 20), [0, 1, 2, 3]),  # half of the paths may be dead,
        (20, dict.fromkeys(range(6), 20), [0, 1, 2, 3, 4, 5]),  # and more
        (100, {3: 2}, []),  # a few losses are no evidence
        (100, dict.fromkeys(ALL, 30), []),  # what all lose is no path to blame for
        (100, dict.fromkeys(ALL, 30) | {2: 90}, []),  # not more than thrice
        (1000, dict.fromkeys(ALL, 10) | {5: 50}, [5]),  # 5 % where the others lose 1 %
        (0, dict.fromkeys(ALL, 100), []),  # the record of sends may lag
        (100, {9: 50}, []),  # no such path
    ],
)
def test_a_path_is_measured_by_the_others(sent, lost, left):
    health = Health()
    health.sent(sent)
    assert health.lose(lost) == left
    assert health.lose({}) == []


def test_what_is_left_begins_anew():
    """Its next source port is another path through the fabric; what the old port did is gone."""
    health = Health()
    health.sent(400)
    assert health.lose(dict.fromkeys(ALL, 4) | {3: 200}) == [3]
    assert health.lose({3: 2}) == []
    assert health.lose({3: 2}) == [3]
    assert health._health.left() == [0, 0, 0, 2, 0, 0, 0, 0]


def test_old_evidence_fades():
    health = Health()
    health.sent(100)
    assert health.lose({3: 2}) == []
    for _ in range(100):
        health.sent(100)
    assert health.lose({3: 1}) == []


def test_the_engines_counts_wrap():
    health = Health(2**32 - 50)
    health.sent(100)
    # A path that seems to have sent less than none would be blamed.
    assert health.lose(dict.fromkeys(ALL, 5) | {3: 200}) == [3]
