# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo` as a user has it, and everything that it might leave behind."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

SETTLE_S = 5.0  # the kernel frees BPF objects and namespaces a little after their last user
DEMO_S = 120.0  # a demo that takes longer hangs


@pytest.fixture(autouse=True)
def _root():
    if os.geteuid() != 0:
        pytest.skip("needs root")


def bpf_objects():
    """Ids of all programs and maps that the kernel holds."""
    library = ctypes.CDLL("libbpf.so.1")
    for kind in ("prog", "map"):
        next_id = getattr(library, f"bpf_{kind}_get_next_id")
        number = ctypes.c_uint32(0)
        while next_id(number, ctypes.byref(number)) == 0:
            yield f"bpf {kind} {number.value}"


def processes():
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(b"softroce" in word for word in words) and int(entry.name) != os.getpid():
                yield f"process {entry.name} {b' '.join(words)!r}"


def traces():
    """Whatever of labs is on this machine now."""
    folders = (Path("/run/netns"), Path("/run/softroce_lab"))
    names = {str(path) for folder in folders if folder.is_dir() for path in folder.iterdir()}
    temporary = {str(path) for path in Path(tempfile.gettempdir()).glob("softroce*")}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = {line for line in mounts if "softroce" in line or "/run/netns/" in line}
    links = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()}
    sockets = {
        line for line in Path("/proc/net/unix").read_text().splitlines() if "softroce" in line
    }
    return names | temporary | mounts | links | sockets | set(processes()) | set(bpf_objects())


@pytest.fixture
def nothing_left():
    """Fails the test if it leaves anything on the machine."""
    before = traces()
    yield
    deadline = time.monotonic() + SETTLE_S
    while left := traces() - before:
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {sorted(left)}")
        time.sleep(0.05)


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
