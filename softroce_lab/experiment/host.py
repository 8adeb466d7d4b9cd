# SPDX-License-Identifier: GPL-2.0-or-later
"""A host of the lab: one process in the host's network namespace, told what to do line by line.

Standard input brings commands, standard output carries one JSON document a line. The end of the
input is the end of the process. The engine runs in a native thread of its own, the recovery
policy in a thread beside it, the workload in the main thread.

    settings {...}   ->  {"ready": {"data_qp", "recovery_qp"}}
    connect {...}    ->  {"connected": peer}
    transfer {...}   ->  {"posted": true}, {"progress": bytes} ..., {"done": {...}}
    finish {...}     ->  {"finished": {...}}    the engine is stopped: these figures are final

A failure is said as {"error", "hint", "exit_code"} before the process ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import select
import sys
import threading
import time
from typing import Any

from softroce_lab import _native
from softroce_lab.errors import LabError, RunError
from softroce_lab.experiment import streams
from softroce_lab.experiment.journal import Journal
from softroce_lab.experiment.settings import (
    HostSettings,
    PeerSettings,
    TransferSettings,
    read_command,
)
from softroce_lab.fabric.owner import PortOwner
from softroce_lab.recovery import registry
from softroce_lab.recovery.api import Policy
from softroce_lab.recovery.defaults import DEFAULT_TIMING
from softroce_lab.recovery.runner import PolicyRunner
from softroce_lab.workloads.transfer import Transfer

_POLL_MS = 200
_POLICY_PRIORITY = 1  # the lowest of the real-time ones


def _say(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _configure(settings: HostSettings) -> Any:
    config = _native.HostConfig()
    messages = config.messages
    messages.address = settings.address
    messages.path_mtu = settings.path_mtu
    messages.paths = settings.paths
    messages.window_packets = settings.window_packets
    messages.receive_ring_packets = settings.receive_frames
    messages.congestion_control = settings.congestion_control
    port = config.port
    port.interface = settings.interface
    port.ifindex = settings.ifindex
    port.xsks_map_path = settings.xsks_map
    port.receive_frames = settings.receive_frames
    port.generic = settings.xdp_mode == "generic"
    config.messages = messages
    config.port = port
    config.mac = settings.mac
    config.epoch_ns = settings.epoch_ns
    config.cpu = settings.cpu
    return config


def _go_first() -> bool:
    """Let the calling thread run as soon as it has something to do; False: the machine refuses.

    Decisions are rare and short, the engines beside them are busy all the time: among equals, a
    decision would wait for the turns of all others.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_POLICY_PRIORITY))
    except OSError:
        return False
    return True


class PolicyThread:
    """Waits for the engine's events and runs the recovery policy on them."""

    def __init__(self, host: Any, policy: Policy, journal: Journal) -> None:
        self._host = host
        self._runner = PolicyRunner(host, policy, journal.record, journal.decided)
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self.realtime = False
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; bounded by one poll."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        self.realtime = _go_first()
        poller = select.poll()
        poller.register(self._host.event_fd, select.POLLIN)
        try:
            while not self._stopping.is_set():
                if poller.poll(_POLL_MS):
                    self._runner.step()
        except BaseException as error:
            self.failure = error


