# SPDX-License-Identifier: GPL-2.0-or-later
"""The process beside the programs: what some of them do not read holds nobody else up."""

import contextlib
import os
import resource
import secrets
import socket
import threading
import time

import pytest

from softroce_lab.programs.device import beside
from softroce_lab.programs.rdmacm import server
from softroce_lab.programs.rdmacm.host_service import ToProgram
from tests.labs import eventually

TIMEOUT_S = 10
CLAIM = b"+"  # asks for an answer
IDLE_S = 0.4
FLOOD = 4 * server.MOST_WAITING


class Echo:
    """Answers with what came."""

    def __init__(self):
        self.left = []
        self.is_disconnecting = False

    @property
    def next_timeout_ns(self):
        return time.monotonic_ns() + 10_000_000 if self.is_disconnecting else None

    def handle(self, program, octets, now_ns):
        if octets != CLAIM:
            raise ValueError("no message")
        return [ToProgram(program, octets)]

    def leave(self, program, now_ns):
        self.left.append(program)
        return []


class NoPort:
    """No MAD comes."""

    receivers = ()

    def close(self):
        pass


class Served:
    """A server at an address of its own, and the programs that it looks for."""

    def __init__(self, stack, clients, *programs):
        self.service = Echo()
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(f"\0softroce_lab/test/{secrets.token_hex(8)}")
        listening.listen()
        self._clients, self._address = clients, listening.getsockname()
        left = iter(programs)
        made = server.ConnectionServer(self.service, NoPort())
        self.thread = threading.Thread(
            target=beside.serve,
            args=([listening], [lambda: made], lambda: next(left, None)),
            daemon=True,
        )
        self.thread.start()

    def connect(self):
        made = self._clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        made.settimeout(TIMEOUT_S)
        made.connect(self._address)
        return made

    def ends(self, timeout_s=TIMEOUT_S):
        self.thread.join(timeout_s)
        return not self.thread.is_alive()


@pytest.fixture
def connect():
    """Connects to a service; afterwards, one of its programs ends, then the other, and it ends."""
    (program, ends), (later, ends_later) = os.pipe(), os.pipe()
    with contextlib.ExitStack() as outer:
        with contextlib.ExitStack() as stack:
            served = Served(outer, stack, program, later)
            yield served.connect
            os.close(ends)
            assert is_served(served.connect())
            os.close(ends_later)
        assert served.ends()


def send_many(client):
    for _ in range(FLOOD):
        client.send(CLAIM)


def is_served(client):
    with contextlib.suppress(ConnectionError):  # closed with a message unread
        client.send(CLAIM)
        return client.recv(1) == CLAIM
    return False


def test_answers_that_wait_come_in_order_and_whole(connect):
    client = connect()
    for _ in range(server.MOST_WAITING):
        client.send(CLAIM)
    assert all(client.recv(1) == CLAIM for _ in range(server.MOST_WAITING))
    assert is_served(client)


def test_a_program_that_reads_no_answers_is_left(connect):
    deaf, other = connect(), connect()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        send_many(deaf)
    assert is_served(other)


def test_who_speaks_another_language_is_left(connect):
    strange = connect()
    strange.send(b"?")
    assert strange.recv(1) == b""
    assert is_served(connect())


def test_without_descriptors_it_serves_those_it_has_and_the_next_when_some_have_left(connect):
    first, before = connect(), resource.getrlimit(resource.RLIMIT_NOFILE)
    assert is_served(first)
    others = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (first.fileno() + 100, before[1]))
    try:
        others.append(connect())
        while is_served(others[-1]):
            others.append(connect())
        begun_s = time.process_time()
        time.sleep(IDLE_S)
        assert time.process_time() - begun_s < IDLE_S / 2
        assert is_served(first)
        for each in others:
            each.close()
        assert eventually(lambda: is_served(connect()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def leaving(monkeypatch):
    """A server whose only program has left, before its peers know; what may end it is not over."""
    monkeypatch.setattr(server, "_LONGEST_FAREWELL_S", 1.0)
    program, ends = os.pipe()
    with contextlib.ExitStack() as stack:
        served = Served(stack, stack, program)
        client = served.connect()
        assert is_served(client)
        served.service.is_disconnecting = True
        client.close()
        os.close(ends)
        assert not served.ends(0.3)
        yield served


def test_it_stays_until_the_peers_of_a_program_know(leaving):
    assert len(leaving.service.left) == 1
    leaving.service.is_disconnecting = False
    assert leaving.ends(0.5)


def test_it_does_not_stay_for_ever(leaving):
    assert leaving.ends()
