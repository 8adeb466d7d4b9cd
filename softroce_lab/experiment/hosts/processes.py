# SPDX-License-Identifier: GPL-2.0-or-later
"""Host processes of an experiment: start, commands, responses, end."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from softroce_lab.errors import ExitCode, RunError, UserError
from softroce_lab.experiment.hosts.report import HostRecords, HostReport
from softroce_lab.experiment.hosts.settings import HostSettings, WorkloadSettings
from softroce_lab.experiment.hosts.tuning import HostTuning
from softroce_lab.experiment.transports.policy_call import Outside, Running
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.ledger.process import Process
from softroce_lab.fabric.observe import counters_files as statistics
from softroce_lab.plan import locate
from softroce_lab.plan.base_rtt import FIRST_RAILS, Rails
from softroce_lab.plan.plan import Node, Port

_ARGV = [sys.executable, "-m", "softroce_lab.experiment.hosts.process"]
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}  # numpy's idle workers would spin on the CPUs
START_S = 20.0  # a host process imports, opens its port and responds within this
_CHUNK_BYTES = 1 << 16
_TICK_S = 0.5


def gateway(lab: Lab, node: Node, rail: int = 0) -> Port:
    """The switch's port at the other end of one of a host's uplinks."""
    _, far = locate.peers(lab.plan)[node.ports[rail].ifindex]
    return far


def mac_number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def host_settings(
    lab: Lab, node: Node, rail: int = 0, ip_version: int = 4, **more: Any
) -> HostSettings:
    """Of an RNIC at a rail of a host. `more`: further settings."""
    return HostSettings(
        node=node.name,
        **_rail(lab, node, rail, ip_version),
        xsks_map=str(lab.bpffs / "xsks"),
        queues_map=str(lab.bpffs / "queues"),
        **more,
    )


def _rail(lab: Lab, node: Node, rail: int, ip_version: int) -> dict[str, Any]:
    """Fields of `RailSettings`."""
    port = node.ports[rail]
    address = port.address6 if ip_version == 6 else port.address
    if address is None:
        raise RunError(f"{port.node} is a switch, not a host")
    return {
        "interface": port.name,
        "ifindex": port.ifindex,
        "uplink": locate.uplink(lab.plan, port),
        "address": int(ipaddress.ip_address(address)),
        "mac": mac_number(port.mac),
        "gateway_mac": mac_number(gateway(lab, node, rail).mac),
        "statistics": statistics.path_for(lab.directory, port),
    }


def _end(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RunError("a host process was started without its pipes")
    return pipe


def _shared_words() -> int:
    """Memory in which a process shows which call of a user's policy runs."""
    fd = os.memfd_create("running")
    os.ftruncate(fd, Running.BYTES)
    return fd