class HostProcess:
    """An RNIC with its policy, and the one transfer it is told to do."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        policy_class = registry.find(settings.transport)
        self.owner = PortOwner(settings.interface)
        try:
            self.host = _native.Host(_configure(settings))
        except (OSError, RuntimeError) as error:
            raise RunError(f"the port {settings.node}:{settings.interface}: {error}") from error
        self.host.set_qkey(settings.qkey)
        self.journal = Journal()
        self.policy = policy_class(self.host, DEFAULT_TIMING)
        self.host.start()
        self.thread = PolicyThread(self.host, self.policy, self.journal)

    def close(self) -> None:
        """End both threads and close the port."""
        self.thread.stop()
        self.host.stop()
        self.owner.close()

    def connect(self, peer: PeerSettings) -> int:
        """The peer's index."""
        fields = dataclasses.asdict(peer)
        return int(self.host.connect(ip=fields.pop("address"), **fields))

    def transfer(self, peer: int, settings: TransferSettings) -> dict[str, Any]:
        """Do one side of a transfer; what it did, as figures."""
        work = Transfer(settings.total_bytes, settings.message_bytes)
        side = streams.Sender if settings.role == "send" else streams.Receiver
        with side(self.host, peer, work, settings) as stream:
            self._until_done(stream)
            return {"bytes": stream.done_bytes, "sha256": stream.digest()}

    def finish(self) -> dict[str, Any]:
        """Stop, and say what all layers counted and how late things were."""
        self.thread.stop()
        self.host.stop()
        return {
            "counters": self.host.counters(),
            "frames_sent": self.host.frames_sent,
            "frames_received": self.host.frames_received,
            "port": self.host.port_statistics(),
            "timer_lateness_log2_ns": list(self.host.timer_lateness()),
            "turn_length_log2_ns": list(self.host.turn_length()),
            "decision_lateness_ns": self.journal.lateness(),
            "realtime_policy": self.thread.realtime,
            "policy": self.policy.summary(),
        }

    def _until_done(self, stream: streams.Stream) -> None:
        poller = select.poll()
        poller.register(self.host.completion_fd, select.POLLIN)
        poller.register(0, select.POLLIN)
        reported = time.monotonic()
        stream.begin()
        _say(posted=True)
        while not stream.finished:
            self._check()
            for fd, _ in poller.poll(_POLL_MS):
                if fd == 0 and not os.read(0, 4096):
                    raise EOFError
                if fd == self.host.completion_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 8)
            for completion in self.host.poll_completions():
                self.journal.complete(completion)
                stream.complete(completion)
            if time.monotonic() - reported > 0.1:
                reported = time.monotonic()
                _say(progress=stream.done_bytes)

    def _check(self) -> None:
        if self.host.failure:
            raise RunError(f"the engine of {self.settings.node} stopped: {self.host.failure}")
        if self.thread.failure is not None:
            raise RunError(
                f"the policy {self.settings.transport} failed: {self.thread.failure!r}"
            ) from self.thread.failure


def _serve() -> None:
    process: HostProcess | None = None
    peer = -1
    try:
        while line := _read_line():
            command, arguments = read_command(line)
            match command:
                case "settings":
                    process = HostProcess(HostSettings(**arguments))
                    qps = {"data_qp": process.host.data_qp, "recovery_qp": process.host.recovery_qp}
                    _say(ready=qps)
                case "connect" if process is not None:
                    peer = process.connect(PeerSettings(**arguments))
                    _say(connected=peer)
                case "transfer" if process is not None:
                    _say(done=process.transfer(peer, TransferSettings(**arguments)))
                case "finish" if process is not None:
                    figures = process.finish()
                    with open(arguments["journal_fd"], "wb", closefd=False) as file:
                        process.journal.save(file)
                    _say(finished=figures)
                case _:
                    raise RunError(f"a host process does not understand {command!r}")
    finally:
        if process is not None:
            process.close()


def _settle_memory() -> None:
    """Take the modules out of the garbage collector's rounds: one of them would delay decisions."""
    gc.collect()
    gc.freeze()


def _read_line() -> str:
    """One line of the standard input, unbuffered: the transfer polls the same descriptor."""
    line = bytearray()
    while byte := os.read(0, 1):
        line += byte
        if byte == b"\n":
            break
    return line.decode()


def main() -> None:
    """Entry point of the process."""
    _settle_memory()
    try:
        _serve()
    except EOFError:
        sys.exit(1)
    except LabError as error:
        _say(error=str(error).partition("\n")[0], hint=error.hint, exit_code=int(error.exit_code))
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
