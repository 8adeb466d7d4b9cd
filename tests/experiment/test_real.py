# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads on the real clock: sums to the bit under loss, and bad ends that are verdicts."""

import os
import secrets
import signal
import subprocess

import numpy as np
import pytest

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment import real, spec
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.ledger.process import recorded
from softroce_lab.transports import registry
from tests import patience
from tests.transports.coded import CODED
from tests.workloads.goal.texts import ranks

LEAVES = """
name: {name}
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2}}
transports: [csa_ud, rc]
workload: {workload}
faults: [{{name: loss, links: "{lossy}", loss: {loss}}}]
deadline: {deadline}
clock: real
"""
LONG = "{kind: ring-all-reduce, bytes: 16KiB, repeat: 100, every: 200ms}"
RING = "{kind: ring-all-reduce, bytes: 256KiB, message: 16KiB}"


def experiment(
    folder, *, name="t", workload=RING, lossy="leaf*<->spine*", loss="1%", deadline="10s"
):
    path = folder / "experiment.yaml"
    path.write_text(
        LEAVES.format(name=name, workload=workload, lossy=lossy, loss=loss, deadline=deadline)
    )
    return spec.load(path)


def up(wanted):
    return fabric.up(wanted.plan(1), ephemeral=True)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two leaves, two spines, four hosts; 1 % lost between leaves and spines, either way."""
    made = up(experiment(tmp_path_factory.mktemp("lab"), name=f"t{secrets.token_hex(3)}"))
    yield made
    made.down()


def run(wanted, lab, transport, progress=lambda messages: None, control=None):
    return real.run(wanted, patience.transport(transport, control), 1, progress, lab)


@pytest.mark.parametrize(
    ("transport", "control"),
    [*((name, None) for name in registry.transports()), ("irn", "swift"), ("csa_ud", "dcqcn")],
)
def test_a_ring_adds_up_to_the_bit(lab, tmp_path, transport, control):
    reported = []
    found = run(experiment(tmp_path), lab, transport, reported.append, control)
    usual = "grants" if transport == "csa_ud" else "bdp"
    assert found.congestion_control == (control or usual)
    assert found.verdict == "passed", found.reasons
    assert found.verified is True
    assert len(found.messages) == len(found.done) == 4 * 6 * 4  # hosts, steps, of 64 KiB a chunk
    times = found.messages
    assert (times["posted_ns"] >= 0).all()
    assert (times["posted_ns"] <= times["first_sent_ns"]).all()
    assert (times["first_sent_ns"] < times["completed_ns"]).all()
    assert (times["first_received_ns"] <= times["received_ns"]).all()
    assert (times["first_received_ns"] > 0).all()
    summary = found.summary()
    assert summary["injected_drops"] > 0
    of_messages = int(times["retransmitted"].sum())
    assert summary["retransmitted"] >= of_messages
    assert of_messages > 0 or transport in CODED  # whose parity may restore all that is lost
    assert (found.events["event"] == "drop").sum() == summary["injected_drops"]
    assert set(found.counters) == {"h1", "h2", "h3", "h4"}
    assert reported == sorted(reported)
    assert all(0 < messages <= len(times) for messages in reported)


@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
def test_a_goal_program_computes_and_sends(lab, tmp_path, transport):
    """h1 computes for 3 ms, then sends to h3, which passes on to h2 what it has received."""
    program = ranks(
        "c: calc 3000000\ns: send 100000b to 2 tag 1\ns requires c",
        "recv 100000b from 2 tag 2",
        "r: recv 100000b from 0 tag 1\ns: send 100000b to 1 tag 2\ns requires r",
    )
    tmp_path.joinpath("some.goal").write_text(program)
    wanted = experiment(tmp_path, workload="{kind: goal, file: some.goal}")
    found = run(wanted, lab, transport)
    assert (found.verdict, found.verified) == ("passed", True), found.reasons
    first, second = found.messages
    assert (first["source"], first["destination"], first["step"]) == (0, 2, 1)
    assert (second["source"], second["destination"], second["step"]) == (2, 1, 2)
    assert 3 * 10**6 <= first["posted_ns"] < first["received_ns"] <= second["posted_ns"]


TRAINING = (
    "{kind: training, layers: 2, forward: 2ms, gradient: 16KiB, bucket: 16KiB, steps: 2,"
    " activation: 4KiB, microbatches: 2, jitter: 10%, parallel: MIX}"
)


@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
@pytest.mark.parametrize(
    "mix", ["{}", "{tensor: 2}", "{pipeline: 2, tensor: 2}", "{pipeline: 2, expert: 2}"]
)
def test_a_training_arrives_whole(lab, tmp_path, transport, mix):
    wanted = experiment(tmp_path, workload=TRAINING.replace("MIX", mix))
    found = run(wanted, lab, transport)
    assert found.verdict == "passed", found.reasons
    assert found.verified is True
    summary = found.summary()
    computed_ns = wanted.workload(1).busiest_ns(0) + wanted.workload(1).busiest_ns(1)
    assert computed_ns < summary["step_p50_ns"] + summary["step_p99_ns"] <= found.end_ns
    assert 0 < summary["step_waiting"] < 1


def test_the_deadline_ends_a_run(lab, tmp_path):
    """And says what was not delivered."""
    found = run(experiment(tmp_path, workload=LONG, deadline="1.1s"), lab, "csa_ud")
    assert found.verdict == "failed"
    assert found.reasons[0] == "the deadline of 1.1 s came, 4 of 4 hosts were not done"
    assert "of 2400 messages: not delivered, the first " in found.reasons[1]
    assert found.verified is None
    assert 0 < len(found.done) < 2400
    begun_ns = found.done["operation"].astype(np.int64) * 200_000_000
    assert (found.done["posted_ns"] >= begun_ns).all()


def test_a_host_that_dies_ends_the_run(lab, tmp_path):
    """Its process, unasked: not a verdict, as nothing can be said of what it did."""
    victims = []

    def kill(_):
        if not victims:
            victims.append(process_of(lab, "h3"))
            os.kill(victims[0], signal.SIGKILL)

    with pytest.raises(RunError, match=r"^the host h3 was killed by SIGKILL$"):
        run(experiment(tmp_path, workload=LONG), lab, "csa_ud", kill)


def test_a_port_that_somebody_took_down_is_a_reason(lab, tmp_path):
    def set_port(state):
        with lab.enter("leaf1"):
            subprocess.run(["ip", "link", "set", "spine1", state], check=True)

    wanted = experiment(tmp_path, workload=LONG, deadline="1.1s")
    try:
        found = run(wanted, lab, "csa_ud", lambda _: set_port("down"))
    finally:
        set_port("up")
    assert found.verdict == "failed"
    up_again = f"lab exec --lab {lab.plan.name} leaf1 -- ip link set spine1 up"
    assert f"the port leaf1:spine1 is down: {up_again}" in found.reasons


def process_of(lab, name):
    """Process id of the host that is running now."""
    entries = ledger.read(lab.directory).of_kind("process")
    return recorded(next(e for e in entries if e.facts["role"] == f"host {name}")).pid


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """Three hosts send to h1, which receives nothing from h4: the experiment and its lab."""
    wanted = experiment(
        tmp_path_factory.mktemp("cut_off"),
        name=f"t{secrets.token_hex(3)}",
        workload="{kind: incast, bytes: 100kB, to: h1}",
        lossy="h4->leaf2",
        loss="100%",
        deadline="60s",
    )
    made = up(wanted)
    yield wanted, made
    made.down()


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "irn", "srnic"])
def test_what_cannot_arrive_is_a_verdict(cut_off, transport):
    """Soon, and what failed is said."""
    wanted, lab = cut_off
    found = run(wanted, lab, transport)
    assert found.verdict == "failed"
    assert not any("deadline" in reason or "moved" in reason for reason in found.reasons)
    by_source = {3: set(), 1: set(), 2: set()}
    for message in found.messages:
        by_source[int(message["source"])].add(int(message["status"]))
    assert by_source == {1: {0}, 2: {0}, 3: {int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)}}
    assert np.isin(found.done["source"], (1, 2)).all()


def test_a_failure_before_a_host_has_reported_is_known(cut_off):
    """Nobody waits 15 s for a receive whose sender is over."""
    wanted, lab = cut_off
    knobs = (("timeout", "1ms"), ("retry_count", 0))
    found = real.run(wanted, Transport("rc", "rc", set_knobs=knobs), 1, lambda _: None, lab)
    assert found.reasons[0] == "1 of 4 hosts wait for what failed elsewhere"
