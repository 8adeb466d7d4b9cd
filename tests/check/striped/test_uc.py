# SPDX-License-Identifier: GPL-2.0-or-later
"""Striped messages as UC WRITEs: `sdr_sr` and `csa_ud` over them keep their rules, and faults that
are planted in their captures are found."""

import dataclasses

import pytest

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.striped.losses import understood
from softroce_lab.check.striped.messages import NEVER
from softroce_lab.check.striped.suite import SUITE
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry import capture_file
from tests.check.plant import Frame, S, Tape, check, failed, shown

RULES = {rule.name for rule in SUITE.rules}
ALL = ("sdr_sr", "{name: csa_ud, framing: uc_immediate}")
TEXT = """\
name: writes
topology: {generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1,
                       access: {rate: 10Gbit, delay: 5us}, core: {rate: 10Gbit, delay: 5us}}}
lb: spray
transports: [TRANSPORT]
workload: {kind: point-to-point, bytes: 1MB, message: 250kB}
faults: [{name: loss, links: "leaf1->spine*", loss: random 1%}]
payload: verify
deadline: 1s
"""
PACKETS = 4 * 123


class Run:
    """A run directory, and its capture to plant faults in."""

    def __init__(self, folder, transport):
        experiment = spec.of(yaml_source.parse(TEXT.replace("TRANSPORT", transport)))
        wanted = Wanted(("*->*",), 0)
        self.folder = experiment_run.run(
            experiment, Silent(), under=folder, capture=wanted
        ).directory
        self.path = self.folder / "trace.pcapng"
        capture = capture_file.read(self.path)
        comments = [*capture.comments, None]
        self.tape = Tape(
            [
                Frame(
                    int(row["time_ns"]), capture.frame(int(row["number"])), int(row["interface"]),
                    comments[row["comment"]],
                )
                for row in capture.packets
            ],
            [each.name for each in capture.interfaces],
        )  # fmt: skip
        self.view = understood(suites.evidence_of(self.path, Options())).view

    def frames(self, which):
        """Numbers of all sightings of a transmission, in time."""
        begin = int(self.view.begins[which])
        rows = self.view.data[begin : begin + int(self.view.sightings[which])]
        return [self.view.frame(int(place)) for place in self.view.places[rows]]

    def retransmitted(self):
        """The first transmission that repairs a loss; and the one that was lost."""
        sent = self.view.transmissions
        for which in range(1, len(sent)):
            if sent[which]["attempt"] == 1 and sent[which - 1]["gone_at"] != NEVER:
                return which, which - 1
        raise AssertionError("nothing was lost")

    def verdicts(self):
        self.tape.write(self.path)
        return check(self.folder, of=suites.Format.LAB)


@pytest.fixture(scope="module", params=ALL, ids=["sdr_sr", "csa_ud"])
def made(request, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("runs"), request.param)


@pytest.fixture
def run(made):
    """With a tape of its own."""
    frames = [dataclasses.replace(frame) for frame in made.tape.frames]
    found = object.__new__(Run)
    found.__dict__ |= made.__dict__ | {"tape": Tape(frames, made.tape.interfaces)}
    return found


def test_they_keep_every_rule(run):
    verdicts = run.verdicts()
    assert not failed(verdicts)
    assert verdicts["once.whole"].checked == 4
    assert verdicts["once.copies"].checked >= PACKETS
    assert verdicts["once.verified"].outcome is Outcome.PASS
    lost = verdicts["sr.repaired"].checked
    assert 2 <= lost <= verdicts["sr.only-holes"].checked
    assert verdicts["uc.psn-continuity"].outcome is Outcome.PASS


def completes_with_a_hole(run):
    again, _ = run.retransmitted()
    run.tape.delete(run.frames(again)[-1])
    return {"once.whole"}, set()


def is_never_repaired(run):
    again, lost = run.retransmitted()
    sent = run.view.transmissions
    later = [
        each
        for each in range(again, len(sent))
        if run.view.packet_of[each] == run.view.packet_of[lost]
    ]
    run.tape.delete(*(number for each in later for number in run.frames(each)))
    return {"sr.repaired"}, set()


def is_retransmitted_in_vain(run):
    """A packet that arrived at once, of a message of which others were lost; much later."""
    again, _ = run.retransmitted()
    sent, message = run.view.transmissions, run.view.transmissions["message"][again]
    touched = {int(each["index"]) // 32 for each in sent[sent["message"] == message]
               if each["attempt"] > 0}  # fmt: skip
    which = next(
        number
        for number in range(len(sent))
        if sent["message"][number] == message and int(sent["index"][number]) // 32 not in touched
    )
    end = len(run.tape) + 1
    run.tape.copy(run.frames(which)[0], before=end, time_ns=run.tape.frames[-1].time_ns + S)
    run.tape.alter(end, psn=run.tape.fields(end)["psn"] + 1000)
    return {"sr.only-holes"}, {end}


def is_retransmitted_with_other_bytes(run):
    again, _ = run.retransmitted()
    first = run.frames(again)[0]
    payload = run.tape.fields(first)["payload"]
    for number in run.frames(again):
        run.tape.alter(number, payload=bytes([payload[0] ^ 1]) + payload[1:])
    return {"once.bytes"}, {first}


def arrives_twice(run):
    again, _ = run.retransmitted()
    there = run.frames(again)[-1]
    run.tape.copy(there, before=there + 1)
    return {"once.copies"}, {there, there + 1}


@pytest.mark.parametrize(
    "plant",
    [
        completes_with_a_hole,
        is_never_repaired,
        is_retransmitted_in_vain,
        is_retransmitted_with_other_bytes,
        arrives_twice,
    ],
)
def test_a_planted_fault_is_found(run, plant):
    rules, frames = plant(run)
    verdicts = run.verdicts()
    assert rules <= failed(verdicts)
    assert frames <= set.union(*(shown(verdicts[rule]) for rule in rules))


def test_without_what_cleared_them_nothing_is_said_of_them(run):
    """The receiver's words were not captured: the packets are UC's alone."""
    hosts = [name for name in run.tape.interfaces if name.startswith("h")]
    towards = {number for number, name in enumerate(run.tape.interfaces) if name == hosts[0]}
    kept = [frame for frame in run.tape.frames if frame.interface in towards]
    run.tape.frames = kept
    verdicts = run.verdicts()
    assert verdicts["once.whole"].outcome is Outcome.NOT_APPLICABLE
    assert not failed(verdicts) & {"once.ack-known", "sr.only-holes", "uc.psn-continuity"}
