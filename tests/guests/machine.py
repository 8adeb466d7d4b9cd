# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU machine that boots a root file system, lets its init work, and powers off."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.guests.root import CHECKOUT

MEMORY_MIB, CPUS = 2048, 2  # as in the Vagrantfile
_INIT = f"/{CHECKOUT}/tests/guests/init.sh"
# Emulated, the time-stamp counter is slow to prove itself, and what it gives way to is slower.
_KERNEL_ARGUMENTS = "root=/dev/vda rw console=ttyS0 panic=-1 tsc=reliable mitigations=off"
_FIRST_WORD_S = 60.0  # until the kernel says something; emulated it takes 5
_POLL_S = 0.1


@dataclass(frozen=True)
class Job:
    """What became of one of the guest's jobs."""

    name: str
    exit_code: int
    seconds: int


@dataclass(frozen=True)
class Outcome:
    """What became of a guest."""

    accelerator: str
    seconds: float
    powered_off: bool
    jobs: list[Job]
    console: str


class Machine:
    """A running QEMU; its consoles are files in `folder`."""

    def __init__(self, accelerator: str, root: Path, image: Path, folder: Path) -> None:
        self._accelerator = accelerator
        self._console, self._results = folder / "console", folder / "results"
        for path in (self._console, self._results):
            path.write_bytes(b"")
        self._log = folder / "qemu.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(root, image), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._began = time.monotonic()

    def _command(self, root: Path, image: Path) -> list[str]:
        return [
            "qemu-system-x86_64",
            *("-machine", "q35,hpet=off", "-accel", self._accelerator, "-cpu", "max"),
            *("-smp", str(CPUS), "-m", str(MEMORY_MIB)),
            *("-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"),
            *("-kernel", str(root / "vmlinuz"), "-initrd", str(root / "initrd.img")),
            *("-append", f"{_KERNEL_ARGUMENTS} init={_INIT}"),
            *("-device", "virtio-rng-pci"),
            *("-drive", f"file={image},format=raw,if=virtio,cache=unsafe"),
            *("-serial", f"file:{self._console}", "-serial", f"file:{self._results}"),
        ]

    def speaks(self) -> bool:
        """Wait for the kernel's first word. False if it never comes, as with a KVM that is none."""
        refused = "KVM internal error"
        return self._wait(
            lambda: bool(self._console.stat().st_size) or refused in self._log.read_text(),
            _FIRST_WORD_S,
        ) and bool(self._console.stat().st_size)

    def powers_off(self, timeout_s: float) -> bool:
        """Wait for the end."""
        return self._wait(lambda: self._process.poll() is not None, timeout_s)

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                return condition()
            time.sleep(_POLL_S)
        return True

    def outcome(self, *, powered_off: bool) -> Outcome:
        """What the guest has said until now."""
        lines = [line.split() for line in self._results.read_text().splitlines()]
        jobs = [Job(name, int(code), int(seconds)) for name, code, seconds in lines]
        console = self._console.read_text("utf-8", "replace").replace("\r", "")
        took_s = time.monotonic() - self._began
        return Outcome(self._accelerator, took_s, powered_off, jobs, console)

    def end(self) -> str:
        """End QEMU, whatever it does. What it said itself."""
        self._process.kill()
        self._process.wait()
        return self._log.read_text()


@contextmanager
def _running(accelerator: str, root: Path, image: Path, folder: Path) -> Iterator[Machine]:
    machine = Machine(accelerator, root, image, folder)
    try:
        yield machine
    finally:
        machine.end()


def run(root: Path, image: Path, folder: Path, timeout_s: float) -> Outcome:
    """Boot `root`'s own kernel on `image`: with KVM if it runs there, else emulated."""
    for accelerator in ("kvm", "tcg,thread=multi"):
        with _running(accelerator, root, image, folder) as machine:
            if machine.speaks():
                return machine.outcome(powered_off=machine.powers_off(timeout_s))
    raise AssertionError("QEMU starts no kernel: " + (folder / "qemu.log").read_text())
