# SPDX-License-Identifier: GPL-2.0-or-later
"""Control messages on the wire: there and back, cut to fit, and whatever else may arrive."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.transports import control
from softroce_lab.transports.control import (
    Ack,
    Chunks,
    Clear,
    Keepalive,
    Nack,
    PacketSet,
    Refused,
    Rnr,
    Sack,
)
from tests import control_bodies

MTU_ROOM = [256 - 40, 512 - 40, 1024 - 40, 2048 - 40, 4096 - 40]
U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
KEYS = st.tuples(U16, U16, U32)


def bits_of(runs):
    """Alternating runs, as losses come."""
    return np.repeat(np.arange(len(runs)) % 2 == 0, runs)


BITS = st.one_of(
    st.lists(st.integers(1, 400), max_size=30).map(bits_of),
    st.lists(st.booleans(), max_size=300).map(lambda bits: np.array(bits, dtype=np.bool_)),
)
SETS = st.builds(PacketSet, U32, BITS)


NACKS = st.builds(
    Nack,
    st.integers(0, 3),
    U32,
    st.tuples(*[U32] * 16),
    st.lists(st.tuples(U32, U32, U64), max_size=6).map(tuple),
    U16,
    st.lists(st.tuples(U8, st.integers(0, 2**24 - 1)), max_size=12).map(tuple),
)
MESSAGES = st.one_of(
    NACKS,
    st.builds(Ack, st.lists(U32, max_size=53).map(tuple)),
    st.builds(Keepalive, st.lists(st.tuples(U32, KEYS), max_size=17).map(tuple)),
    st.builds(Rnr, U32, KEYS, st.none() | U8),
    st.builds(Refused, U32, KEYS, st.booleans(), U8),
    st.builds(Sack, U32, KEYS, st.none() | SETS),
    st.builds(Chunks, U32, KEYS, U16, st.none() | SETS),
    st.builds(
        Clear, U8, U16, U32, U32, U64, st.lists(st.tuples(U32, KEYS, U32), max_size=12).map(tuple)
    ),
)


def assert_same(decoded, message):
    """Equal, but that a set may have been cut at its end."""
    missing = getattr(message, "missing", None)
    if missing is None:
        assert decoded == message
        return
    count = len(decoded.missing.bits)
    assert decoded.missing.base == missing.base
    assert decoded.missing.bits.tolist() == missing.bits[:count].tolist()
    hidden = dataclasses.replace(message, missing=None)
    assert dataclasses.replace(decoded, missing=None) == hidden


@given(MESSAGES, st.sampled_from(MTU_ROOM))
def test_what_is_encoded_is_decoded_and_fits(message, room):
    body = control_bodies.encode(message, room)
    assert len(body) <= room
    assert_same(control.decode(body), message)


@given(MESSAGES, st.data())
def test_a_damaged_message_is_a_message_or_a_control_error(message, data):
    """The likelier forgery: nearly right."""
    body = bytearray(control_bodies.encode(message, 216))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(U8)
    del body[data.draw(st.integers(0, len(body))) :]
    try:
        decoded = control.decode(bytes(body))
    except control.ControlError:
        return
    missing = getattr(decoded, "missing", None)
    assert missing is None or len(missing.bits) <= control.MOST_IN_SET


def test_an_rnr_has_one_reason_or_none():
    body = control_bodies.encode(Rnr(1, (1, 2, 3)), 2008)
    assert control.decode(body + b"\x21") == Rnr(1, (1, 2, 3), 33)
    for wrong in (body[:-1], body + b"\x01\x01"):
        with pytest.raises(control.ControlError):
            control.decode(wrong)


@pytest.mark.parametrize(
    "message",
    [
        Refused(1, (1, 2, 3), True, 9),
        Ack((1, 2)),
        Keepalive(((1, (1, 2, 3)),)),
        Nack(0, 1, (2,) * 16, ((3, 4, 5),)),
        Nack(0, 1, (2,) * 16, (), 0, ((3, 4),)),
        Sack(1, (1, 2, 3), PacketSet(0, np.ones(9, np.bool_))),
    ],
)
def test_a_byte_more_or_less_is_no_message(message):
    body = control_bodies.encode(message, 2008)
    for wrong in (body[:-1], body + b"\x01"):
        with pytest.raises(control.ControlError):
            control.decode(wrong)


# ---------------------------------------------------------------- lists that are too long


@pytest.mark.parametrize(
    ("kind", "unit", "most"), [(3, 4, control.MOST_ACKED), (4, 12, control.MOST_IN_KEEPALIVE)]
)
def test_a_list_is_bounded(kind, unit, most):
    control.decode(bytes([kind]) + bytes(unit * most))
    with pytest.raises(control.ControlError, match="too many"):
        control.decode(bytes([kind]) + bytes(unit * (most + 1)))


# ---------------------------------------------------------------- packet sets


@pytest.mark.parametrize(
    "body",
    [
        "01 00000000 00200000 ffff3f",  # two million packets of three bytes
        "01 00000000 00000005 06",  # a run longer than announced
        "01 00000000 00000005 04",  # shorter
        "01 00000000 00000005 85",  # cut in the middle of a number
        "01 00000000 00000005 8080808080 05",  # a number of more than five bytes
        "00 00000000 00000009 ff",  # nine bits in a byte
        "02 00000000 00000001 01",  # no such form
        "00 0000",
    ],
)
def test_a_set_that_contradicts_itself(body):
    with pytest.raises(control.ControlError):
        control.decode(bytes([7]) + bytes(12) + bytes.fromhex(body))