class HostHandle:
    def __init__(
        self,
        lab: Lab,
        node: Node,
        transport: Transport,
        tuning: HostTuning,
        epoch_ns: int,
        qkey: int,
        cpu: int = -1,
        *,
        ip_version: int = 4,
        event_log: Path | None = None,
        rails: Rails = FIRST_RAILS,
    ) -> None:
        self._running_fd = -1 if transport.file is None else _shared_words()
        self._calls: Outside | None = None  # of a user's policy
        self.node = node
        own, *others = rails.get(node.name, (0,))
        self.settings = host_settings(
            lab,
            node,
            own,
            ip_version,
            others=tuple(_rail(lab, node, rail, ip_version) for rail in others),
            transport=transport.document(),
            epoch_ns=epoch_ns,
            qkey=qkey,
            tuning=dataclasses.asdict(tuning),
            cpu=cpu,
            event_log=None if event_log is None else str(event_log),
            running_fd=self._running_fd,
        )
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._journal_fd = os.memfd_create("journal")  # no file that a crash could leave behind
        self._process = self._spawned(lab)
        self._input = _end(self._process.stdin)
        self._output = _end(self._process.stdout)
        self._received = bytearray()

    def _spawned(self, lab: Lab) -> Process:
        return lab.spawn(
            _ARGV,
            role=f"host {self.node.name}",
            node=self.node.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | _ENVIRONMENT,
            pass_fds=[fd for fd in (self._journal_fd, self._running_fd) if fd >= 0],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process: by the end of its input, and if that is not enough, by signals."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._process.wait(1.0)
        self._process.end()
        self._output.close()
        self._stderr.close()
        os.close(self._journal_fd)
        if self._running_fd >= 0:
            os.close(self._running_fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._output.fileno()

    def start(self) -> None:
        known = self.expect("ready")
        if self._running_fd >= 0:
            self._calls = Outside(Running(mmap.mmap(self._running_fd, Running.BYTES)), known)

    def check(self) -> None:
        """PolicyError if a call of a user's policy does not return, and blocks the process."""
        if self._calls is not None and (overdue := self._calls.overdue()) is not None:
            raise overdue

    def tell(self, command: str, arguments: dict[str, Any]) -> None:
        """Send a command. RunError if the process is gone; if it was stopped, it runs again."""
        self._process.signal(signal.SIGCONT)
        try:
            self._input.write(f"{command} {json.dumps(arguments)}\n".encode())
            self._input.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def documents(self) -> list[dict[str, Any]]:
        """All unread output of the process; blocks while there is none.

        RunError if it failed or is gone.
        """
        chunk = os.read(self.fileno(), _CHUNK_BYTES)
        if not chunk:
            raise self._gone()
        self._received += chunk
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        documents = [json.loads(line) for line in lines]
        for document in documents:
            if "error" in document:
                raise self._failed(document)
        return documents

    def expect(self, name: str, timeout_s: float = START_S) -> Any:
        """The next document's field `name`. RunError if it does not come in time."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([self], [], [], min(left_s, _TICK_S))[0]:
                for document in self.documents():
                    if name in document:
                        return document[name]
            self.check()
        raise RunError(f"the host {self.node.name} did not answer in {timeout_s:g} s")

    def finish(
        self, timeout_s: float = START_S, digest: str | None = None
    ) -> tuple[HostReport, HostRecords]:
        """Stop the engine: its final figures, and its records.

        `digest`: SHA-256 of the bytes that the task must have come to, hex, if it is known.
        """
        self.tell("finish", {"journal_fd": self._journal_fd, "digest": digest})
        report = HostReport.of(self.expect("finished", timeout_s))
        with open(f"/proc/self/fd/{self._journal_fd}", "rb") as journal:  # noqa: PTH123
            return report, HostRecords(**np.load(journal))

    def _failed(self, document: dict[str, Any]) -> RunError | UserError:
        kind = UserError if document["exit_code"] == ExitCode.USAGE else RunError
        return kind(f"{self.node.name}: {document['error']}", hint=document["hint"])

    def _gone(self) -> RunError:
        status = self._process.wait(1.0)
        self._stderr.seek(0)
        output = self._stderr.read()[-2000:].decode(errors="replace").strip()
        last = f": {output.splitlines()[-1]}" if output else ""
        how = f"the host {self.node.name} {_how_ended(status)}{last}"
        error = None if self._calls is None else self._calls.error(f"ended the process: {how}")
        return error or RunError(how)


def _how_ended(status: int | None) -> str:
    """What an exit status of subprocess means; None: the process has closed its output only."""
    if status is None:
        return "closed its output"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"


def start(hosts: Iterable[HostHandle]) -> None:
    hosts = list(hosts)
    for host in hosts:
        host.tell("settings", dataclasses.asdict(host.settings))
    for host in hosts:
        host.start()


def prepare(
    hosts: Mapping[int, HostHandle],
    tasks: Mapping[int, WorkloadSettings],
    timeout_s: float = START_S,
) -> None:
    """Give each host its task, and introduce it to its peers; both by the host's index.

    Afterwards all receives are posted. RunError if a host is not ready in `timeout_s`.
    """
    for index, host in hosts.items():
        host.tell("workload", dataclasses.asdict(tasks[index]))
    addresses = {index: host.expect("addresses", timeout_s) for index, host in hosts.items()}
    for index, host in hosts.items():
        peers = {peer: addresses[int(peer)][str(index)] for peer in addresses[index]}
        host.tell("connect", peers)
    for host in hosts.values():
        host.expect("connected")


def begin(hosts: Iterable[HostHandle], start_ns: int = 0) -> None:
    """Let the tasks of hosts that are prepared begin, not before that time of their engines."""
    for host in hosts:
        host.tell("begin", {"start_ns": start_ns})
