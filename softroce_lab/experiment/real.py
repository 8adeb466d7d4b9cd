# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of an experiment on the real clock: a process for each host of a lab."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import select
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from softroce_lab.experiment import recoveries, virtual, workload_record
from softroce_lab.experiment.hosts import processes as hosts
from softroce_lab.experiment.hosts.buffers import sha256_fact, verified
from softroce_lab.experiment.hosts.processes import HostHandle
from softroce_lab.experiment.hosts.report import HostProgress, acted
from softroce_lab.experiment.hosts.settings import (
    RECEIVE_FRAMES,
    WINDOW_PACKETS,
    HostOptions,
    WorkloadSettings,
    packed,
)
from softroce_lab.experiment.hosts.shift_messenger import transitions_of
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.experiment.messages import table
from softroce_lab.experiment.observation import Observation, Observed
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.run_end import RunEnd
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import WorkloadRun, added
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe import damage
from softroce_lab.workloads.work import Buffered, Workload, final_digests

_STALL_NS = 15 * 10**9  # without progress a run is over: every wait has a bound
SETTLE_S = 0.05  # for what hosts still have to send to each other when they are done
START_NS = 20_000_000  # from the start command to the start, so that all hosts have received it
_QKEY = 0x1EE80000  # the top bit stays clear: set, it would name a privileged key (IBA 10.2.5)
_FILLED_BYTES_PER_S = 20e6  # a tenth of what one CPU does
_QUIET_NS = 10**9  # longer than any timer of recovery: what failed leaves others waiting for ever


def run(
    experiment: Experiment,
    transport: Transport,
    seed: int,
    progress: Progress,
    lab: Lab,
    options: HostOptions = HostOptions(),  # noqa: B008 - frozen
) -> WorkloadRun:
    """One transport with one seed; `progress` receives the number of messages that have arrived.

    EnvironmentLackError without AF_XDP; RunError when a host's process fails. Hosts are gone
    afterwards. A run that ends badly is a verdict, also where a user's policy ends a process.
    """
    run = functools.partial(_run, experiment, transport, seed, progress, lab, options)
    return virtual.or_broken(experiment, transport, seed, run)


def _run(
    experiment: Experiment,
    transport: Transport,
    seed: int,
    progress: Progress,
    lab: Lab,
    options: HostOptions,
) -> WorkloadRun:
    workload, own = experiment.workload(seed), experiment.own_transports(seed)
    rails = experiment.rails_used(transport, seed)
    tuning_of = functools.cache(
        functools.partial(
            on_machine,
            plan=lab.plan,
            ip_version=options.ip_version,
            rails=rails,
            most_window_packets=_most_window_packets(workload),
        )
    )
    tuning = tuning_of(transport)
    observation = Observation(lab, rails)
    with contextlib.ExitStack() as stack:
        crew: dict[int, HostHandle] = {}  # a process for every host that takes part
        cpus = itertools.chain(options.cpus, itertools.repeat(-1))
        for index, cpu in zip(workload.ranks, cpus, strict=False):
            used = own.get(index, transport)
            host = HostHandle(
                lab,
                lab.plan.plain_hosts[index],
                used,
                tuning_of(used),
                observation.epoch_ns,
                _QKEY | seed & 0xFFFF,
                cpu,
                ip_version=options.ip_version,
                event_log=options.event_log,
                rails=rails,
            )
            crew[index] = stack.enter_context(host)
        hosts.start(crew.values())
        patience_s = _patience_s(workload)
        text, depth = packed(workload), experiment.depth
        tasks = {index: WorkloadSettings(index, text, seed, depth) for index in crew}
        hosts.prepare(crew, tasks, patience_s)
        lab.faults.restart(time.monotonic_ns())
        begun_ns = time.monotonic_ns() - observation.epoch_ns + START_NS
        hosts.begin(crew.values(), begun_ns)
        problems = _Watch(crew, experiment.deadline_ns, progress).until_over()
        problems += map(str, damage.of_lab(lab.plan.name, lab.ledger.history, lab.plan))
        end_ns = time.monotonic_ns() - observation.epoch_ns - begun_ns
        time.sleep(SETTLE_S)
        # Computed once: to make its own bytes of a collective, a host would need those of all.
        known = isinstance(workload, Buffered) and not problems
        right = final_digests(workload, seed) if known else {}
        finished = {
            index: host.finish(patience_s, right.get(index)) for index, host in crew.items()
        }
    names = tuple(node.name for node in lab.plan.plain_hosts)
    reports = {names[index]: report for index, (report, _) in finished.items()}
    records = {index: records for index, (_, records) in finished.items()}
    figures = {name: report.figures for name, report in reports.items()}
    shown = all(each.shows_messages for each in experiment.beside(transport))
    workload_ns = (begun_ns, begun_ns + end_ns)
    observed = observation.end(figures, striped=shown, workload_ns=workload_ns)
    recorded, queue_pairs = recoveries.recorded(
        lab.plan,
        rails,
        recoveries.of_hosts((each.recoveries for each in records.values()), begun_ns),
        observed.injections,
        [link.name for link in observed.links],
        {index: report.queue_pairs for index, (report, _) in finished.items()},
    )
    digests = {name: report.sha256 for name, report in reports.items()}
    right_bytes, wrong = verified((report.wrong for report in reports.values()), digests)
    policy_errors = [report.policy_error for report in reports.values() if report.policy_error]
    acts = {names[index]: each.decisions for index, each in records.items()}
    run = WorkloadRun(
        transport=transport.label,
        protocol=experiment.protocol(transport),
        congestion_control=tuning.congestion_control,
        seed=seed,
        clock="real",
        hosts=names,
        messages=table(workload.schedule(), {index: each.ends for index, each in records.items()}),
        end_ns=end_ns,
        links=[dataclasses.asdict(link) for link in observed.links],
        counters={name: report.counters for name, report in reports.items()},
        stats={
            name + of_rail: stats
            for name, report in reports.items()
            for of_rail, stats in report.stats.items()
        },
        events=events(observed, acts, begun_ns),
        recoveries=recorded,
        policies={name: report.policy for name, report in reports.items() if report.policy},
        transitions=transitions_of(
            lab.plan, {name: report.transitions for name, report in reports.items()}, begun_ns
        ),
        verified=right_bytes,
        problems=problems or policy_errors[:1] or wrong,
        fidelity=observed.fidelity.document(),
        facts=facts(observed, figures, lab)
        | tuning.facts()
        | {
            "options": dict(transport.engine.get("options", {})),
            "ip_version": options.ip_version,
            "workload_begun_ns": begun_ns,
            "queue_pairs": queue_pairs,
            "recoveries_not_recorded": sum(
                report.recoveries_not_recorded for report in reports.values()
            ),
            **sha256_fact(digests),
        },
        cost={"grown_bytes": max(report.grown_bytes for report in reports.values())},
    )
    return added(workload, run, *virtual.alone_by_job(experiment, transport, seed))


