# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can do, found out by doing it.

All of it happens in a thread of its own with network and mount namespaces of its own, and leaves
with it. Nothing is concluded from a version.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import importlib
import ipaddress
import mmap
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from softroce_lab.errors import LabError
from softroce_lab.fabric import lacks
from softroce_lab.fabric.bpf import libbpf
from softroce_lab.fabric.bpf.compiler import Loaded, compile_image
from softroce_lab.fabric.bpf.xdp import ATTACH_FLAGS, Mode
from softroce_lab.fabric.daemons import monitor, wire
from softroce_lab.fabric.net import links, netns, syscalls
from softroce_lab.paths import native_program
from softroce_lab.plan.plan import Link, Port

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21, "CAP_BPF": 39}
_UMEM_BYTES = 16 << 20  # as a host's port uses; shows whether RLIMIT_MEMLOCK is in the way
_MTU = 3000  # above the netdev MTU of the default path MTU

NATIVE_MODULE = "the native module"  # all that the virtual clock needs

_ROOT = "run it as root, or with sudo; in a container: --privileged"
_BUILD = "start with ./lab as root, which builds it; for a wheel: docs/howto/install.md"
_KERNEL = "a kernel built with {}; those of Debian 12 and Ubuntu 24.04 are"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    capability: str
    tried: bool  # without root, the probe proves nothing
    found: bool
    required: bool  # there is no lab without it
    why: str  # what needs it
    without: str  # what a lab is without it, if that is not plain
    how: str  # how to get it
    detail: str  # what was found, or why it was not


@dataclasses.dataclass(frozen=True, slots=True)
class _Probe:
    capability: str
    attempt: Callable[[], str | None]  # what was found, in words; raises if it is not there
    why: str
    how: str
    required: bool = True
    privileged: bool = True  # only root may try it

    def run(self) -> Finding:
        try:
            return self._finding(found=True, detail=self.attempt() or "found")
        except PermissionError as error:
            how = self.how if _ROOT in self.how else f"{_ROOT}; or {self.how}"
            return self._finding(detail=str(error), how=how)
        except (OSError, LabError, ImportError) as error:
            return self._finding(detail=str(error).partition("\n")[0])

    def skip(self) -> Finding:
        """Leave it untried: it would fail without root, whatever the machine can do."""
        return self._finding(tried=False, detail="not tried", how=_ROOT)

    def _finding(
        self, *, detail: str, how: str | None = None, found: bool = False, tried: bool = True
    ) -> Finding:
        return Finding(
            capability=self.capability,
            tried=tried,
            found=found,
            required=self.required,
            why=self.why,
            without=lacks.PRICES.get(self.capability, ""),
            how=how or self.how,
            detail=detail,
        )


