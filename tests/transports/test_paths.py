# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths are left, and when."""

import numpy as np
import pytest
from softroce_lab._native import PathHealth

PATHS = 8


def on(path, packets):
    return np.full(packets, path, dtype=np.uint8)


def evenly(packets_each, paths=PATHS):
    return np.repeat(np.arange(paths, dtype=np.uint8), packets_each)


class Health:
    """Told of packets one by one, as the engine counts them."""

    def __init__(self, paths):
        self._health = PathHealth(paths)
        self.counts = np.zeros(16, dtype=np.int64)  # of the engine's paths at most

    def sent(self, paths):
        self.counts = (self.counts + np.bincount(paths, minlength=16)) % 2**32
        self._health.note_sent(self.counts.tolist())

    def note_lost(self, paths):
        for path in paths.tolist():
            self._health.note_lost(path)

    def leave(self):
        return self._health.leave()

    @property
    def left(self):
        return self._health.left()


def test_without_losses_no_path_is_left():
    health = Health(PATHS)
    health.sent(evenly(100))
    assert health.leave() == []


def test_the_path_that_loses_is_left_once():
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(on(3, 50))
    assert health.leave() == [3]
    assert health.leave() == []


def test_two_paths_that_lose_are_left():
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(np.concatenate([on(0, 20), on(7, 90)]))
    assert health.leave() == [0, 7]


def test_half_of_the_paths_may_be_dead():
    health = Health(PATHS)
    health.sent(evenly(20))
    health.note_lost(np.repeat(np.arange(4, dtype=np.uint8), 20))
    assert health.leave() == [0, 1, 2, 3]


def test_a_quarter_of_the_paths_is_enough_to_compare_with():
    health = Health(PATHS)
    health.sent(evenly(20))
    health.note_lost(np.repeat(np.arange(6, dtype=np.uint8), 20))
    assert health.leave() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("losses", [1, 2])
def test_a_few_losses_are_no_evidence(losses):
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(on(3, losses))
    assert health.leave() == []


def test_what_all_paths_lose_is_no_path_to_blame_for():
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(evenly(30))
    assert health.leave() == []
    health.note_lost(on(2, 60))  # 90 % where the others lose 30 %: not more than thrice
    assert health.leave() == []


def test_a_path_is_measured_by_the_others_not_by_none():
    health = Health(PATHS)
    health.sent(evenly(1000))
    health.note_lost(evenly(10))
    health.note_lost(on(5, 40))  # 5 % where the others lose 1 %
    assert health.leave() == [5]


def test_the_only_path_is_never_left():
    health = Health(1)
    health.sent(on(0, 1000))
    health.note_lost(on(0, 900))
    assert health.leave() == []


def test_losses_without_a_record_of_sends_leave_no_path_out_for_all():
    """The record of sends may lag; should every path be suspected, none is."""
    health = Health(2)
    health.note_lost(evenly(100, paths=2))
    assert health.leave() == []


def test_what_is_left_begins_anew():
    """Its next source port is another path through the fabric."""
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(on(3, 50))
    assert health.leave() == [3]
    health.note_lost(on(3, 2))
    assert health.leave() == []
    health.note_lost(on(3, 1))
    assert health.leave() == [3]
    assert health.left == [0, 0, 0, 2, 0, 0, 0, 0]


def test_old_evidence_fades():
    health = Health(PATHS)
    health.sent(evenly(100))
    health.note_lost(on(3, 2))
    for _ in range(100):
        health.sent(evenly(100))
    health.note_lost(on(3, 1))
    assert health.leave() == []


def test_paths_beyond_those_there_are_count_for_nothing():
    health = Health(2)
    health.sent(np.array([0, 1], dtype=np.uint8))
    health.note_lost(np.array([9] * 50, dtype=np.uint8))
    assert health.leave() == []


def test_the_engines_counts_wrap():
    health = Health(PATHS)
    health.counts[:PATHS] = 2**32 - 50
    health.sent(evenly(0))
    health.sent(evenly(100))
    health.note_lost(evenly(5))  # a path that seems to have sent less than none would be blamed
    health.note_lost(on(3, 200))
    assert health.leave() == [3]


def test_a_path_that_is_left_begins_without_packets():
    """Those sent over its old port would hide what its next one loses."""
    health = Health(PATHS)
    health.sent(evenly(400))
    health.note_lost(evenly(4))
    health.note_lost(on(3, 200))
    assert health.leave() == [3]
    health.sent(on(3, 10))
    health.note_lost(on(3, 4))
    assert health.leave() == [3]
