# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of all rooms that bring labs up: unique names, what is left behind, foreign objects.

A room imports those that its tests use into its conftest.py; `needs_root` acts by itself there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.fabric import mounted, runtime
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.net import links, netns, syscalls
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.plan.plan import Link, Port
from tests import session

DEMO_S = 120.0  # a demo that takes longer hangs
VERBS_S = 1800.0  # to install packages, and to compile on a busy machine
SETTLE_S = 30.0
"""The kernel frees BPF objects and namespaces a little after their last user; busy, much later."""


@pytest.fixture(autouse=True)
def needs_root():
    """Skip every test of the room that imports this fixture, without root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def eventually(condition, timeout_s=SETTLE_S):
    """Whether `condition()` comes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lives(pid):
    """Whether a process has not ended, be it reaped or not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Traces:
    """Whatever a lab of this name has on the machine."""

    def __init__(self, name):
        self.name = name
        self.directory = runtime.DIRECTORY / name
        self.bpf_objects = set()

    def remember_bpf_objects(self):
        """Note the maps and programs that are pinned now, to look for them later."""
        folder = self.directory / "bpf"
        pins = folder.iterdir() if folder.is_dir() else ()
        for pin in (pin for pin in pins if pin.suffix != ".debug"):  # the kernel's own iterators
            fd = bpf.opened(pin)
            info = Path(f"/proc/self/fdinfo/{fd}").read_text()
            os.close(fd)
            for line in info.splitlines():
                key, _, value = line.partition(":")
                if key in ("map_id", "prog_id"):
                    self.bpf_objects.add((key, int(value)))

    def _living_bpf_objects(self):
        library = ctypes.CDLL("libbpf.so.1")
        opener = {"map_id": library.bpf_map_get_fd_by_id, "prog_id": library.bpf_prog_get_fd_by_id}
        for kind, number in self.bpf_objects:
            fd = opener[kind](number)
            if fd >= 0:
                os.close(fd)
                yield f"{kind} {number}"

    def _processes(self):
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
                if str(self.directory).encode() in words and int(entry.name) != os.getpid():
                    yield f"process {entry.name}: {words!r}"

    def found(self):
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        names = netns.DIRECTORY.iterdir() if netns.DIRECTORY.is_dir() else ()
        return [
            *(str(path) for path in names if path.name.startswith(f"{self.name}-")),
            *(line for line in mounts if f"/{self.name}/" in line or f"/{self.name}-" in line),
            *([str(self.directory)] if self.directory.exists() else []),
            *self._processes(),
            *self._living_bpf_objects(),
        ]

    def gone(self):
        return eventually(lambda: not self.found())


@pytest.fixture
def lab_name():
    return f"t{secrets.token_hex(3)}"


@pytest.fixture
def traces(lab_name):
    """What the lab under test has on the machine; whatever a failed test leaves is removed."""
    yield Traces(lab_name)
    condition = runtime.examine(lab_name)
    if condition is not None:
        runtime.down(lab_name, print)


@pytest.fixture
def two_hosts(lab_name, traces):
    """The plan of the smallest lab: h1 - s1 - h2."""
    return topology.load("two-hosts", name=lab_name)


class Foreigner:
    """Somebody else's namespace with a veth pair, and a map pinned in somebody else's bpffs."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.bpffs = folder / "bpf"
        self.ports = [
            Port("f", name, 7, "02:00:00:00:aa:07"),
            Port("f", "fy", 8, "02:00:00:00:aa:08"),
        ]
        netns.prepare_directory()
        fd, name_file = netns.create(), netns.unlinked_name()
        self.identity = netns.identify(fd, name_file)
        netns.publish(name, fd, name_file)
        links.create([Link(0, *self.ports)], 1500, {"f": fd})
        os.close(fd)
        os.close(name_file)
        mounted.mount(self.bpffs, "bpf", "foreign")
        with bpf.probe_map(2, 4, 4, 1) as table:
            bpf.pin(table, self.bpffs / "pin")

    def is_intact(self):
        fd = netns.opened(self.name, self.identity)
        if fd is None:
            return False
        with netns.entered(fd):
            names = Path("/proc/thread-self/net/dev").read_text()
        os.close(fd)
        os.close(bpf.opened(self.bpffs / "pin"))
        return f"{self.name}:" in names and "fy:" in names

    def remove(self):
        netns.remove(self.name, self.identity)
        syscalls.umount(str(self.bpffs))


