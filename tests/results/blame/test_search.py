# SPDX-License-Identifier: GPL-2.0-or-later
"""How losses are searched: both directions, the largest charge first, and when it is whole."""

from types import SimpleNamespace

import numpy as np
import pytest

from softroce_lab.experiment.sweep.pool import InPlace
from softroce_lab.results.blame import charges, counterfactual, words
from softroce_lab.results.blame.investigation import Investigation
from softroce_lab.results.recorded import Recorded
from tests.results.made import run

BOTH = "faults=[{name: data, links: '*->h2', loss: 8%}, {name: control, links: '*->h1', loss: 8%}]"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """One message of 66 packets that lost data packets, and acknowledgements."""
    size = "workload={kind: point-to-point, bytes: 128KiB, from: h1, to: h2}"
    star = "topology={generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}"
    directory = run("point-to-point", tmp_path_factory.mktemp("both"), size, star, BOTH, "seeds=1",
                    transports=("irn",))  # fmt: skip
    recorded = Recorded(directory)
    return Investigation.of(recorded, recorded.run("irn/1"))


def blamed(known, runs):
    return charges.blame(known.subject, InPlace(), runs)


def test_losses_of_both_directions_are_undone(known):
    found = blamed(known, 64)
    charged = {loss for each in found.charges for loss in each.losses}
    senders = found.records["src"].astype(np.int64)
    assert set(senders[sorted(charged)].tolist()) == set(known.subject.addresses)
    assert (found.rest, charged) == (0, set(range(found.losses)))  # all came in its time


class Made:
    """Runs whose times are given: by how many losses are undone."""

    def __init__(self, times):
        self.times, self.left = times, 9

    def result(self, undone):
        return SimpleNamespace(end_ns=lambda rows: self.times[len(undone)])


@pytest.mark.parametrize(
    ("times", "cuts", "widest"),
    [
        ({0: 100, 4: 90, 8: 20, 12: 15}, [0, 4, 8, 12], (4, 8)),
        ({0: 100, 4: 90, 8: 170, 12: 15}, [0, 4, 8, 12], (8, 12)),
        ({0: 100, 4: 190, 8: 170, 12: 165}, [0, 4, 8, 12], (0, 4)),  # it came later without them
        ({0: 100, 1: 10, 5: 9, 8: 9}, [0, 1, 5, 8], (1, 5)),  # a single loss is not cut
        ({0: 100, 4: 60, 8: 20}, [0, 4, 8], (0, 4)),  # of two alike the first
        ({0: 100, 1: 10, 5: 10}, [0, 1, 5], None),  # what costs nothing is not cut
    ],
)
def test_the_part_with_the_largest_charge_is_cut(times, cuts, widest):
    subject = SimpleNamespace(rows=slice(None))
    search = charges._Search(subject, Made(times), {}, list(range(cuts[-1])), list(cuts), True)
    assert search.widest() == widest
    if widest is not None:
        times[sum(widest) // 2] = 0
        search.cut()
        assert search.cuts == sorted([*cuts, sum(widest) // 2])


@pytest.mark.parametrize("runs", [4, 8, 64])
def test_it_is_whole_when_nothing_is_left_to_cut(known, runs):
    found = blamed(known, runs)
    groups = [each for each in found.charges if len(each.losses) > 1 and each.end_ns]
    undone = [loss for each in found.charges for loss in each.losses]
    last = counterfactual.carry_out(known.subject.case, known.subject.base.without(undone))
    unseen = charges._met(known.subject, last).keys() - set(undone)
    assert found.whole == (not groups and not unseen) == (runs == 64)
    assert found.runs <= runs


def test_printed_numbers_are_those_that_undo_takes(known):
    found = blamed(known, 64)
    document = found.document()
    printed = list(words.rows(found, known))[:-1]
    assert sum(row[4].isdigit() for row in printed) > 2
    for row in printed:
        if not row[4].isdigit():
            continue
        charge = document["charges"][int(row[3]) - 1]
        assert charge["losses"] == [int(row[4])]
        assert row[0] == words.time(charge["end_ns"])
        before_ns = known.without([number - 1 for number in charge["undone"][:-1]])
        assert before_ns - known.without([n - 1 for n in charge["undone"]]) == charge["end_ns"]
        record = found.records[int(row[4]) - 1]
        assert row[6].startswith(f"at {words.time(int(record['time_ns']))} on ")
        if record["kind"] == 0:
            assert f" packet {record['index']}, " in row[5]


def test_shares_of_a_message_are_its_own_times(known, tmp_path):
    """Of one that lost nothing: waiting, sending, acknowledging, and nothing else."""
    recorded = Recorded(run("point-to-point", tmp_path, "seeds=1", "workload.bytes=64KiB",
                            transports=("irn",)))  # fmt: skip
    clean = Investigation.of(recorded, recorded.run("irn/1"))
    of = {name: int(column[0]) for name, column in clean.known.messages.columns.items()
          if name.endswith("_ns")}  # fmt: skip
    assert clean.shares() == {
        "sending": of["received_ns"] - of["first_sent_ns"],
        "recovering": 0,
        "restoring from parity": 0,
        "waiting": of["first_sent_ns"] - of["posted_ns"],
        "acknowledging": of["completed_ns"] - of["received_ns"],
        "computing": 0,
    }
    assert clean.shares()["acknowledging"] > 0
    lossy = known.shares()
    of = known.known.messages.columns
    assert lossy["acknowledging"] == of["completed_ns"][0] - of["received_ns"][0] > 0
    assert lossy["recovering"] > lossy["acknowledging"]
