# SPDX-License-Identifier: GPL-2.0-or-later
"""The built-in sweeps that compare transports by gates, a few of their cells; beside models."""

import json
import math
import os

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment import spec as experiment_spec
from softroce_lab.experiment import virtual
from softroce_lab.experiment.sweep import spec
from softroce_lab.plan import base_rtt
from softroce_lab.transports.model import sdr, selective_repeat
from tests.transports.model import partial_repeat

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def swept(tmp_path, name, *only):
    """What `lab run` says of some cells."""
    options = [option for each in only for option in ("--only", each)]
    done = CliRunner().invoke(app, ["run", name, "-o", str(tmp_path), "-q", "--json", *options])
    found = json.loads(done.stdout)
    assert found["verdict"] == "passed"
    assert done.exit_code == (not all(each["passed"] for each in found["expect"]))
    return {each["text"]: each for each in found["expect"]}


@pytest.mark.parametrize("name", ["recovery", "recovery-k4"])
def test_every_rival_has_a_gate(name):
    sweep = spec.load(name)
    labels = {each.label for each in sweep.combinations[0].experiment.transports}
    rivals = {gate.over.transport for gate in sweep.gates if gate.over} - {"csa_ud"}
    assert rivals == labels - {"csa_ud", "oracle"}


def test_recovery_is_judged(tmp_path):
    found = swept(tmp_path, "recovery-k4", "workload=ring-64KiB", "loss=tail", "seed=1")
    assert len(found) == 17
    beside = [each for text, each in found.items() if " / " in text and "csa_ud.p" not in text]
    assert all(each["passed"] for each in beside if ".fct_p99 / " in each["text"])
    excess = found["median csa_ud.excess_p99 <= 1.25"]
    assert "judges no run" in excess["detail"]  # the cell without loss did not run


def test_sdr_auto_chooses_well(tmp_path):
    only = ["distance=75km", "message=128KiB", "message=8MiB", "loss=1%", "seed=1"]
    (gate,) = swept(tmp_path, "sdr-crossover", *only).values()
    assert gate["passed"], gate["detail"]


@needs_root
@pytest.mark.parametrize("name", ["tails", "policy"])
def test_on_the_real_clock(tmp_path, name):
    """Limits are judged, not held: one seed of a busy machine decides nothing."""
    (gate,) = swept(tmp_path, name, "seed=1").values()
    assert "median of 1 seed" in gate["detail"] or gate["passed"]


@pytest.mark.parametrize(
    ("km", "message", "loss"),
    [
        (75, "128KiB", "1%"),
        (75, "8MiB", "0.001%"),
        (3750, "8MiB", "1%"),
    ],
)
def test_sdr_takes_the_time_of_the_model(km, message, loss):
    """Until the sender could know: half a round trip after the last byte arrived."""
    labels = (f"{km}km", message, loss)
    case = spec.load("sdr-crossover").by_labels[labels]
    data, frame = 4096 - 40, 4096 + 66
    size = case.raw.workload.message
    scenario = sdr.Scenario(
        message_bytes=size, loss=float(loss[:-1]) / 100, rtt_ns=sdr.rtt_of_ns(km),
        bandwidth_bps=400e9 * data / frame, chunk_bytes=min(16 * data, size), kept_packets=16,
    )  # fmt: skip
    for transport in case.transports:
        if transport.label == "auto":
            continue
        if transport.label in ("mds", "xor"):
            model = partial_repeat.completion(scenario, transport.label)
        else:
            waits = 1 + (scenario.alpha if transport.label == "sr_rto" else 0)
            model = selective_repeat.completion(
                scenario.chunks, sdr.packet_loss(scenario.loss, 16), scenario.inject_ns,
                scenario.rtt_ns * waits, scenario.rtt_ns,
                packets=-(-size // data) / scenario.chunks,
            )  # fmt: skip
        messages = virtual.run(case, transport, 1, lambda _: None).messages
        took = messages["received_ns"] - messages["posted_ns"] + scenario.rtt_ns / 2
        error = 3 * model.deviation_ns / math.sqrt(len(took))
        assert abs(took.mean() - model.mean_ns) <= max(0.05 * model.mean_ns, error), transport.label


# ---------------------------------------------------------------- spines

ROUND_TRIPS, BACK_ROUND_TRIPS = 5, 100
SHARES = {"dead-of-two": 1, "dead-of-four": 1, "grey-1%": 0.01, "grey-10%": 0.1}


def spine(cell, seed=1, transport="csa_ud", faults=None):
    """A run of a cell of `spines`, and the fabric without traffic."""
    recipe = next(
        each.recipe for each in spec.load("spines").combinations if each.labels == (cell,)
    )
    changes = [("transports", [transport]), *([] if faults is None else [("faults", faults)])]
    case = experiment_spec.of(
        experiment_spec.with_overrides(recipe.source, [*recipe.overrides, *changes])
    )
    run = virtual.run(case, case.transports[0], seed, lambda _: None)
    assert run.verdict == "passed"
    return run, base_rtt.of(case.plan(seed), run.facts["path_mtu"])


@pytest.mark.parametrize("cell", SHARES)
def test_packets_leave_a_bad_spine(cell):
    """Those after five round trips; packets there are its losses over what it loses."""
    run, empty = spine(cell)
    events = pa.table(run.events)
    lost_ns = np.asarray(events["time_ns"])[np.asarray(events["link"]) == "leaf1->spine1"]
    after_ns = ROUND_TRIPS * empty.rtt_ns
    ups = [link for link in run.links if link["name"].startswith("leaf1->spine")]
    entered = sum(link["sent"] + link["injected_drops"] for link in ups)
    before = -(-after_ns * empty.rate_bps // (8 * run.facts["path_mtu"] * 10**9))
    share = SHARES[cell]
    most = 0.06 if share == 0.01 else 0.05  # 17 losses are the estimate there
    assert (lost_ns >= after_ns).sum() / share <= most * (entered - before)


@pytest.mark.parametrize(
    ("seed", "transport", "is_used"),
    [
        (2, "csa_ud", True),  # it leaves the dead port before that falls silent
        (5, "csa_ud", True),
        (2, {"name": "csa_ud", "options": {"port_trials": False}}, False),
    ],
)
def test_a_spine_that_carries_again_is_used_again(seed, transport, is_used):
    dead, empty = spine("dead-of-two", seed, transport)
    begin_ns = dead.makespan_ns // 2
    end_ns = begin_ns + BACK_ROUND_TRIPS * empty.rtt_ns
    bad = {"links": "leaf*->spine1", "loss": "blackout"}
    faults = [{"name": "bad", "for": f"{begin_ns}ns", **bad},
              {"name": "again", "at": f"{end_ns}ns", **bad}]  # fmt: skip
    back, _ = spine("dead-of-two", seed, transport, faults)
    (sent,) = [link["sent"] for link in back.links if link["name"] == "leaf1->spine1"]
    assert (sent > 0) is is_used
