# SPDX-License-Identifier: GPL-2.0-or-later
"""Which processes end after a run of programs, and which are never touched."""

import contextlib
import os
import subprocess
import sys

import pytest

from softroce_lab.fabric.net import netns, programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

_IN = """
import signal, sys
from softroce_lab.fabric.net import syscalls
syscalls.setns(int(sys.argv[1]), syscalls.CLONE_NEWNET)
if "own" in sys.argv[2]: syscalls.unshare(syscalls.CLONE_NEWNS)
if "deaf" in sys.argv[2]: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def inside():
    """Starts a process in a network namespace, with `own` mounts or those of the tests."""
    with contextlib.ExitStack() as stack:

        def started(fd, mounts):
            argv = [sys.executable, "-c", _IN, str(fd), mounts]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(argv, pass_fds=[fd], **pipes))
            stack.callback(process.kill)
            assert process.stdout.readline() == b"\n"
            return process

        yield started


@pytest.fixture
def namespaces():
    fds = [netns.create(), netns.create()]
    yield fds
    for fd in fds:
        os.close(fd)


def test_only_what_is_in_the_namespace_with_mounts_of_its_own(inside, namespaces):
    ours, other = namespaces
    command, visitor, stranger = (
        inside(fd, mounts) for fd, mounts in [(ours, "own"), (ours, "shared"), (other, "own")]
    )
    assert programs.kill({os.fstat(ours).st_ino}) == []
    assert command.wait(60) == -9
    assert visitor.poll() is stranger.poll() is None


@pytest.mark.parametrize(("heeds", "status"), [(True, -15), (False, -9)])
def test_a_lab_that_goes_down_asks_first(inside, namespaces, heeds, status):
    command = inside(namespaces[0], "own" if heeds else "own, deaf")
    programs.terminate({os.fstat(namespaces[0]).st_ino}, grace_s=0.5)
    assert command.wait(60) == status


def test_the_guard_outlives_its_process(inside, namespaces):
    command, stranger = inside(namespaces[0], "own"), inside(namespaces[1], "own")
    script = (
        "import os, sys; from softroce_lab.experiment.hosts import commands\n"
        "with commands.guarded([int(sys.argv[1])]): os.kill(os.getpid(), 9)"
    )
    argv = [sys.executable, "-c", script, str(namespaces[0])]
    assert subprocess.run(argv, pass_fds=[namespaces[0]], check=False).returncode == -9
    assert command.wait(60) == -9
    assert stranger.poll() is None