def _most_window_packets(workload: Workload) -> int:
    """To a peer; so many that all who send to one host fill half of its ring at most."""
    senders: dict[int, set[int]] = {}
    for message in workload.messages():
        senders.setdefault(message.destination, set()).add(message.source)
    most = max((len(each) for each in senders.values()), default=1)
    return min(WINDOW_PACKETS, RECEIVE_FRAMES // (2 * most))


def _patience_s(workload: Workload) -> float:
    """How long hosts may take to fill their buffers, or to find out what must be in them.

    All of them share the CPUs; in a ring, each adds up what all have.
    """
    held_bytes = sum(workload.buffer_bytes_of(host) for host in workload.ranks)
    return hosts.START_S + workload.hosts * held_bytes / _FILLED_BYTES_PER_S


class _Watch:
    def __init__(
        self, crew: Mapping[int, HostHandle], deadline_ns: int, progress: Progress
    ) -> None:
        self._waiting = {host: HostProgress() for host in crew.values()}
        self._end = RunEnd(
            len(crew),
            deadline_ns,
            begun_ns=time.monotonic_ns(),
            quiet_ns=_QUIET_NS,
            stall_ns=_STALL_NS,
        )
        self._progress = progress
        self._messages = dict.fromkeys(crew.values(), 0)  # that arrived
        self._policy_error: str | None = None

    def until_over(self) -> list[str]:
        """Returns why it was ended, in words; [] if it ended."""
        why = None
        while self._waiting and why is None:
            self._listen()
            ended = self._end.judge(time.monotonic_ns(), self._waiting.values())
            why = self._policy_error or (ended and ended.why)
        if why is None:
            return []
        for host in self._waiting:
            host.tell("stop", {})
        for host in self._waiting:
            host.expect("done")
        return [why]

    def _listen(self) -> None:
        ready, _, _ = select.select(list(self._waiting), [], [], 0.2)
        for host in self._waiting:
            host.check()
        for host in ready:
            for document in host.documents():
                if "progress" in document:
                    self._handle_progress(host, HostProgress(**document["progress"]))
                if "done" in document:
                    self._policy_error = self._policy_error or document["policy_error"]
                    self._waiting.pop(host, None)
                    self._end.progressed(time.monotonic_ns())

    def _handle_progress(self, host: HostHandle, now: HostProgress) -> None:
        before = self._waiting.get(host, now)
        self._waiting[host] = now
        if now.failed:
            self._end.failed()
        if now.done_bytes > before.done_bytes:
            self._messages[host] = now.messages
            self._end.progressed(time.monotonic_ns())
            self._progress(sum(self._messages.values()))


def events(observed: Observed, acts: Mapping[str, Any], begun_ns: int) -> dict[str, Any]:
    """What rules did to packets, and policies upon it: columns, in times since the beginning."""
    links = [link.name for link in observed.links]
    injected = workload_record.injected(observed.injections, links, observed.faults)
    injected["time_ns"] = injected["time_ns"] - observed.epoch_ns
    joined = workload_record.one_below_the_other(
        [injected, *(acted(*each) for each in acts.items())]
    )
    return joined | {"time_ns": joined["time_ns"].astype(np.int64) - begun_ns}


def facts(observed: Observed, figures: Mapping[str, dict[str, Any]], lab: Lab) -> dict[str, Any]:
    """For the manifest: what a run on the real clock has besides. `figures`: of each process."""
    return {
        "xdp_mode": lab.mode,
        "lacks": lab.lacks,
        "recorded": observed.recorded,
        "begun_monotonic_ns": observed.epoch_ns,
        "processes": {
            name: {key: value for key, value in of_host.items() if key != "pauses"}
            for name, of_host in figures.items()
        },
        "ports": [dataclasses.asdict(port) for port in observed.ports],
        "stage": dataclasses.asdict(observed.stage),
        "pauses": [dataclasses.asdict(pause) for pause in observed.pauses],
        "idle_rules": observed.idle_rules,
        "live_rules": sorted({f.rule for f in observed.faults if f.rule.startswith("live")}),
    }