def examine() -> list[Finding]:
    """All capabilities, in the order in which they build on each other."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as aside:
        return aside.submit(_examine_aside).result()


def _examine_aside() -> list[Finding]:
    with contextlib.suppress(OSError):  # the probes report the failure
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET)
        syscalls.mount("", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    rights = _RIGHTS.run()
    rest = (
        probe.run() if rights.found or not probe.privileged else probe.skip() for probe in _PROBES
    )
    return [rights, *rest]


def _capabilities() -> str:
    status = Path("/proc/thread-self/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    held = int(line.split()[1], 16)
    missing = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if missing:
        raise PermissionError(f"without {', '.join(missing)}")
    return ", ".join(_CAPABILITIES)


def _network_namespace() -> str:
    fd = netns.create()
    try:
        return f"cookie {netns.cookie(fd)}"
    finally:
        os.close(fd)


def _nameless_file() -> None:
    os.close(os.open("/run", os.O_TMPFILE | os.O_WRONLY, 0o400))


@contextlib.contextmanager
def _veth() -> Iterator[Port]:
    """One end of a veth pair in a namespace of its own, where the calling thread is meanwhile."""
    near = Port("a", "near", 101, "02:00:00:00:00:65")
    far = Port("b", "far", 102, "02:00:00:00:00:66")
    fd = netns.create()
    try:
        links.create([Link(0, near, far)], _MTU, {"a": fd, "b": fd})
        with netns.entered(fd):
            yield near
    finally:
        os.close(fd)


def _opened(make: Callable[[], contextlib.AbstractContextManager[object]]) -> Callable[[], None]:
    def attempt() -> None:
        with make():
            pass

    return attempt


def _ipv6() -> None:
    if not links.has_ipv6():
        raise FileNotFoundError("the kernel has no settings for it")


def _source_routing() -> str:
    families = {"IPv4": "10.0.0.1", "IPv6": "fd00::1"}
    fd = netns.create()
    try:
        with netns.entered(fd):
            known = [
                family
                for family, source in families.items()
                if links.add_source_rule(ipaddress.ip_address(source), links.FIRST_TABLE)
            ]
    finally:
        os.close(fd)
    if not known:
        raise OSError("the kernel has no rules for it")
    return ", ".join(known)


def _bpf_file_system() -> None:
    # Over /run, in this thread's own mount namespace: nothing is made that could stay.
    syscalls.mount("softroce_lab-doctor", "/run", "bpf", 0)
    syscalls.umount("/run")


def _attach(mode: Mode) -> None:
    with libbpf.probe_program() as program, _veth() as port:
        libbpf.attach_xdp(port.ifindex, program, ATTACH_FLAGS[mode])


def _xdp() -> str:
    try:
        _attach("generic")
    except OSError:
        _attach("native")
        return "native only"
    return "generic"


def _af_xdp() -> str:
    """Bind a socket with packet memory to queue 0 of an interface, as linux/if_xdp.h has it."""
    af, sol, copy = syscalls.AF_XDP, 283, 1 << 1
    umem_reg, rings, ring_frames, frame_bytes = 4, (5, 6, 2, 3), 64, 4096
    with (
        libbpf.probe_map(libbpf.MAP_TYPE_XSKMAP, 4, 4, 1),
        _veth() as port,
        mmap.mmap(-1, _UMEM_BYTES) as memory,
        socket.socket(af, socket.SOCK_RAW) as xsk,
    ):
        view = (ctypes.c_char * _UMEM_BYTES).from_buffer(memory)
        region = struct.pack("=QQIII4x", ctypes.addressof(view), _UMEM_BYTES, frame_bytes, 0, 0)
        try:
            xsk.setsockopt(sol, umem_reg, region)
            for ring in rings:
                xsk.setsockopt(sol, ring, ring_frames)
            syscalls.bind(xsk.fileno(), struct.pack("=HHIII", af, copy, port.ifindex, 0, 0))
        finally:
            del view  # or the memory could not be closed
    return f"with {_UMEM_BYTES >> 20} MiB of packet memory"


@contextlib.contextmanager
def _errors_aside() -> Iterator[IO[bytes]]:
    """What the process writes to its standard error meanwhile goes to a file."""
    with tempfile.TemporaryFile() as aside:
        before = os.dup(2)
        os.dup2(aside.fileno(), 2)
        try:
            yield aside
        finally:
            os.dup2(before, 2)
            os.close(before)


def _compiler() -> None:
    with _errors_aside() as log:  # bcc's compiler and libbpf write there by themselves
        try:
            with Loaded(compile_image("plain_redirect.c", ("plain_host",), {"LAB_PORTS": 2})):
                pass
        except LabError as error:
            log.seek(0)
            output = log.readline().decode("utf-8", "replace").strip()
            raise LabError(f"{error.what}; {output}" if output else error.what) from error


def _native_module() -> str:
    module = importlib.import_module("softroce_lab._native")
    return "found" if module.has_live else "for the virtual clock alone"


def _native_program(name: str) -> Callable[[], str]:
    return lambda: str(native_program(name))


def _real_time() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # 0: this thread, soon to end


def _program(name: str) -> Callable[[], str]:
    def attempt() -> str:
        path = shutil.which(name)
        if path is None:
            raise FileNotFoundError(f"no {name} on PATH")
        return path

    return attempt


_RIGHTS = _Probe("the rights of root", _capabilities, "namespaces, links and BPF programs", _ROOT)

_PROBES = (
    _Probe(
        "network namespaces",
        _network_namespace,
        "each node is one, known by its cookie",
        _KERNEL.format("CONFIG_NET_NS, 5.14 or later"),
    ),
    _Probe(
        "nameless files in /run",
        _nameless_file,
        "names of namespaces that a crash cannot orphan",
        "mount a tmpfs on /run, as distributions do",
    ),
    _Probe("veth pairs", _opened(_veth), "each link is one", _KERNEL.format("CONFIG_VETH")),
    _Probe(
        "IPv6",
        _ipv6,
        "hosts have addresses of either family; without it, of IPv4 only",
        _KERNEL.format("CONFIG_IPV6") + "; not booted with ipv6.disable=1",
        required=False,
    ),
    _Probe(
        "routing by source",
        _source_routing,
        "between different rails of hosts with several ports",
        _KERNEL.format("CONFIG_IP_MULTIPLE_TABLES"),
        required=False,
    ),
    _Probe(
        "bpf(2)",
        _opened(libbpf.probe_program),
        "the switches are XDP programs",
        "apt install libbpf1; " + _KERNEL.format("CONFIG_BPF_SYSCALL"),
    ),
    _Probe("a BPF file system", _bpf_file_system, "holds each lab's maps", _ROOT),
    _Probe(
        lacks.RING_BUFFERS,
        _opened(libbpf.probe_ring_buffer),
        "carry the record of every injected drop",
        _KERNEL.format("BPF ring buffers, 5.8 or later"),
        required=False,
    ),
    _Probe("XDP on veth", _xdp, "the switches' programs run there", _KERNEL.format("XDP")),
    _Probe(
        lacks.NATIVE_XDP,
        functools.partial(_attach, "native"),
        "one way through a switch: lab up --xdp native",
        "a smaller path MTU: a veth takes frames of a page at most",
        required=False,
    ),
    _Probe(
        lacks.GENERIC_XDP,
        functools.partial(_attach, "generic"),
        "the other way, which labs take if they may choose",
        _KERNEL.format("XDP"),
        required=False,
    ),
    _Probe(
        lacks.AF_XDP,
        _af_xdp,
        "hosts send and receive RDMA frames over them",
        _KERNEL.format("CONFIG_XDP_SOCKETS") + "; a larger RLIMIT_MEMLOCK: ulimit -l",
        required=False,
    ),
    _Probe(
        "bcc's compiler",
        _compiler,
        "compiles the switches; it comes with the system's Python",
        "apt install python3-bpfcc linux-libc-dev, and start with ./lab",
    ),
    _Probe(
        NATIVE_MODULE,
        _native_module,
        "the RNIC engine of every host",
        "start with ./lab, which builds it",
        privileged=False,
    ),
    _Probe(
        "the native monitor",
        _native_program(monitor.PROGRAM),
        "writes down the injected drops",
        _BUILD,
        privileged=False,
    ),
    _Probe(
        "the native wire stage",
        _native_program(wire.PROGRAM),
        "delays, rates, duplicates and reordering",
        _BUILD,
        privileged=False,
    ),
    _Probe(
        "real-time scheduling",
        _real_time,
        "exact delays on shaped links",
        _ROOT + "; with cgroups of version 1: cpu.rt_runtime_us",
        required=False,
    ),
    *(
        _Probe(
            name,
            _program(name),
            f"{what} kernel hosts",
            f"apt install {package}, or ./lab kernel-host prepare",
            required=False,
            privileged=False,
        )
        for name, package, what in (
            ("qemu-system-x86_64", "qemu-system-x86", "runs"),
            ("mmdebstrap", "mmdebstrap", "makes the images of"),
        )
    ),
    _Probe(
        "tshark",
        _program("tshark"),
        "an independent reader of captures",
        "apt install tshark",
        required=False,
        privileged=False,
    ),
)
