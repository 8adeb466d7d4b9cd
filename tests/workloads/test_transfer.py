# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.workloads.transfer import Transfer


@given(st.integers(0, 10_000_000), st.integers(1, 1 << 20))
def test_pieces_tile_the_bytes(total, message):
    transfer = Transfer(total, max(message, total // 1000 + 1))
    at = 0
    for number, piece in enumerate(transfer):
        assert (piece.number, piece.offset_bytes) == (number, at)
        assert piece.key == (0, 0, number)
        at += piece.length_bytes
    assert at == total
    assert all(piece.length_bytes for piece in transfer) or total == 0


def test_nothing_is_one_empty_message():
    assert [(p.offset_bytes, p.length_bytes) for p in Transfer(0, 5)] == [(0, 0)]


@pytest.mark.parametrize(("total", "message"), [(-1, 1), (1, 0), (1, 1 << 32), (1 << 40, 1)])
def test_impossible_sizes(total, message):
    with pytest.raises(ValueError, match="a transfer has"):
        Transfer(total, message)
