# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.workloads.file import FileTransfer


def transfer(total, message, depth=2):
    return FileTransfer((3, 1), "file", total, message, depth)


@given(st.integers(0, 10_000_000), st.integers(1, 1 << 20))
def test_messages_tile_the_file(total, most):
    at = 0
    for number, message in enumerate(transfer(total, max(most, total // 1000 + 1)).messages()):
        assert message.key == (0, 0, number)
        assert (message.source, message.destination) == (3, 1)
        assert message.source_offset == message.destination_offset == at
        at += message.length_bytes
    assert at == total


def test_an_empty_file_is_one_empty_message():
    assert [each.length_bytes for each in transfer(0, 5).messages()] == [0]


def test_a_host_holds_its_slots_and_no_more():
    plenty = transfer(1 << 40, 1 << 20, depth=3)
    assert [plenty.buffer_bytes_of(host) >> 20 for host in (3, 1, 0)] == [3, 6, 0]
    assert [transfer(10, 4, depth=9).slots(host) for host in (3, 1)] == [3, 3]


@pytest.mark.parametrize(
    ("total", "message", "depth"),
    [(-1, 1, 1), (1, 0, 1), (1, 1 << 32, 1), (1 << 40, 1, 1), (1, 1, 0)],
)
def test_impossible_sizes(total, message, depth):
    with pytest.raises(ValueError, match="a file "):
        transfer(total, message, depth)
