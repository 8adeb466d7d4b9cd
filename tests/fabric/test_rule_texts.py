# SPDX-License-Identifier: GPL-2.0-or-later
"""What rules do, in words; tests/fabric/observe/test_capture.py has the monitor read them."""

import errno

import pytest

from softroce_lab.fabric import rule_texts
from softroce_lab.fabric.net import syscalls
from softroce_lab.plan.effects import (
    CERTAIN,
    Corrupt,
    Down,
    Drop,
    Fault,
    Filter,
    Gemodel,
    NamedDrop,
    Periodic,
    RandomLoss,
    Reorder,
)


def fault(effect, rule_id=0, packets=None, rule="noise"):
    return Fault(rule, rule_id, 4, "index", 1, effect, packets or Filter())


def named(packet, rule_id):
    return fault(NamedDrop(0, packet, None, None, False, ()), rule_id)


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (RandomLoss(2**63), "random 50%, rule noise"),
        (Periodic(4, 1, 0), "periodic 4 1, rule noise"),
        (Gemodel(1, 2, 3, 4), "gemodel good, rule noise\tgemodel bad, rule noise"),
        (Down(), "down, rule noise"),
        (Corrupt(CERTAIN), "100%, rule noise"),
        (Reorder(2**62, 5, 1000), "25% gap 5 by 1us, rule noise"),
        (NamedDrop(1, 2, None, None, False, ()), "named, rule noise"),
    ],
)
def test_words(effect, text):
    assert rule_texts.text(fault(effect)) == text


def test_words_of_a_filter():
    tail = Filter(kinds=("data",), tail=1)
    assert rule_texts.text(fault(Drop(), packets=tail)) == "only data tail 1, rule noise"
    bad = rule_texts.text(fault(Gemodel(1, 2, 3, 4), packets=tail)).split("\t")[1]
    assert bad == "gemodel bad only data tail 1, rule noise"


def test_a_file_grows_by_what_is_new(tmp_path):
    assert rule_texts.free_id(tmp_path) == 0
    first = [named(n, n) for n in range(100)] + [fault(Down(), 100)]
    rule_texts.add(reversed(first), tmp_path)
    assert rule_texts.free_id(tmp_path) == 101
    rule_texts.add([*first[50:], fault(Corrupt(CERTAIN), 103)], tmp_path)
    rule_texts.add([], tmp_path)
    lines = (tmp_path / rule_texts.FILE).read_text().splitlines()
    assert lines == [
        "0 99\tnamed, rule noise",
        "100 100\tdown, rule noise",
        "103 103\t100%, rule noise",
    ]
    assert rule_texts.free_id(tmp_path) == 104


def test_no_id_names_two_rules(tmp_path):
    kept, gone = fault(Down(), 0), fault(RandomLoss(1), 1)
    rule_texts.add([kept, gone], tmp_path)
    again = [kept, fault(RandomLoss(2), 1), fault(RandomLoss(3), 7)]
    ids = [each.rule_id for each in rule_texts.renumbered(again, [kept, gone], tmp_path)]
    assert ids == [0, 2, 3]


def test_ids_that_are_free_stay(tmp_path):
    faults = [fault(Down(), 5), fault(RandomLoss(1), 3)]
    assert rule_texts.renumbered(faults, [], tmp_path) == faults


def test_a_full_file_system_leaves_no_torn_line(tmp_path):
    syscalls.mount("small", str(tmp_path), "tmpfs", 0, "size=8k")
    try:
        rule_texts.add([fault(Down(), 0)], tmp_path)
        many = [fault(RandomLoss(n << 40), n) for n in range(1, 1000)]
        with pytest.raises(OSError, match="No space left") as raised:
            rule_texts.add(many, tmp_path)
        assert raised.value.errno == errno.ENOSPC
        assert (tmp_path / rule_texts.FILE).read_text() == "0 0\tdown, rule noise\n"
    finally:
        syscalls.umount(str(tmp_path))
