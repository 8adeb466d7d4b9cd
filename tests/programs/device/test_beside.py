# SPDX-License-Identifier: GPL-2.0-or-later
"""The process beside a program: what some programs do not read holds nobody else up."""

import contextlib
import os
import secrets
import socket
import threading

import pytest

from softroce_lab.programs.device import beside

TIMEOUT_S = 10
CLAIM = b"+"  # asks for an answer that comes once
REPEATED = b"-" * 256  # asks for one that may be lost
FLOOD = 4 * beside.MOST_WAITING


class Echo:
    """Answers with what came."""

    next_timeout_ns = None

    def is_repeated(self, message):
        return message == REPEATED

    def handle(self, octets, now_ns):
        if octets not in (CLAIM, REPEATED):
            raise ValueError("no message")
        return [octets]

    def handle_timeout(self, now_ns):
        return []


@pytest.fixture
def connect():
    """Connects to a service; afterwards, one of its programs ends, then the other, and it ends."""
    with contextlib.ExitStack() as stack:
        sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for each in sockets:
            each.bind(f"\0softroce_lab/test/{secrets.token_hex(8)}")
            each.listen()
        address = sockets[0].getsockname()
        (program, ends), (later, ends_later) = os.pipe(), os.pipe()
        served = (beside.Listening(*sockets), iter((program, later)), None, Echo)
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


def test_repeated_messages_that_nobody_reads_are_lost(connect):
    flooding, other = connect(), connect()
    for _ in range(FLOOD):
        flooding.send(REPEATED)
    assert is_served(other)
    flooding.send(CLAIM)
    answers = 1
    while flooding.recv(512) != CLAIM:
        answers += 1
    assert beside.MOST_REPEATED < answers < FLOOD / 2
    assert is_served(flooding)


def test_answers_that_wait_come_in_order_and_whole(connect):
    client = connect()
    for _ in range(beside.MOST_WAITING):
        client.send(CLAIM)
    assert all(client.recv(1) == CLAIM for _ in range(beside.MOST_WAITING))
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