@pytest.fixture
def foreigner(tmp_path):
    stranger = Foreigner(f"f{secrets.token_hex(3)}", tmp_path)
    yield stranger
    stranger.remove()


def killed_at(step, action):
    """Run `action(on_step)` in a child that kills itself at its `step`-th step, from 0.

    Whether it got that far; a child that ends by itself before must end well.
    """
    pid = os.fork()
    if pid == 0:
        count = itertools.count()

        def on_step():
            if next(count) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            action(on_step)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def run_lab(*arguments, **options):
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", *arguments],
        cwd=PROJECT_ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


@pytest.fixture(name="killed_at")
def _killed_at():
    return killed_at


@pytest.fixture(name="run_lab")
def _run_lab():
    return run_lab


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


# ---------------------------------------------------------------- what is left behind


def processes():
    """Programs of the lab that run in this session."""
    for process in session.members():
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ")
            if b"softroce" in line and int(process.name) != os.getpid():
                yield f"process {process.name} {line!r}"


def mounts():
    """By id, without the folder: pytest renames folders of earlier sessions, mounts and all."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if "softroce" in line or "/run/netns/" in line:
            number, _, _, root, point, *_ = line.split()
            yield f"mount {number} of {root} at .../{Path(point).name}, {line.split(' - ')[1]}"


def sockets(held):
    """Those with a name, whose inode is among what is held."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, _, _, _, inode, *name = line.split()
        if any("softroce" in each for each in name) and f"socket:[{inode}]" in held:
            yield f"socket {inode} {name}"


def leftovers():
    """Whatever of labs this session has on the machine now."""
    folders = (netns.DIRECTORY, runtime.DIRECTORY)
    names = {str(path) for folder in folders if folder.is_dir() for path in folder.iterdir()}
    temporary = {str(path) for path in Path(tempfile.gettempdir()).glob("softroce*")}
    links = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()}
    held = set(session.held())
    objects = {each for each in held if not each.startswith("socket:")}
    return names | temporary | links | objects | {*sockets(held), *mounts(), *processes()}


@pytest.fixture
def nothing_left():
    """Fails the test if it leaves anything on the machine."""
    before = leftovers()
    yield
    deadline = time.monotonic() + SETTLE_S
    while left := leftovers() - before:
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {sorted(left)}")
        time.sleep(0.05)


# ---------------------------------------------------------------- programs of verbs


@functools.cache
def prepare_verbs():
    """The launcher installs programs of verbs and builds their libraries, as for users."""
    argv = ["lab", "perf", "--lab", "none-such", "write_bw", "h1", "h2"]
    prepared = subprocess.run(
        argv, executable=PROJECT_ROOT / "lab", capture_output=True, text=True,
        timeout=VERBS_S,
    )  # fmt: skip
    assert "there is no lab called none-such" in prepared.stderr, prepared.stderr


# ---------------------------------------------------------------- lab demo


class Demo:
    """Runs `lab demo` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "softroce_lab.cli", "demo", *arguments],
            cwd=self.folder,
            env=os.environ | {"NO_COLOR": "1", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments):
        with self.start(*arguments) as process:
            try:
                stdout, stderr = process.communicate(timeout=DEMO_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                raise
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def json(self, *arguments):
        result = self.run("--json", "--quiet", *arguments)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def demo(tmp_path):
    return Demo(tmp_path)


@pytest.fixture
def small_file(tmp_path):
    path = tmp_path / "small"
    path.write_bytes(os.urandom(8 << 20))
    return path
