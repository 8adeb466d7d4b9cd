# SPDX-License-Identifier: GPL-2.0-or-later
"""The native table of memory regions, without the checks that its Python face makes before it."""

import errno

import numpy as np
import pytest

from softroce_lab import _native
from tests.refusals import refused

LOCAL_WRITE, REMOTE_READ = 1, 4
BYTES = 4096
TOP = (1 << 64) - 1


@pytest.fixture
def endpoint():
    return _native.FrameEndpoint(_native.MessageConfig(), 0x020000000001)


@pytest.fixture
def memory():
    return np.zeros(BYTES, np.uint8)


@pytest.mark.parametrize(
    ("address", "length"),
    [(0, 64), (4096, 0), (4096, TOP), (TOP, 1), (TOP - 62, 64), (TOP, TOP)],
)
def test_ranges_that_are_none(endpoint, address, length):
    refused(errno.EINVAL, endpoint.register_memory, address, length, LOCAL_WRITE)


def test_deregistering_what_is_not_there(endpoint, memory):
    key = endpoint.register_memory(memory.ctypes.data, BYTES, LOCAL_WRITE)
    endpoint.deregister_memory(key)
    for unknown in (key, key + 1, 0, 0xFFFFFFFF):
        refused(errno.EINVAL, endpoint.deregister_memory, unknown)


def poster(endpoint, *, send, domain=0):
    """Posts message after message of the memory's (key, offset, length)."""
    peer = endpoint.connect(0x0A000002, 2, 0x11, 0x12, 0)
    verb = endpoint.post_send if send else endpoint.post_receive
    numbers = iter(range(1000))
    return lambda key, offset, length: verb(
        peer, (0, 0, next(numbers)), key, offset, length, 0, domain
    )


@pytest.mark.parametrize("send", [True, False])
def test_bounds(endpoint, memory, send):
    key = endpoint.register_memory(memory.ctypes.data, BYTES, LOCAL_WRITE)
    post = poster(endpoint, send=send)
    inside = [(0, BYTES), (1, BYTES - 1), (BYTES - 1, 1), (BYTES, 0), (0, 0)]
    for offset, length in inside:
        post(key, offset, length)
    outside = [(0, BYTES + 1), (1, BYTES), (BYTES, 1), (BYTES + 1, 0), (TOP, 1), (TOP - 1, 4),
               (1 << 63, 1), (TOP, 0xFFFFFFFF), (BYTES, 0xFFFFFFFF)]  # fmt: skip
    for offset, length in outside:
        refused(errno.EINVAL, post, key, offset, length)
    refused(errno.EINVAL, post, key + 1, 0, 1)
    with pytest.raises(ValueError, match="4 GiB"):
        post(key, 0, 1 << 32)


def test_a_refused_work_request_holds_nothing(endpoint, memory):
    """Refused by the table, or by the engine: a peer that is not there, a key that is taken."""
    key = endpoint.register_memory(memory.ctypes.data, BYTES, LOCAL_WRITE)
    refused(errno.EINVAL, endpoint.post_send, 0, (0, 0, 0), key, 1, BYTES, 0)
    endpoint.post_send(99, (0, 0, 0), key, 0, 1, 0)
    endpoint.post_receive(99, (0, 0, 0), key, 0, 1, 0)
    peer = endpoint.connect(0x0A000002, 2, 0x11, 0x12, 0)
    for _ in range(2):
        endpoint.post_send(peer, (0, 0, 0), key, 0, 1, 0)
    assert [each.status for each in endpoint.poll_completions()] == [2, 2, 2]  # LOC_QP_OP_ERR
    refused(errno.EBUSY, endpoint.deregister_memory, key)
    endpoint.flush_messages()
    endpoint.deregister_memory(key)
