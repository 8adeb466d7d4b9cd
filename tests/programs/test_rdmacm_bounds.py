# SPDX-License-Identifier: GPL-2.0-or-later
"""librdmacm.so.1 with a connection manager that does not read, does not answer, or goes away.

The manager is the test's own: its messages are those of programs/rdmacm/host_service.py.
"""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.fabric.net import netns
from softroce_lab.programs.device import beside
from softroce_lab.programs.rdmacm import host_service as service
from softroce_lab.programs.rdmacm.host_service import KINDS, VERBS
from tests.labs import eventually
from tests.programs.pair import ended, finished
from tests.programs.test_loopback import ALONE

TIMEOUT_S = 40
REFUSED_S = 0.2  # the program tries for a second
LONGEST_CALL_S = 10  # native/verbs/rdmacm/manager.cpp
PROGRAM = (
    f"ADDRESS = {beside.ADDRESSES[0]!r}"
    + """
import ctypes, errno, os, socket, sys, time

cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
TCP = 0x0106
address = (ctypes.c_ubyte * 16)(2, 0, 0x1d, 0x2f, 10, 0, 0, 1)  # sockaddr_in, port 7471

def bound():
    id = ctypes.c_void_p()
    channel = ctypes.c_void_p(cm.rdma_create_event_channel())
    assert cm.rdma_create_id(channel, ctypes.byref(id), None, TCP) == 0
    assert cm.rdma_bind_addr(id, address) == 0, os.strerror(ctypes.get_errno())
    return id

def listen(id):
    began = time.monotonic()
    failed = cm.rdma_listen(id, 8)
    why = errno.errorcode[ctypes.get_errno()] if failed else "done"
    print(why, round(time.monotonic() - began, 1), flush=True)

def fill():
    # As calls of other threads do that nobody reads.
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            way = socket.socket(fileno=os.dup(fd))
            if way.getpeername() == b"\\0" + ADDRESS.encode():
                break
        except OSError:
            continue
    try:
        while True:
            way.send(bytes(4), socket.MSG_DONTWAIT)
    except BlockingIOError:
        way.detach()

id = bound()
"""
)


class Manager:
    """Reads and answers in a thread, until it is told otherwise; in its network namespace."""

    def __init__(self, refrain, namespace=None):
        self.namespace = netns.create() if namespace is None else namespace
        with netns.entered(self.namespace):
            self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(f"\0{beside.ADDRESSES[0]}")
        self._listening.listen()
        self._refrain = refrain  # the verb whose call meets it
        self.verbs = []
        self.may_read = threading.Event()
        self.may_read.set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connected = self._listening.accept()[0]
        with connected, contextlib.suppress(ConnectionError):
            assert service.read(connected.recv(1024)).kind == KINDS["hello"]
            while True:
                self.may_read.wait(TIMEOUT_S)
                octets = connected.recv(1024)
                if not octets or not self._handle(connected, octets):
                    return

    def _handle(self, connected, octets):
        if len(octets) == service.KIND.size:  # of `fill`
            return True
        message = service.read(octets)
        self.verbs.append(message.verb)
        if message.verb == VERBS["listen"] and self._refrain == "leave":
            return False
        if message.verb != VERBS["listen"] or self._refrain != "answer":
            connected.send(service.reply(0, 7))
        if message.verb == VERBS["create"] and self._refrain == "read":
            self.may_read.clear()
        return True


@pytest.fixture
def started(pair, tmp_path):
    """Begins a program whose connection manager is the test's. `pair` has made the libraries."""
    settings = tmp_path / "settings"
    settings.write_text(ALONE)
    with contextlib.ExitStack() as stack:

        def start(namespace, script):
            with netns.entered(namespace):
                process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM + script], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**os.environ, "SOFTROCE_VERBS": str(settings),
                         "LD_LIBRARY_PATH": str(paths.verbs_library().parent)},
                )  # fmt: skip
            os.close(namespace)
            return stack.enter_context(ended(process))

        yield start


def lines(process):
    """What each call came to, and how many seconds that took."""
    done = finished(process, TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    return [word for word, _ in words], [float(took) for _, took in words], done.stderr


def test_without_a_manager_the_program_is_told_what_starts_one(started):
    done = finished(started(netns.create(), ""), TIMEOUT_S)
    assert os.strerror(errno.ENODEV) in done.stderr
    assert "`lab exec --verbs HOST -- COMMAND` starts it" in done.stderr


def test_a_manager_that_gives_up_its_address_for_a_moment_is_waited_for(started):
    namespace = netns.create()
    process = started(os.dup(namespace), "listen(id)")
    maps = Path(f"/proc/{process.pid}/maps")
    assert eventually(lambda: "librdmacm" in maps.read_text())
    time.sleep(REFUSED_S)
    Manager("nothing", namespace)
    assert lines(process)[0] == ["done"]


def test_a_call_that_is_not_answered_fails(started):
    """With EIO after 10 s, and so do all that follow, without waiting: replies have no numbers."""
    manager = Manager("answer")
    found, took_s, _ = lines(started(manager.namespace, "listen(id); listen(id)"))
    assert found == ["EIO", "EIO"]
    assert LONGEST_CALL_S - 0.2 <= took_s[0] < LONGEST_CALL_S + 10
    assert took_s[1] < LONGEST_CALL_S / 2
    assert manager.verbs.count(VERBS["listen"]) == 1


def test_a_call_that_is_not_taken_fails_and_the_next_may_succeed(started):
    """With ETIMEDOUT after 10 s; nothing of it was sent."""
    manager = Manager("read")
    process = started(manager.namespace, "fill(); listen(id); input(); listen(id)")
    assert process.stdout.readline().split()[0] == errno.errorcode[errno.ETIMEDOUT]
    manager.may_read.set()
    process.stdin.write("\n")
    found, _, _ = lines(process)
    assert found == ["done"]
    assert manager.verbs.count(VERBS["listen"]) == 1


def test_a_manager_that_leaves_is_told_of(started):
    """As it does where 4096 messages are unread (tests/programs/device/test_beside.py)."""
    found, took_s, errors = lines(started(Manager("leave").namespace, "listen(id); listen(id)"))
    assert found == ["EIO", "EIO"]
    assert max(took_s) < 5
    assert "it has ended, or has closed the socket: this process left its messages unread" in errors
