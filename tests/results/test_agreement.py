# SPDX-License-Identifier: GPL-2.0-or-later
"""Stories of drawn runs beside their captures and `lab verify`: the same losses.

A capture of all links is a witness of its own: its packets were seen as they entered the links, and
`lab verify` reads nothing else.
"""

import collections
import ipaddress
import random
import shutil

import numpy as np
import pytest

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.suites import Format
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.story import Explained
from softroce_lab.telemetry.packets import Has, Kind
from tests.results.made import Silent

TRANSPORTS = ("csa_ud", "ud_rto", "irn", "srnic", "rc", "{name: sdr_sr, framing: ud}",
    "{name: sdr_sr_nack, framing: ud}",
)  # fmt: skip
WORKLOADS = (
    "{kind: ring-all-reduce, bytes: 128KiB, message: 16KiB, hosts: [h1, h3, h5, h7]}",
    "{kind: permutation, bytes: 64KiB, message: 32KiB}",
    "{kind: incast, bytes: 32KiB, hosts: [h1, h2, h3, h5, h8]}",
    "{kind: all-to-all, bytes: 32KiB, hosts: [h1, h4, h6]}",
)
LOSSES = ("random 0.5%", "random 2%", "random 5%", "gemodel 1% 30%", "burst 1% 3")
DATA, PARITY = 0, 4  # enum lab_kind


def drawn(number):
    """Changes of the ready experiment."""
    dice = random.Random(number)
    fault = f"{{name: loss, links: '{dice.choice(['leaf*<->spine*', 'h*<->leaf*'])}', "
    fault += f"loss: {{{dice.choice(LOSSES).replace(' ', ': ', 1)}}}}}"
    return [
        f"workload={dice.choice(WORKLOADS)}",
        f"transports=[{TRANSPORTS[number % len(TRANSPORTS)]}]",
        f"faults=[{fault}]",
        f"seeds=[{dice.randrange(1 << 20)}]",
        "payload=none",
    ]


def made(number, folder):
    changes = [spec.parse_override(each) for each in drawn(number)]
    experiment = spec.load("ring-all-reduce", changes)
    wanted = Wanted(("*",), 0)
    outcome = experiment_run.run(experiment, Silent(), under=folder, capture=wanted)
    return outcome.directory


FIELDS = ("lab_operation", "lab_step", "lab_message", "lab_index", "lab_attempt")


def captured(evidence, hosts):
    """Of striped messages: transmissions as they left, and those that a rule dropped.

    By source, destination, operation, step, message, index and attempt.
    """
    capture = evidence.capture
    rows = capture.packets
    rows = rows[(rows["kind"] == Kind.ROCE) & ((rows["has"] & Has.LAB) != 0)]
    rows = rows[np.isin(rows["lab_kind"], (DATA, PARITY))]
    begins = [interface.name.partition("->")[0] for interface in capture.interfaces]
    sent, dropped = collections.Counter(), collections.Counter()
    for row in rows:
        ends = (host_of(hosts, row[end]) for end in ("source", "destination"))
        name = (*ends, *(int(row[field]) for field in FIELDS))
        sent[name] += begins[row["interface"]] == name[0]
        if row["comment"] >= 0 and capture.comments[row["comment"]].startswith("dropped"):
            dropped[name] += 1
    return +sent, dropped


def host_of(hosts, gid):
    return hosts[str(ipaddress.IPv4Address(bytes(gid)[-4:]))]


def compare(directory):
    recorded = Recorded(directory)
    (run,) = recorded.runs
    known = Explained.of(recorded, run)
    (path,) = suites.captures_of(directory)
    evidence = suites.evidence_of(path, Options())
    verdicts = list(suites.check(evidence, suites.chosen([]), Format.AUTO))
    failed = [each.rule for each in verdicts if each.outcome == "fail"]
    assert failed == [], directory
    if run["protocol"] == "rc":
        compare_rc(evidence, known)
        return len(known.messages), len(known.lost)
    sent, dropped = captured(evidence, known.messages.hosts)
    again, lost = collections.Counter(), collections.Counter()
    for name, count in sent.items():
        again[name[:5]] += count * (name[6] > 0)
    for row in range(len(known.messages)):
        tale = known.story(row)
        of = known.messages.columns
        name = (tale.source, tale.destination)
        name += tuple(int(of[part][row]) for part in ("operation", "step", "message"))
        assert tale.sent_again == again[name] == of["retransmitted"][row], tale.name
        for each in tale.incidents:
            if each.what is What.DROP:
                lost[(*name, each.first, each.attempt)] += 1
    assert lost == dropped
    return len(known.messages), len(known.lost)


def compare_rc(evidence, known):
    """Packets of rc name no message: their PSNs do, by the order of posts."""
    capture = evidence.capture
    lost, dropped = collections.Counter(), collections.Counter()
    for row in capture.packets:
        if row["comment"] >= 0 and capture.comments[row["comment"]].startswith("dropped"):
            destination = str(ipaddress.IPv4Address(bytes(row["destination"])[-4:]))
            where = known.messages.of_psn(destination, int(row["destination_qp"]), int(row["psn"]))
            dropped[where] += where[0] >= 0
    for row in range(len(known.messages)):
        for each in known.story(row).incidents:
            if each.what is What.DROP:
                lost[row, each.first] += 1
    assert lost == +dropped


@pytest.mark.full("explain")
def test_stories_and_captures_agree(full, tmp_path):
    """Draws runs of all transports, and compares stories with captures and lab verify."""
    totals = np.zeros(2, int)
    runs = 1000 if full else 21
    for number in range(runs):
        folder = tmp_path / str(number)
        totals += compare(made(number, folder))
        shutil.rmtree(folder)
    assert totals[1] > runs
    print("runs", runs, "messages", totals[0], "losses", totals[1])
