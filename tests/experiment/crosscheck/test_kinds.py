# SPDX-License-Identifier: GPL-2.0-or-later
"""Every kind of workload on both clocks: the same messages, and every byte right.

Whether times agree depends on the machine, so only runs that were faithful are held to it.
"""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.crosscheck import comparison
from softroce_lab.experiment.reporter import Silent

NAMES = ["transport", "seed", "source", "destination", "operation", "step", "message", "bytes"]
FABRIC = """\
name: kinds
topology: {{generator: {{kind: star, hosts: {hosts}, access: {{rate: 50Mbit, delay: 5ms}}}}}}
transports: [{transports}]
payload: verify
faults: [{{name: loss, links: "*->h1", loss: random 1%}}]
seeds: {seeds}
deadline: 30s
workload: {workload}
clock: {clock}
"""
PROGRAM = (
    r'"num_ranks 4\nrank 0 {\nl0: calc 20000000\nl1: send 9000b to 1\nl1 requires l0\n}\n'
    r"rank 1 {\nl0: recv 9000b from 0\nl1: send 5000b to 2\nl1 requires l0\n}\n"
    r"rank 2 {\nl0: recv 5000b from 1\nl1: send 0b to 3\nl1 requires l0\n}\n"
    r'rank 3 {\nrecv 0b from 2\n}"'
)
TRAINING = (
    "{kind: training, layers: 2, forward: 10ms, jitter: 10%, gradient: 16KiB, steps: 2, "
    "activation: 4KiB, parallel: {pipeline: 2}}"
)
MOE = (
    "{kind: moe, tokens: 16, hidden: 128, experts: 8, top_k: 2, skew: 0.5, token_time: 200us, "
    "repeat: 2}"
)
KINDS = {
    "point-to-point": "{kind: point-to-point, bytes: 16KiB, message: 4KiB}",
    "permutation": "{kind: permutation, bytes: 16KiB, message: 4KiB}",
    "incast": "{kind: incast, bytes: 8KiB, message: 4KiB}",
    "scatter": "{kind: scatter, bytes: 8KiB, message: 4KiB}",
    "all-to-all": "{kind: all-to-all, bytes: 4KiB}",
    "exchange": "{kind: collective, op: all-to-all, algorithm: bounded, peers: 2, bytes: 32KiB}",
    "collective": "{kind: collective, op: all-reduce, algorithm: halving-doubling, bytes: 32KiB}",
    "open-loop": "{kind: open-loop, load: 30%, sizes: {from: 1kB, to: 8kB}, duration: 100ms, "
    "incast: {degree: 2, share: 20%, bytes: 2kB}}",
    "moe": MOE,
    "training": TRAINING,
    "goal": f"{{kind: goal, program: {PROGRAM}}}",
    "jobs": "{kind: jobs, jobs: ["
    f"{{name: a, workload: {MOE[:-1]}, hosts: [h1, h2, h3, h4]}}}}, "
    f"{{name: b, workload: {TRAINING[:-1]}, hosts: [h5, h6, h7, h8]}}}}]}}",
}


@pytest.mark.full("crosscheck-kinds")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_every_kind_runs_on_both_clocks(kind, full, tmp_path):
    """The long form: 10 seeds over csa_ud, irn and rc; minutes.

    One seed, in the short form, is too few to tell a difference from chance.
    """
    virtual, real = (experiment(tmp_path, kind, clock, full) for clock in ("virtual", "real"))
    outcome = comparison.run(virtual, real, Silent(), under=tmp_path / "runs")
    document = outcome.document()
    for about in document["transports"]:
        print(kind, about["transport"], f"{about['faithful']} of {about['runs']} faithful")
    for each in document["comparisons"]:
        print(kind, *(each[key] for key in ("transport", "quantity", "virtual", "real", "verdict")))
    tables = [pq.read_table(f"{path}/messages.parquet") for path in document["clocks"].values()]
    assert tables[0].select(NAMES).to_pylist() == tables[1].select(NAMES).to_pylist()
    for table in tables:
        assert set(table.column("status").to_pylist()) == {0}
    for path in document["clocks"].values():
        manifest = json.loads(Path(path, "manifest.json").read_text())
        assert [run["verified"] for run in manifest["runs"]] == [True] * len(manifest["runs"])
    faithful = {
        each["transport"] for each in document["transports"] if each["faithful"] == each["runs"]
    }
    differing = [
        each for each in document["comparisons"]
        if each["transport"] in faithful and each["verdict"] == "differs"
    ]  # fmt: skip
    assert not full or differing == []


def experiment(folder, kind, clock, full):
    file = folder / f"{clock}.yaml"
    more = {"transports": "csa_ud, irn, rc" if full else "csa_ud", "seeds": 10 if full else 1}
    hosts = 8 if kind == "jobs" else 4
    file.write_text(FABRIC.format(workload=KINDS[kind], clock=clock, hosts=hosts, **more))
    return spec.load(file)
