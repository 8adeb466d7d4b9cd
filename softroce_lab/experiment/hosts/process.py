# SPDX-License-Identifier: GPL-2.0-or-later
"""A host of the lab: one process in the host's network namespace, controlled by lines of JSON.

Standard input brings commands, standard output carries one JSON document a line. The end of the
input is the end of the process. The engine runs in a native thread of its own, the recovery
policy in a second thread, the workload in the main thread.

    settings {...}     ->  {"ready": true}            its port is open
    workload {...}     ->  {"addresses": {...}}       its task; where each peer reaches it
    connect {...}      ->  {"connected": true}        its receives are posted
    begin {...}        ->  {"begun": true}, then {"progress": {...}} now and then; the last has
                           "done": true and "policy_error": why a user's policy failed, or null
    stop               ->  {"done": true}             of a task that will not end by itself
    finish {...}       ->  {"finished": {...}}        the engine is stopped: these figures are final

A failure is reported as {"error", "hint", "exit_code"} before the process ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import mmap
import os
import select
import sys
import threading
import time
from typing import Any

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import LabError, RunError
from softroce_lab.experiment.hosts.buffers import host_memory
from softroce_lab.experiment.hosts.driver import HostDriver
from softroce_lab.experiment.hosts.messenger import Address, Memory, Messenger
from softroce_lab.experiment.hosts.opening import host_config, open_over
from softroce_lab.experiment.hosts.report import (
    Decisions,
    HostProgress,
    HostRecords,
    HostReport,
    lines,
    percentiles,
    taken,
)
from softroce_lab.experiment.hosts.settings import (
    PACING_SLACK_NS,
    HostSettings,
    WorkloadSettings,
    read_command,
    unpacked,
)
from softroce_lab.experiment.hosts.tuning import HostTuning
from softroce_lab.experiment.transports import own_process
from softroce_lab.experiment.transports.policy_call import PolicyCall, PolicyError, Running
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric.net.owner import PortOwner
from softroce_lab.telemetry import counters_file, memory
from softroce_lab.telemetry.counters import added_up
from softroce_lab.telemetry.event_log import EventLog
from softroce_lab.telemetry.recoveries import RECOVERY, Recoveries

_POLL_MS = 200
_WAIT_S = _POLL_MS / 1e3
_REPORT_S = 0.1
_POLICY_PRIORITY = 1  # the lowest of the real-time ones


def _say(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _configure(settings: HostSettings) -> Any:
    messages = host_config(
        Transport.of(settings.transport),
        HostTuning.of(settings.tuning),
        settings.qkey,
        address=settings.address,
        receive_ring_packets=settings.receive_frames,
        pacing_slack_ns=PACING_SLACK_NS,
    )
    return settings.native(messages)


def _go_first() -> bool:
    """Give the calling thread real-time priority; False: the machine does not permit it.

    Decisions are rare and short, the engine threads are always busy: among equals, a
    decision would wait for the turns of all others.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_POLICY_PRIORITY))
    except OSError:
        return False
    return True


class PolicyThread:
    """Waits for the engine's events and steps the messenger: a user's policy, or SHIFT."""

    def __init__(self, host: Any, messenger: Messenger) -> None:
        self._host = host
        self._messenger = messenger
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self.realtime = False
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        self.realtime = _go_first()
        poller = select.poll()
        poller.register(self._host.event_fd, select.POLLIN)
        try:
            while not self._stopping.is_set():
                if poller.poll(_POLL_MS):
                    self._messenger.step()
        except BaseException as error:
            self.failure = error


class Rnic:
    def __init__(self, settings: HostSettings) -> None:
        self.name = settings.interface
        self._owner = PortOwner(settings.interface)
        try:
            self.host = _native.Host(_configure(settings))
        except (OSError, RuntimeError) as error:
            raise RunError(f"the port {settings.node}:{settings.interface}: {error}") from error
        self.host.record_recoveries()
        self.host.record_decisions()

    def stats(self) -> dict[str, Any]:
        return counters_file.parse(_native.statistics(self.host)).document()

    def figures(self) -> dict[str, Any]:
        return {
            "frames_sent": self.host.frames_sent,
            "frames_received": self.host.frames_received,
            "port": self.host.port_statistics(),
        }

    def close(self) -> None:
        self.host.stop()
        self._owner.close()


