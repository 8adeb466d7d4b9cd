# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of a run whose process a user's policy ended: a verdict, and no figures."""

from __future__ import annotations

from collections.abc import Callable

from softroce_lab.experiment.messages import table
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import WorkloadRun


def or_broken(
    experiment: Experiment, transport: Transport, seed: int, run: Callable[[], WorkloadRun]
) -> WorkloadRun:
    """What `run()` comes to; a verdict where a user's policy ends its process."""
    try:
        return run()
    except PolicyError as error:
        return _broken(experiment, transport, seed, error)


def _broken(
    experiment: Experiment, transport: Transport, seed: int, error: PolicyError
) -> WorkloadRun:
    """No message is known to have been delivered."""
    plan = experiment.plan(seed)
    return WorkloadRun(
        transport=transport.label,
        protocol=experiment.protocol(transport),
        congestion_control=transport.control(plan),
        seed=seed,
        clock=experiment.clock,
        hosts=tuple(node.name for node in plan.plain_hosts),
        messages=table(experiment.workload(seed).schedule()),
        end_ns=0,
        problems=[error.what],
        facts={"idle_rules": []},
    )
