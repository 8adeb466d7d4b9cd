# SPDX-License-Identifier: GPL-2.0-or-later
"""The process beside the programs: what some of them do not read holds nobody else up."""

import contextlib
import os
import secrets
import socket
import threading

import pytest

from softroce_lab.programs.device import beside
from softroce_lab.programs.rdmacm import server
from softroce_lab.programs.rdmacm.host_service import ToProgram

TIMEOUT_S = 10
CLAIM = b"+"  # asks for an answer
FLOOD = 4 * server.MOST_WAITING


class Echo:
    """Answers with what came. Until the peer of a program that has left knows, it is needed."""

    next_timeout_ns = None
    is_disconnecting = False

    def __init__(self):
        self.left = []

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


@pytest.fixture
def connect():
    """Connects to a service; afterwards, one of its programs ends, then the other, and it ends."""
    with contextlib.ExitStack() as stack:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"\0softroce_lab/test/{secrets.token_hex(8)}")
        listening.listen()
        address = listening.getsockname()
        (program, ends), (later, ends_later) = os.pipe(), os.pipe()
        programs = iter((program, later))
        made = server.ConnectionServer(Echo(), NoPort())
        served = ([listening], [lambda: made], lambda: next(programs, None))
        thread = threading.Thread(target=beside.serve, args=served, daemon=True)
        thread.start()

        def connected():
            made = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            made.settimeout(TIMEOUT_S)
            made.connect(address)
            return made

        yield connected
        os.close(ends)
        assert is_served(connected())
        os.close(ends_later)
        stack.close()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def send_many(client):
    for _ in range(FLOOD):
        client.send(CLAIM)


def is_served(client):
    client.send(CLAIM)
    return client.recv(1) == CLAIM


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