class HostProcess:
    """An RNIC at its port, and those at further ports that the host uses."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        if settings.running_fd >= 0:
            PolicyCall.running = Running(mmap.mmap(settings.running_fd, Running.BYTES))
            own_process.limit_memory()
        self.transport = Transport.of(settings.transport)
        self.tuning = HostTuning.of(settings.tuning)
        self.rnics = [Rnic(settings)]  # that of its own rail first
        self.host = self.rnics[0].host
        self.log: EventLog | None = None
        if settings.event_log is not None:
            name, run = settings.node, self.transport.label
            self.log = EventLog(self.host, settings.event_log, host=name, run=run)
        self.lateness_ns: list[int] = []  # of a user's policy, from events to hooks
        self._decisions: Decisions | None = None
        self.host.start()
        self.rnics += [Rnic(dataclasses.replace(settings, **each)) for each in settings.others]
        for other in self.rnics[1:]:
            other.host.start()

    def open(self, memory: Memory) -> list[Messenger]:
        settings = self.settings
        gateways = [settings.gateway_mac, *(each["gateway_mac"] for each in settings.others)]
        rails = [(rnic.host, mac) for rnic, mac in zip(self.rnics, gateways, strict=True)]
        return open_over(
            self.transport,
            rails,
            statistics=settings.statistics,
            memory=memory,
            timing=self.tuning.timing,
            rc=self.tuning.rc,
            qkey=settings.qkey,
            lateness=self.lateness_ns.append,
        )

    def close(self) -> None:
        for rnic in reversed(self.rnics):
            rnic.close()
        if self.log is not None:
            self.log.close()

    def recoveries(self) -> Recoveries:
        parts = [np.frombuffer(each.host.take_recoveries(), RECOVERY) for each in self.rnics]
        return np.concatenate(parts)

    def decisions(self) -> Decisions:
        if self._decisions is None:
            self._decisions = taken(each.host for each in self.rnics)
        return self._decisions

    def _decision_lateness(self) -> dict[str, int]:
        if self.transport.file is not None:
            return percentiles(np.array(self.lateness_ns))
        late = np.concatenate([each.host.decision_lateness_ns() for each in self.rnics])
        return percentiles(late)

    def check(self) -> None:
        """RunError if an engine stopped by itself."""
        for rnic in self.rnics:
            if rnic.host.failure:
                raise RunError(f"the engine of {self.settings.node} stopped: {rnic.host.failure}")

    def stop(self) -> None:
        """Stop the engines: their figures are final."""
        for rnic in self.rnics:
            rnic.host.stop()

    def figures(self) -> dict[str, Any]:
        log = self.log and self.log.close(lines(self.decisions(), self.settings.epoch_ns))
        return {
            **self.rnics[0].figures(),
            "other_rails": {other.name: other.figures() for other in self.rnics[1:]},
            "event_log": log and dataclasses.asdict(log),
            "timer_lateness_log2_ns": list(self.host.timer_lateness()),
            "turn_length_log2_ns": list(self.host.turn_length()),
            "decision_lateness_ns": self._decision_lateness(),
            "pauses": [pause for rnic in self.rnics for pause in rnic.host.pauses()],
        }


class HostTask:
    def __init__(self, process: HostProcess, settings: WorkloadSettings) -> None:
        workload, host, depth = unpacked(settings.workload), settings.host, settings.depth
        schedule = workload.schedule()
        self._process = process
        self._memory = host_memory(workload, schedule, host, settings.seed, depth)
        rails = process.open(self._memory.memory)
        self._driver = HostDriver(
            schedule, host, depth, rails, self._memory, path_mtu=process.tuning.path_mtu
        )
        self._threads = [
            PolicyThread(rnic.host, rail) for rnic, rail in zip(process.rnics, rails, strict=False)
        ]
        self._grown_bytes = 0  # while it worked, beyond the buffers that the task has

    def addresses(self) -> dict[int, list[dict[str, Any]]]:
        driver = self._driver
        return {peer: list(map(dataclasses.asdict, driver.address(peer))) for peer in driver.peers}

    def connect(self, peers: dict[str, list[dict[str, Any]]]) -> None:
        for peer, addresses in peers.items():
            self._driver.connect(int(peer), [Address(**each) for each in addresses])
        self._driver.prepare()

    def _pause(self) -> None:
        for thread in self._threads:
            thread.stop()
        for rail in self._driver.rails:
            rail.pause()

    def close(self) -> None:
        self._pause()
        self._memory.close()

    def finish(self, journal_fd: int, digest: str | None) -> HostReport:
        """Stop, and report the result of the task; its records go to the file.

        `digest`: SHA-256 of the bytes that the task must have come to, hex, if it is known.
        """
        self._pause()
        process, driver = self._process, self._driver
        process.stop()
        with open(journal_fd, "wb", closefd=False) as file:
            records = HostRecords(driver.ends, process.decisions(), process.recoveries())
            np.savez(file, **records._asdict())
        policy, policy_error = self._summary()
        return HostReport(
            figures=process.figures()
            | {
                "bytes": driver.done_bytes,
                "left": driver.left,
                "realtime_policy": all(thread.realtime for thread in self._threads),
            },
            counters=added_up(rnic.host.counters() for rnic in process.rnics),
            stats={
                f":{rnic.name}" if number else "": rnic.stats()
                for number, rnic in enumerate(process.rnics)
            },
            wrong=driver.wrong(digest),
            sha256=self._memory.sha256(),
            policy=policy,
            policy_error=policy_error,
            transitions=[row for rail in driver.rails for row in rail.transitions()],
            queue_pairs=driver.queue_pairs,
            recoveries_not_recorded=sum(
                rnic.host.recoveries_not_recorded for rnic in process.rnics
            ),
            grown_bytes=self._grown_bytes,
        )

    def _summary(self) -> tuple[dict[str, Any], str | None]:
        error = self._policy_error()
        if error is None:
            try:
                return self._driver.summary(), None
            except PolicyError as failed:
                error = failed
        return {}, error.what

    def work(self, start_ns: int) -> str | None:
        """Do the task from `start_ns` on, until it is over or a command arrives.

        Returns why a user's policy ended it, None if it did not.
        """
        host = self._process.host
        while (left_ns := start_ns - host.now_ns) > 0:
            time.sleep(left_ns / 1e9)
        memory.forget_peak()
        before_bytes = memory.resident_bytes()
        try:
            self._driver.start(start_ns, host.now_ns)
            return self._work_on()
        finally:
            self._grown_bytes = memory.peak_bytes() - before_bytes

    def _work_on(self) -> str | None:
        driver, host = self._driver, self._process.host
        _say(begun=True)
        reported = time.monotonic()
        while not driver.finished and not self._stop_requested():
            if (error := self._policy_error()) is not None:
                return error.what
            self._check()
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                _say(progress=self.progress())
            driver.serve()
            if host.now_ns >= driver.due_ns:
                driver.wake(host.now_ns)
        return None

    def progress(self) -> dict[str, Any]:
        driver = self._driver
        now = HostProgress(
            driver.done_bytes,
            driver.done_messages,
            driver.failed,
            driver.quiet,
            driver.waits_for_time,
        )
        return dataclasses.asdict(now)

    def _policy_error(self) -> PolicyError | None:
        """The failure of a user's policy: raised by its thread, or of a call that still blocks."""
        failure = self._failure()
        return failure if isinstance(failure, PolicyError) else PolicyCall.overdue

    def _stop_requested(self) -> bool:
        """Wait until something is over or due, a while at most; whether a command came instead.

        EOFError if the commanding process has closed the pipe.
        """
        left_ns = self._driver.due_ns - self._process.host.now_ns
        wait_s = min(_WAIT_S, max(0, left_ns) / 1e9)
        fds = [rail.fd for rail in self._driver.rails]
        ready, _, _ = select.select([*fds, 0], [], [], wait_s)
        if 0 not in ready:
            return False
        if not _read_line():
            raise EOFError
        return True

    def _check(self) -> None:
        self._process.check()
        if (failure := self._failure()) is not None:
            label = self._process.transport.label
            raise RunError(f"the policy {label} failed: {failure!r}") from failure

    def _failure(self) -> BaseException | None:
        return next((each.failure for each in self._threads if each.failure is not None), None)


