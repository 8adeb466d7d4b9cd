# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel hosts as the kind of guests that the fabric knows (fabric/guests.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import termios
import threading
import time
import tty
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.errors import RunError
from softroce_lab.fabric import guests as fabric_guests
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import Ledger
from softroce_lab.fabric.net import netns
from softroce_lab.fabric.observe.ping import INITIAL_TTL, Outcome, Reply
from softroce_lab.plan.plan import KernelVersion, Node, Plan, Port
from softroce_lab.programs import execute
from softroce_lab.programs.kernel_host import console, guest, machine
from softroce_lab.programs.kernel_host import image as guest_image
from softroce_lab.programs.kernel_host.guest import Command, Guest
from softroce_lab.programs.kernel_host.image import Image, Say

READY_S = 120.0  # emulated on a busy machine a guest takes ten to twenty

_HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
_COUNTERS_S = 20.0  # an emulated guest takes its time
_HW_COUNTERS = "/sys/class/infiniband/{device}/ports/1/hw_counters"
_READ_BYTES = 8192
_FD = {"out": 1, "err": 2}
_REPLY = re.compile(rb"icmp_seq=(\d+) (?:ttl|hlim)=(\d+) time=([\d.]+) ms( \(DUP!\))?")
_SENT = re.compile(rb"(\d+) packets transmitted")
_NO_REPLY = 1  # ping's exit status


@dataclasses.dataclass(frozen=True, slots=True)
class Means:
    """What guests boot from, and on."""

    images: Mapping[KernelVersion, Image]
    accelerator: str

    @property
    def how(self) -> str:
        """The accelerator, in a word."""
        is_emulated = self.accelerator == machine.TCG
        return "emulated" if is_emulated else self.accelerator.upper()


def means_of(images: Mapping[KernelVersion, Image], say: Say) -> Means:
    """With what guests run on here. EnvironmentLackError without QEMU."""
    machine.program()
    return Means(images, machine.choose_accelerator(next(iter(images.values())), say))


