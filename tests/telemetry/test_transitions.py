# SPDX-License-Identifier: GPL-2.0-or-later
"""Transitions of queue pairs with a backup: as a table, as figures, and for `lab inspect`."""

import json
import os

import numpy as np
import pytest

from softroce_lab.telemetry import published_transitions, transitions
from softroce_lab.telemetry.published_transitions import Publisher
from softroce_lab.transports.shift import Event

FALLS = Event(5, 17, 1, "sender", "Default", "Fallback", "retries exceeded", receives=3)
MOVED = Event(7, 17, 1, "sender", "Fallback", "Fallback", "the peer has moved", resubmitted=4)
BACK = Event(9, 17, 2, "sender", "WaitDrained", "Default", "both ends have moved")


def rows(*events):
    return [{"host": "h1", **each.row({"": "h2"})} for each in events]


def test_the_table_is_in_the_order_of_time_and_has_all_columns():
    table = transitions.columns(rows(BACK, FALLS, MOVED))
    assert list(table) == list(transitions.COLUMNS)
    assert table["time_ns"].tolist() == [5, 7, 9]
    assert table["why"].tolist() == ["retries exceeded", "the peer has moved",
                                     "both ends have moved"]  # fmt: skip
    assert table["peer"].dtype == object
    assert table["epoch"].dtype == np.uint32
    assert len(transitions.columns([])["host"]) == 0


def test_figures():
    assert transitions.figures(rows(FALLS, MOVED, BACK)) == {
        "failovers": 1, "failbacks": 1, "failed": 0, "consumed": 0, "resubmitted": 4,
    }  # fmt: skip
    failed = Event(9, 17, 1, "sender", "Fallback", "Failed", "the backup failed, too")
    assert transitions.figures(rows(FALLS, failed))["failed"] == 1


def test_a_line_says_what_and_why():
    falls, moved = rows(FALLS, MOVED)
    assert transitions.line(falls) == (
        "h1-h2 sender Default -> Fallback: retries exceeded (epoch 1, 3 receives)"
    )
    assert transitions.line(moved) == (
        "h1-h2 sender Fallback: the peer has moved (epoch 1, 4 resubmitted)"
    )


def published(folder, pid):
    return published_transitions.read(folder, "h1:eth1", {pid})


@pytest.mark.parametrize("name", ["h1:eth1", "h1:eth1@3"])  # the port itself, and a share of it
def test_what_is_published_is_read_again(tmp_path, name):
    publisher = Publisher(str(tmp_path / name))
    for each in (FALLS, MOVED):
        publisher.add(each.row())
    found = published(tmp_path, os.getpid())
    assert [each["why"] for each in found] == ["retries exceeded", "the peer has moved"]
    (state,) = published_transitions.states(found)
    assert (state["qp"], state["sender"], state["receiver"]) == (17, "Fallback", "Default")
    assert (state["why"], state["transitions"]) == ("retries exceeded", 1)
    assert published(tmp_path, os.getpid() + 1) == []  # of another process
    publisher.close()
    publisher.close()
    assert published(tmp_path, os.getpid()) == []
    assert not list(tmp_path.iterdir())


def test_the_oldest_are_forgotten_and_a_lab_that_is_gone_does_no_harm(tmp_path):
    publisher = Publisher(str(tmp_path / "h1:eth1"))
    for _ in range(300):
        publisher.add(FALLS.row())
    document = json.loads((tmp_path / "h1:eth1.shift").read_text())
    assert len(document["transitions"]) == 256
    Publisher(str(tmp_path / "gone" / "h1:eth1")).add(FALLS.row())


def test_states_outlive_their_transitions(tmp_path):
    publisher = Publisher(str(tmp_path / "h1:eth1"))
    publisher.add(FALLS.row())
    for _ in range(300):
        publisher.add(
            Event(7, 18, 1, "receiver", "Default", "Fallback", "the peer has moved").row()
        )
    found = published_transitions.states(published(tmp_path, os.getpid()))
    assert [(each["qp"], each["sender"], each["receiver"]) for each in found] == [
        (17, "Fallback", "Default"), (18, "Default", "Fallback"),
    ]  # fmt: skip


def test_what_is_torn_is_nothing(tmp_path):
    (tmp_path / "h1:eth1.shift").write_text('{"pid": 1, "tra')
    assert published(tmp_path, 1) == []