def serve() -> None:
    process: HostProcess | None = None
    task: HostTask | None = None
    with contextlib.ExitStack() as stack:
        while line := _read_line():
            command, arguments = read_command(line)
            match command:
                case "settings":
                    process = HostProcess(HostSettings(**arguments))
                    stack.callback(process.close)
                    _say(ready=PolicyCall.table())
                case "workload" if process is not None:
                    task = HostTask(process, WorkloadSettings(**arguments))
                    stack.callback(task.close)
                    _say(addresses=task.addresses())
                case "connect" if task is not None:
                    task.connect(arguments)
                    _say(connected=True)
                case "begin" if task is not None:
                    why = task.work(**arguments)
                    _say(done=True, policy_error=why, progress=task.progress())
                case "stop":
                    pass  # the task was over already
                case "finish" if task is not None:
                    _say(finished=dataclasses.asdict(task.finish(**arguments)))
                case _:
                    raise RunError(f"a host process does not understand {command!r}")


def _read_line() -> str:
    """One line of the standard input, unbuffered: the task polls the same descriptor."""
    line = bytearray()
    while byte := os.read(0, 1):
        line += byte
        if byte == b"\n":
            break
    return line.decode()


def main() -> None:
    gc.collect()  # what the modules are made of stays: a round of the collector delays decisions
    gc.freeze()
    try:
        serve()
    except EOFError:
        sys.exit(1)
    except LabError as error:
        _say(error=str(error).partition("\n")[0], hint=error.hint, exit_code=int(error.exit_code))
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