class KernelHosts:
    """Linux guests in QEMU, with the kernel's own Soft-RoCE; methods as fabric/guests.py has them.

    RunError if a guest dies meanwhile.
    """

    def prepare(self, plan: Plan, say: Say) -> Means:
        """Have images and an accelerator for all kernel hosts of `plan`. EnvironmentLackError."""
        machine.program()
        kernels = sorted({node.guest.kernel for node in plan.kernel_hosts if node.guest})
        return means_of({kernel: guest_image.prepare(kernel, say) for kernel in kernels}, say)

    def described(self, node: Node, means: Means) -> str:
        """The kernel, and how it runs."""
        assert node.guest is not None  # noqa: S101 - a kernel host has one
        return f"Linux {means.images[node.guest.kernel].version}, {means.how}"

    def files(self, node: str) -> Sequence[str]:
        """The console's, and the configuration's."""
        return guest.files(node)

    def start(self, ledger: Ledger, plan: Plan, node: Node, namespace: int, means: Means) -> None:
        """Start its QEMU."""
        assert node.guest is not None  # noqa: S101 - a kernel host has one
        directory = ledger.directory
        console_file, config_file = (directory / name for name in guest.files(node.name))
        hosts = execute.hosts_text(plan, _HOSTS)
        config_file.write_text(machine.config(plan, node, hosts), "utf-8")
        with contextlib.ExitStack() as stack:
            with netns.entered(namespace):
                taps = machine.attach(node, plan.mtu)
            for fd in taps:
                stack.callback(os.close, fd)
            image = means.images[node.guest.kernel]
            argv = machine.command(node, node.guest, image, means.accelerator, taps, directory)
            log_file = stack.enter_context(console_file.open("ab"))
            process.spawn(
                ledger,
                argv,
                role=fabric_guests.role(node.name),
                netns_fd=namespace,
                stdout=log_file,
                stderr=log_file,
                pass_fds=taps,
            )

    def reach(
        self,
        node: str,
        machine: Callable[[], ProcessIdentity],
        namespace: Callable[[], int],
        directory: Path,
    ) -> Guest:
        """By virtio-serial."""
        return Guest(node, machine, namespace, directory)

    def await_ready(self, guests: Sequence[Guest], check: Callable[[], None]) -> None:
        """Until their agents run commands."""
        deadline = time.monotonic() + READY_S
        for each in guests:
            each.await_ready(deadline, check)

    def execute(self, guest: Guest, argv: Sequence[str]) -> int:
        """With a terminal, if this process has one at both ends: shells and editors work."""
        at_terminal = os.isatty(0) and os.isatty(1)
        window = shutil.get_terminal_size()
        size = (window.lines, window.columns) if at_terminal else None
        env = {"TERM": os.environ.get("TERM", "vt100")} if at_terminal else {}
        keys = _raw() if at_terminal else contextlib.nullcontext()
        with guest.start(argv, tty=size, env=env) as command, keys:
            threading.Thread(target=_feed, args=(command,), daemon=True).start()
            code = command.stream(_show)
        return code if code >= 0 else 128 - code

    def ping(
        self,
        guest: Guest,
        source: Port,
        target: Port,
        *,
        ipv6: bool,
        count: int,
        interval_ns: int,
        size_bytes: int,
        timeout_ns: int,
        say: Callable[[Reply], None],
    ) -> Outcome:
        """By the guest's ping(8), whose lines are read."""
        far, near = (target.address6, source.address6) if ipv6 else (target.address, source.address)
        argv = ["ping", "-n", "-c", str(count), "-i", f"{interval_ns / 1e9:g}"]
        argv += ["-s", str(size_bytes), "-W", f"{timeout_ns / 1e9:g}", "-I", str(near), str(far)]
        outcome, complaints, rest = Outcome(), bytearray(), bytearray()

        def take(kind: str, data: bytes) -> None:
            if kind == "err":
                complaints.extend(data)
                return
            *lines, rest[:] = (rest + data).split(b"\n")
            for line in lines:
                _read_ping(line, outcome, say)

        with guest.start(argv) as command:
            code = command.stream(take)
        if code not in (0, _NO_REPLY) or not outcome.sent:
            output = complaints.decode("utf-8", "replace").strip()
            raise RunError(f"ping ended with {code} in {guest.node}: {output}")
        return outcome

    def counters(
        self, guest: Guest, node: Node, ports: Collection[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """As `rdma statistic` has them."""
        devices = [device for device, port in _devices(node).items() if str(port) in ports]
        return {device: _hardware_counters(guest, device) for device in devices}

    def document(self, node: Node) -> dict[str, Any]:
        """Its kernel, memory and CPUs, and which RDMA device is at which port."""
        assert node.guest is not None  # noqa: S101 - a kernel host has one
        devices = {device: port.name for device, port in _devices(node).items()}
        return {**dataclasses.asdict(node.guest), "rdma_devices": devices}

    def line(self, document: Mapping[str, Any]) -> str:
        """The same in words."""
        devices = (f"{device} at {port}" for device, port in document["rdma_devices"].items())
        facts = [
            f"Linux {document['kernel']}",
            ", ".join(devices),
            f"{units.format_bytes(document['memory_bytes'])}, {document['cpus']} CPU",
        ]
        if document["alive"] is not None:
            dead = f"dead: lab kernel-host boot {document['node']}"
            facts.append(f"runs, process {document['pid']}" if document["alive"] else dead)
        return f"{document['node']}: {'; '.join(facts)}"

    def cause_of_death(self, directory: Path, node: str) -> str:
        """Its kernel's panic."""
        found = console.read_panic(directory / guest.console_file(node))
        return f": its kernel panicked: {found}" if found else ""


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the guest, Ctrl-C too."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _feed(command: Command) -> None:
    """Hand on what comes in."""
    with contextlib.suppress(OSError):
        while data := os.read(0, _READ_BYTES):
            command.write(data)
    command.end_input()


def _show(kind: str, data: bytes) -> None:
    while data:
        data = data[os.write(_FD[kind], data) :]


def _read_ping(line: bytes, outcome: Outcome, say: Callable[[Reply], None]) -> None:
    if match := _REPLY.search(line):
        sequence, ttl, time_ms, duplicate = match.groups()
        rtt_ns = round(float(time_ms) * 1e6)
        reply = Reply(int(sequence), rtt_ns, INITIAL_TTL - int(ttl), duplicate is not None)
        outcome.replies.append(reply)
        say(reply)
    elif match := _SENT.search(line):
        outcome.sent = int(match[1])


def _devices(node: Node) -> dict[str, Port]:
    """The RDMA devices, and the port that each is at."""
    return {f"rxe{rail}": port for rail, port in enumerate(node.ports)}


def _hardware_counters(guest: Guest, device: str) -> dict[str, int]:
    place = _HW_COUNTERS.format(device=device)
    lines = guest.run(["grep", "-r", "", place], _COUNTERS_S).check().text.splitlines()
    pairs = (line.rpartition("/")[2].partition(":") for line in lines)
    counts = {name: int(value) for name, _, value in pairs if value.strip().isdecimal()}
    counts.pop("lifespan", None)  # how old values may be, in ms
    return dict(sorted(counts.items()))


KIND = KernelHosts()
