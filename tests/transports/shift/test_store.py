# SPDX-License-Identifier: GPL-2.0-or-later
"""The key-value service over TCP, and control messages."""

import socket

import pytest
from softroce_lab._native import shift

from softroce_lab.transports.shift import StoreServer, StoreUnreachableError, TcpStore


def test_clients_see_what_others_put():
    with StoreServer() as server:
        first, second = (TcpStore(*server.address) for _ in range(2))
        first.put("qp/a/1", {"qp": 7})
        second.put("qp/a/2", 5)
        second.put("qp/b/1", None)
        assert first.scan("qp/a/") == {"qp/a/1": {"qp": 7}, "qp/a/2": 5}
        assert second.scan("nothing") == {}
        first.close()
        assert first.scan("qp/b") == {"qp/b/1": None}  # it calls again


def test_a_server_that_is_gone():
    with StoreServer() as server:
        store = TcpStore(*server.address, timeout_s=0.2)
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        store.put("a", 1)


def test_a_server_that_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = TcpStore(*silent.getsockname(), timeout_s=0.1)
        with pytest.raises(StoreUnreachableError):
            store.scan("a")


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b'{"verb": "put"}\n', b"[1]\n"])
def test_a_client_that_speaks_otherwise_is_hung_up_on(line):
    with StoreServer() as server:
        with socket.create_connection(server.address, 1) as client:
            client.sendall(line)
            assert client.recv(100) == b""
        store = TcpStore(*server.address)
        store.put("a", 1)
        assert store.scan("a") == {"a": 1}


@pytest.mark.parametrize("kind", shift.Kind)
def test_a_message_is_what_was_encoded(kind):
    message = shift.Message(kind, 2**31, 2**63 + 5, 0xFFFFFF)
    data = message.encode(2**31 + 7)
    assert len(data) == shift.MESSAGE_BYTES
    assert shift.read_message(data)[:2] == (message, 2**31 + 7)


@pytest.mark.parametrize(
    "spoil", [lambda d: bytes(52), lambda d: d[:4] + b"\x09" + d[5:], lambda d: b"x" + d[1:],
              lambda d: d[:-1]]
)  # fmt: skip
def test_a_mailbox_without_a_message(spoil):
    data = shift.Message(shift.Kind.MOVE, 1).encode(3)
    assert shift.read_message(spoil(data)) is None
