# SPDX-License-Identifier: GPL-2.0-or-later
"""What rules do, in words; tests/fabric/observe/test_capture.py has the monitor read them."""

import errno

import pytest

from softroce_lab.fabric import faults as lab_faults
from softroce_lab.fabric.net import syscalls
from softroce_lab.faults.text import comments
from softroce_lab.plan.effects import (
    CERTAIN,
    Corrupt,
    Down,
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
    assert "\t".join(comments(fault(effect))) == text


def test_a_file_grows_by_what_is_new(tmp_path):
    assert lab_faults.free_rule_id(tmp_path) == 0
    first = [named(n, n) for n in range(100)] + [fault(Down(), 100)]
    lab_faults.add_rule_texts(reversed(first), tmp_path)
    assert lab_faults.free_rule_id(tmp_path) == 101
    lab_faults.add_rule_texts([*first[50:], fault(Corrupt(CERTAIN), 103)], tmp_path)
    lab_faults.add_rule_texts([], tmp_path)
    lines = (tmp_path / lab_faults.RULE_TEXTS).read_text().splitlines()
    assert lines == [
        "0 99\tnamed, rule noise",
        "100 100\tdown, rule noise",
        "103 103\t100%, rule noise",
    ]
    assert lab_faults.free_rule_id(tmp_path) == 104


def test_a_full_file_system_leaves_no_torn_line(tmp_path):
    syscalls.mount("small", str(tmp_path), "tmpfs", 0, "size=8k")
    try:
        lab_faults.add_rule_texts([fault(Down(), 0)], tmp_path)
        many = [fault(RandomLoss(n << 40), n) for n in range(1, 1000)]
        with pytest.raises(OSError, match="No space left") as raised:
            lab_faults.add_rule_texts(many, tmp_path)
        assert raised.value.errno == errno.ENOSPC
        assert (tmp_path / lab_faults.RULE_TEXTS).read_text() == "0 0\tdown, rule noise\n"
    finally:
        syscalls.umount(str(tmp_path))


def test_no_id_names_two_rules(tmp_path):
    kept, gone = fault(Down(), 0), fault(RandomLoss(1), 1)
    lab_faults.add_rule_texts([kept, gone], tmp_path)
    again = [kept, fault(RandomLoss(2), 1), fault(RandomLoss(3), 7)]
    found = lab_faults.renumbered(again, [kept, gone], tmp_path)
    assert [each.rule_id for each in found] == [0, 2, 3]
