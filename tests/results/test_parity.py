# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets that parity restored appear in every view of a run: figures, stories, blame, traces."""

import pytest

from softroce_lab.experiment import capturing, spec, virtual
from softroce_lab.inputs import yaml_source
from softroce_lab.results import ladder, perfetto, story
from softroce_lab.results.blame.investigation import RESTORING, Investigation
from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.story import Explained
from softroce_lab.telemetry import capture_file
from tests.results.made import ring

CSA_UD = "csa_ud+parity=2/1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    transports = (
        "transports=[{name: csa_ud, options: {parity: 2}}, {name: sdr_ec, options: {k: 8, m: 2}}]"
    )
    return Recorded(ring(tmp_path_factory.mktemp("parity"), transports))


def explained(recorded, name):
    run = recorded.run(name)
    return run, Explained.of(recorded, run)


def names(recorded):
    return [f"{run['transport']}/{run['seed']}" for run in recorded.runs]


def test_figures_count_what_is_recorded(recorded):
    for name in names(recorded):
        run, known = explained(recorded, name)
        restored = [each for each in known.incidents if each.what is What.RESTORED]
        assert run["restored"] == len(restored) > 0
        packets = sum(map(known.messages.packets, range(run["messages"])))
        assert run["packets_sent"] == packets + run["retransmitted"]
        assert run["parity_share"] == run["parity_packets"] / run["packets_sent"] > 0
        assert run["needless_retransmissions"] <= run["retransmitted"]
        assert {each.where for each in restored} <= {f"h{n}" for n in range(1, 5)}


def test_csa_ud_records_each_parity_and_why(recorded):
    run, known = explained(recorded, CSA_UD)
    sent = [each for each in known.incidents if each.what is What.PARITY]
    assert sum(each.packets for each in sent) == run["parity_packets"]
    assert {each.why for each in sent} <= {"idle", "gain"}
    last = {each.where: each.why for each in sent}  # a host has nothing else to send then
    assert set(last.values()) == {"idle"}
    for each in sent:
        assert each.last == known.messages.packets(each.message) - 1
        assert each.where == known.messages.columns["source"][each.message]


def test_the_repair_of_a_lost_packet_ends_when_it_is_restored(recorded):
    for name in names(recorded):
        run, known = explained(recorded, name)
        lost = {
            (each.message, each.first)
            for each in known.incidents
            if each.what is What.DROP and each.kind == "data" and not each.attempt
        }
        ends = {
            (each.message, each.first): each
            for each in known.incidents
            if each.what in (What.ARRIVED, What.RESTORED)
        }
        assert lost <= ends.keys()
        restored = [each for each in lost if ends[each].what is What.RESTORED]
        assert restored
        repairs = recorded.table("repairs", run)
        assert len(repairs["arrived_ns"]) == len(lost)
        times = {each.time_ns for key, each in ends.items() if key in lost}
        assert times == set(repairs["arrived_ns"].tolist())


def restored_last(known):
    """A story whose last lost packet was restored."""
    for row in known.of_message:
        tale = known.story(row)
        if any(part.title == story.RESTORED for part in tale.parts):
            return tale
    raise AssertionError("none")


def test_the_story_of_a_restored_packet(recorded):
    for name in names(recorded):
        _, known = explained(recorded, name)
        tale = restored_last(known)
        assert sum(part.length_ns for part in tale.parts) == tale.taken_ns
        text = "\n".join(known.words(tale))
        assert " restored from parity." in text
        assert f"restored from parity at {tale.destination}" in text
        assert tale.document()["restored"] > 0
        rungs = "\n".join(ladder.lines(tale))
        assert f"restored from parity at {tale.destination}" in rungs
        assert (" of parity " in rungs) == name.startswith("csa_ud")


def test_restoring_is_a_share_of_the_critical_path(recorded):
    found = [Investigation.of(recorded, recorded.run(f"csa_ud+parity=2/{seed}")) for seed in (1, 2)]
    assert any(of.shares()[RESTORING] > 0 for of in found)
    for of in found:
        assert sum(of.shares().values()) == sum(each.end_ns - each.begin_ns for each in of.path)


def test_perfetto_has_an_arrow_from_a_loss_to_its_restoration(recorded):
    _, known = explained(recorded, CSA_UD)
    events = list(perfetto.trace(known))
    named = [each for each in events if each.get("cat") == "parity"]
    assert any(each["name"].startswith("restored from parity: packet ") for each in named)
    sent = [each for each in known.incidents if each.what is What.PARITY]
    assert {
        f"parity of packets {of.first} to {of.last} of {known.messages.name(of.message)}"
        for of in sent
    } <= {each["name"] for each in named}
    ends = {each["ts"] for each in events if each["ph"] == "f"}
    assert ends & {each["ts"] for each in named}


def test_captures_say_what_was_restored(tmp_path):
    text = """
name: x
topology: {generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}
transports: [{name: csa_ud, options: {parity: 2}}]
workload: {kind: point-to-point, bytes: 64KiB, from: h1, to: h2}
faults: [{name: last, links: "h1->s1", drop: {message: 0, packet: 15, iter: 1}}]
"""
    experiment = spec.of(yaml_source.parse(text, "x.yaml"))
    path = tmp_path / "x.pcapng"
    wanted = capturing.Wanted((capturing.ENDS,), path=path)
    virtual.run(experiment, experiment.transports[0], 1, lambda _: None, wanted, with_acts=True)
    comments = capture_file.read(path).comments
    assert "restored: packet 15 of h1->h2:0/0/0, from parity" in "\n".join(comments)
