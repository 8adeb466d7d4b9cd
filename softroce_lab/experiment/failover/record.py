# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover`: its run directory, with the files that those of experiments have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab.experiment import workload_record
from softroce_lab.experiment.failover.rig import Moment, Options, Outcome, plan_of
from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.telemetry.rundir import RUNS, RunDirectory, environment


def write(outcomes: Sequence[Outcome], options: Options, clock: str, under: Path = RUNS) -> Path:
    """Both jobs as runs, `rc` and `shift`; their transitions are shift.parquet. RunError."""
    plan, hosts = plan_of(options)
    runs = [_run(each, options, clock, tuple(host.name for host in hosts)) for each in outcomes]
    directory = RunDirectory.create(options.name, under=under)
    about = environment()
    directory.manifest(
        state="running",
        name=options.name,
        clock=clock,
        grade="virtual" if clock == "virtual" else "identity",
        seeds=[options.seed],
        topology=options.topology,
        topology_hash=plan.digest,
        faults=[],
        hosts=[host.name for host in plan.plain_hosts],
        notes=[],
        demo={"story": "failover", **dataclasses.asdict(options)},
        environment=about,
    )
    workload_record.write(directory, runs)
    with directory.growing_table("events") as add:
        for run in runs:
            for part in workload_record.events(run):
                add(part)
    directory.manifest(
        state="done",
        verdict="passed" if outcomes[-1].right else "failed",
        runs=[{**run.summary(), "run": run.name, **run.facts} for run in runs],
        environment=about,
    )
    return directory.path


def _run(outcome: Outcome, options: Options, clock: str, hosts: tuple[str, ...]) -> WorkloadRun:
    name = "shift" if outcome.shift else "rc"
    return WorkloadRun(
        transport=name,
        protocol=name,
        congestion_control="none",
        seed=options.seed,
        clock=clock,
        hosts=hosts,
        messages=np.zeros(0, MESSAGE),
        end_ns=outcome.end_ns,
        links=outcome.links,
        events=outcome.events,
        transitions=[_row(outcome, each) for each in outcome.moments],
        verified=None if outcome.errors else outcome.right,  # the job stopped: not compared
        problems=list(outcome.errors),
        fidelity=outcome.fidelity,
        figures={"steps": outcome.steps_done, "step_p50_ns": outcome.step_p50_ns},
        facts={
            "programs": {host: _program(outcome, n, host) for n, host in enumerate(hosts)},
            "failover": _figures(outcome),
        },
    )


def _program(outcome: Outcome, rank: int, host: str) -> dict[str, Any]:
    """A member of the ring, as the runs of programs have them."""
    errors = [each for each in outcome.errors if each.startswith(f"{host}: ")]
    sent = [link["sent"] for link in outcome.links if link["name"].startswith(f"{host}->")]
    return {
        "run": f"lab demo failover, rank {rank} of {len(outcome.checksums)}",
        "status": 1 if errors else 0,
        "killed": None,
        "tries": 1,
        "took_s": round(outcome.end_ns / 1e9, 3),
        "roce_packets": sum(sent),
        "matched": None,
        "output": errors[0] if errors else f"model {outcome.checksums[rank]}",
    }


def _row(outcome: Outcome, moment: Moment) -> dict[str, Any]:
    row = moment.event.row()
    at_ns = outcome.died_ns + moment.at_ns
    return row | {"time_ns": at_ns, "host": moment.host, "peer": moment.peer}


def _figures(outcome: Outcome) -> dict[str, Any]:
    """What `--json` has, but for what stands elsewhere in the directory."""
    left_out = ("events", "fidelity", "shift")
    return {key: value for key, value in outcome.document().items() if key not in left_out}
