# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments on the virtual clock, from the file to the run directory."""

import dataclasses
import gc
import json
import os
import signal

import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec, workload_table
from softroce_lab.experiment.forecast import assumed_links
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry.rundir import RunDirectory
from softroce_lab.transports.defaults import Timing

SMALL = """\
name: small
topology:
  generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 2us, limit: 256KiB}}
transports: [csa_ud, rc]
workload: {kind: ring-all-reduce, bytes: 64KiB, message: 8KiB, repeat: 2, skew: 5us}
faults: [{name: loss, links: "*->s1", loss: random 2%}]
payload: verify
deadline: 1s
"""
TIMES = ("posted", "first_sent", "first_received", "received", "completed")


class Recording:
    def __init__(self):
        self.received = []

    def say(self, text):
        self.received.append(text)

    def run(self, name, messages):
        self.received.append((name, messages))
        return self.received.append


def of(text=SMALL, *changes):
    loaded = spec.of(yaml_source.parse(text, "small.yaml"))
    if not changes:
        return loaded
    overrides = [spec.parse_override(change) for change in changes]
    return spec.of(spec.with_overrides(loaded.source, overrides))


def outcome(tmp_path, *changes, text=SMALL):
    return experiment_run.run(of(text, *changes), Recording(), under=tmp_path)


def test_every_run_is_written_down(tmp_path):
    found = outcome(tmp_path, "seeds=2")
    assert found.passed
    manifest = json.loads((found.directory / "manifest.json").read_text())
    assert (manifest["state"], manifest["verdict"]) == ("done", "passed")
    assert (manifest["clock"], manifest["grade"], manifest["seeds"]) == (
        "virtual",
        "virtual",
        [1, 2],
    )
    assert manifest["experiment"]["workload"]["repeat"] == 2
    runs = [(run["run"], run["verified"]) for run in manifest["runs"]]
    assert runs == [("csa_ud/1", True), ("rc/1", True), ("csa_ud/2", True), ("rc/2", True)]
    messages = pq.read_table(found.directory / "messages.parquet").to_pydict()
    assert len(messages["seed"]) == 4 * of().workload(1).message_count
    assert set(messages["status"]) == {0}
    times = (messages[f"{time}_ns"] for time in TIMES)
    for in_order in zip(*times, strict=True):
        known = [time for time in in_order if time >= 0]  # RC does not tell the first packet
        assert known == sorted(known)
        assert len(known) in (3, 5)
    links = json.loads((found.directory / "links.json").read_text())["runs"]
    events = pq.read_table(found.directory / "events.parquet").to_pydict()
    dropped = sum(link["injected_drops"] for each in links.values() for link in each)
    assert events["event"].count("drop") == dropped > 0
    assert set(events["rule"]) == {"loss", ""}  # the others are what policies did


def test_what_was_expected_is_looked_for(tmp_path, monkeypatch):
    from softroce_lab.workloads.collectives.collective import Collective

    right = Collective.expected

    def wrong(self, host, seed):
        buffer = right(self, host, seed)
        buffer[7] += 1
        return buffer

    monkeypatch.setattr(Collective, "expected", wrong)
    found = outcome(tmp_path, "transports=[csa_ud]")
    assert not found.passed
    assert "bytes are wrong" in found.runs[0].reasons[0]


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto", "rc"])
def test_a_dead_host_fails_its_pairs_and_no_others(tmp_path, transport):
    dead = "faults=[{name: dead, nodes: h2, loss: blackout}]"
    found = outcome(
        tmp_path,
        dead,
        f"transports=[{transport}]",
        "workload.kind=all-to-all",
        "deadline=30s",
        "workload.repeat=1",
        "workload.hosts=3",
    )
    run = found.runs[0]
    assert not found.passed
    first = run.messages[run.messages["operation"] == 0]
    touched = (first["source"] == 1) | (first["destination"] == 1)
    assert (first["status"][~touched] == 0).all()
    assert (first["status"][touched] != 0).all()
    assert any("IBV_WC_RETRY_EXC_ERR" in reason for reason in run.reasons)


def test_links_that_nothing_shapes_are_taken_for_something(tmp_path):
    """And that is noted. Where one link has a rate or a delay, all are as they are."""
    bare = of(SMALL, "topology={generator: {kind: star, hosts: 4}}")
    found = experiment_run.run(bare, Recording(), under=tmp_path)
    note = "no link has a rate or a delay: all are taken to have 10Gbit and 5us"
    assert found.document()["notes"][0] == note
    manifest = json.loads((found.directory / "manifest.json").read_text())
    assert manifest["notes"][0] == note
    assert {fault["rule"] for fault in manifest["faults"]} == {"loss", "assumed-links"}
    assert all(0 < run.goodput_bps < 40e9 for run in found.runs)
    on_machine = of(SMALL, "topology={generator: {kind: star, hosts: 4}}", "clock=real")
    assert not any(assumed_links.note(each.plan(1)) for each in (of(), on_machine))


