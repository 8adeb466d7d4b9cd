# SPDX-License-Identifier: GPL-2.0-or-later
"""Which losses a round takes, and what a charge has of its message and step: by runs made up."""

import types

import numpy as np
import pytest

from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.results.blame import charges
from softroce_lab.results.blame.counterfactual import Outcome
from softroce_lab.results.blame.critical_path import NO_MESSAGE, Piece
from softroce_lab.telemetry.drops import DROP, EFFECT_DROP

ADDRESSES = (0x0A000001, 0x0A000002, 0x0A000003)


def outcome(completed_ns, lost=()):
    """A run of messages from host 0 to host 1; `lost`: time, source and destination of drops."""
    messages = np.zeros(len(completed_ns), MESSAGE)
    messages["destination"] = 1
    messages["completed_ns"] = completed_ns
    records = np.zeros(len(lost), DROP)
    records["effect"] = EFFECT_DROP
    for record, (time_ns, source, destination) in zip(records, lost, strict=True):
        record["time_ns"], record["src"] = time_ns, ADDRESSES[source]
        record["dst"] = ADDRESSES[destination]
    return Outcome(messages, records, np.arange(100, 100 + len(lost), dtype=np.uint64))


def subject(base, step_of):
    rows = np.arange(len(base.messages))
    return charges.Subject(None, base, None, rows, ADDRESSES, np.array(step_of))


LOST = [(5, 0, 1), (6, 0, 1), (7, 0, 1)]


@pytest.fixture
def charged():
    """Messages 0 and 1 are of one step, 2 and 3 of another; all times gain something else."""
    known = {
        (): outcome([10, 20, 30, 40], LOST),
        (0, 1): outcome([9, 13, 28, 37]),
        (0, 1, 2): outcome([9, 8, 20, 33]),
    }
    of_message = {0: 0, 1: 2, 2: 1}
    search = charges._Search(
        subject(known[()], [0, 0, 1, 1]), None, of_message, [0, 1, 2], [0, 2, 3], exhausted=True
    )
    runs = types.SimpleNamespace(result=lambda undone: known[tuple(undone)], made=3)
    search.runs = runs
    return charges._charged(search, outcome([9, 8, 20, 33]), 3, runs)


def test_a_charge_of_several_losses_is_of_the_message_of_the_first(charged):
    assert [(each.losses, each.message) for each in charged.charges] == [((0, 1), 0), ((2,), 1)]
    assert [each.message_ns for each in charged.charges] == [10 - 9, 13 - 8]


def test_a_step_gains_what_its_last_message_gains(charged):
    """And not what the run gains."""
    assert [each.step_ns for each in charged.charges] == [20 - 13, 13 - 9]
    assert [each.end_ns for each in charged.charges] == [40 - 37, 37 - 33]
    assert (charged.rest, charged.rest_ns, charged.cost_ns) == (0, 0, 7)


def test_a_round_takes_the_losses_between_the_ends_in_the_time_of_a_message(monkeypatch):
    """Whichever end sent them; not those of a piece that waits, nor of other hosts."""
    lost = [(9, 0, 1), (10, 0, 1), (15, 1, 0), (16, 0, 2), (20, 0, 1), (21, 0, 1), (35, 0, 1)]
    found = outcome([20, 40], lost)
    path = [Piece("message", 0, 0, 10, 20), Piece("waiting", 0, NO_MESSAGE, 20, 40)]
    monkeypatch.setattr(charges, "critical_path", lambda *_: path)
    assert charges._met(subject(found, [0, 1]), found) == {1: 0, 2: 0, 4: 0}