def test_the_real_clock_needs_root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentLackError, match=r"rights of root\n  hint: .*--clock virtual"):
        outcome(tmp_path, "clock=real")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_down_is_no_run_that_goes_on(tmp_path, monkeypatch):
    def full(self, name, columns):
        raise RunError("cannot write messages.parquet: No space left on device")

    monkeypatch.setattr(RunDirectory, "table", full)
    with pytest.raises(RunError, match="No space left"):
        outcome(tmp_path, "transports=[rc]")
    manifest = json.loads((tmp_path / "latest" / "manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "No space left" in manifest["error"]


def test_what_is_done_is_kept_when_an_interrupt_comes(tmp_path):
    class Impatient(Recording):
        def run(self, name, messages):
            if len(self.received) == 1:
                raise KeyboardInterrupt
            self.received.append(name)
            return lambda _: None

    reporter = Impatient()
    with pytest.raises(KeyboardInterrupt):
        experiment_run.run(of(SMALL), reporter, under=tmp_path)
    [folder] = (each for each in tmp_path.iterdir() if not each.is_symlink())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["state"] == "interrupted"
    assert "verdict" not in manifest
    assert [run["transport"] for run in manifest["runs"]] == ["csa_ud"]
    table = pq.read_table(folder / "messages.parquet")
    assert set(table["transport"].to_pylist()) == {"csa_ud"}
    assert reporter.received[-1] == f"1 of 2 runs are done, and kept in {folder}"


def test_an_interrupt_before_anything_is_done_leaves_the_latest_run(tmp_path):
    class Hasty(Recording):
        def run(self, name, messages):
            raise KeyboardInterrupt

    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            experiment_run.run(of(SMALL), Hasty(), under=tmp_path)

    interrupted()
    assert not (tmp_path / "latest").is_symlink()
    done = outcome(tmp_path, "transports=[rc]").directory
    interrupted()
    assert (tmp_path / "latest").resolve() == done.resolve()


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "sdr_ec"])
def test_a_run_is_no_garbage_that_waits_for_the_collector(transport):
    """A campaign of seeds would hold hundreds of megabytes of fabrics that are over."""
    experiment = spec.with_transports(of(SMALL), [transport])
    experiment.workload(1)  # is kept
    gc.collect()
    gc.disable()
    try:
        VirtualRun(experiment, experiment.transports[0], 1, lambda _: None).go()
        assert gc.collect() == 0
    finally:
        gc.enable()


LONG = """\
name: long
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
transports: [rc]
workload: {kind: point-to-point, bytes: 2GiB, message: 2GiB}
"""


def test_an_interrupt_is_heard_while_no_host_has_anything_to_say():
    """One message of 172 ms: the native clock would go on to its completion, seconds away."""
    experiment = of(LONG)
    made = VirtualRun(experiment, experiment.transports[0], 1, lambda _: None)
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            made.go()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert 0 < made.fabric.now_ns < 150_000_000


@pytest.mark.parametrize(
    ("fault", "idle"),
    [
        ("{name: late, nodes: s1, down: true, at: 2s}", ["late"]),
        ("{name: rare, links: '*->s1', loss: random 1e-15%}", ["rare"]),
        ("{name: now, links: 'h1->s1', loss: random 50%}", []),
        ("{name: gone, links: 'h1<->s1', down: true}", []),
        ("{name: slow, links: 'h1<->s1', delay: 5us}", []),
        ("{name: slow-late, links: 'h1<->s1', delay: 5us, at: 2s}", ["slow-late"]),
    ],
)
def test_rules_that_did_nothing_are_told(tmp_path, fault, idle):
    changes = [f"faults=[{fault}]", "deadline=20ms"]
    text = SMALL.replace("delay: 2us, ", "") if "delay" in fault else SMALL
    found = outcome(tmp_path, *changes, text=text)
    manifest = json.loads((found.directory / "manifest.json").read_text())
    assert [run["idle_rules"] for run in manifest["runs"]] == [idle, idle]
    note = [f"did nothing: {', '.join(idle)}: no packet met it in its time"] if idle else []
    assert manifest["notes"] == found.document()["notes"] == note
    assert found.document()["idle_rules"] == idle


def test_the_timers_in_the_manifest_are_those_that_ran(tmp_path):
    """Also those that follow from the blackout, and RC's."""
    found = outcome(tmp_path, "blackout=70ms")
    for run, transport in zip(found.runs, found.experiment.transports, strict=True):
        made = VirtualRun(found.experiment, transport, 1, lambda _: None)
        reported = run.facts["timing"]
        assert run.facts["rc"] == dataclasses.asdict(made.tuning.rc)
        used = dataclasses.asdict(made.tuning.engine) | dataclasses.asdict(made.tuning.timing)
        assert reported == {name: value for name, value in used.items() if value is not None}
        rtt_ns = run.facts["base_rtt_ns"]
        assert (
            reported["keepalive_interval_ns"]
            == Timing.for_rtt(rtt_ns, blackout_ns=70_000_000).keepalive_interval_ns
        )
        assert reported["keepalive_interval_ns"] != Timing.for_rtt(rtt_ns).keepalive_interval_ns


def test_contexts_that_an_rnic_had_to_fetch_are_counted(tmp_path):
    """All to all of four hosts: three contexts a host, each used first, and no more by limits."""
    found = outcome(tmp_path, "rnic=lru-512", "transports=[rc]", "workload.kind=all-to-all")
    run = json.loads((found.directory / "manifest.json").read_text())["runs"][0]
    assert run["contexts_missed"] == found.runs[0].summary()["contexts_missed"] == 4 * 3
    assert {counters["contexts_missed"] for counters in run["counters"].values()} == {3}
    _, lines = workload_table.lines([found.runs[0].summary()])
    assert ("QP contexts missed", ["12"]) in lines
    ideal = outcome(tmp_path, "transports=[rc]").runs[0].summary()
    assert ideal["contexts_missed"] == 0
    assert "QP contexts missed" not in {line.title for line in workload_table.lines([ideal])[1]}
