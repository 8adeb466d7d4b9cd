# SPDX-License-Identifier: GPL-2.0-or-later
"""Records of bit fields: build and parse are inverses, values that do not fit are refused."""

import dataclasses
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm.layout import LayoutError, Record, at, data_at, record_at
from softroce_lab.programs.rdmacm.messages import MESSAGES, MadHeader, Path
from softroce_lab.programs.rdmacm.service import _Header

KINDS = [MadHeader, Path, _Header, *MESSAGES.values()]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@dataclasses.dataclass(frozen=True)
class Inner(Record):
    SIZE_BYTES: ClassVar[int] = 2
    low: int = at(1, 4, bit=4)


@dataclasses.dataclass(frozen=True)
class Outer(Record):
    SIZE_BYTES: ClassVar[int] = 8
    first: int = at(0, 3)
    across: int = at(0, 12, bit=3)
    inner: Inner = dataclasses.field(default_factory=Inner, metadata=record_at(2, Inner))
    data: bytes = data_at(5, 3)


def test_bits_count_from_the_most_significant():
    assert Outer(first=5, across=1).build().hex() == "a002" + 12 * "0"
    assert Outer(inner=Inner(9), data=b"ab").build().hex() == "0000" + "0009" + "00" + "616200"


def test_what_no_field_covers_is_reserved():
    assert Outer.defined().hex() == "fffe" + "000f" + "00" + "ffffff"


@pytest.mark.parametrize("value", [8, -1])
def test_a_value_wider_than_its_field_is_refused(value):
    with pytest.raises(LayoutError, match=r"first: .* does not fit 3 bits"):
        Outer(first=value).build()


def test_data_longer_than_its_field_is_refused():
    with pytest.raises(LayoutError, match="data: 4 bytes, 3 fit"):
        Outer(data=b"abcd")


@pytest.mark.parametrize("size", [0, 7, 9])
def test_octets_are_as_many_as_the_record_has(size):
    with pytest.raises(LayoutError, match=f"Outer: {size} bytes, not 8"):
        Outer.parse(bytes(size))


@by_kind
@given(data=st.data())
def test_parsed_octets_are_rebuilt_but_for_reserved_bits(kind, data):
    octets = data.draw(st.binary(min_size=kind.SIZE_BYTES, max_size=kind.SIZE_BYTES))
    kept = bytes(a & b for a, b in zip(octets, kind.defined(), strict=True))
    record = kind.parse(octets)
    assert record.build() == kept
    assert kind.parse(kept) == record


@by_kind
def test_no_two_fields_share_a_bit(kind):
    seen = 0
    for name, shift, mask, place in kind._fields():
        inner = place.of_int(0)  # a record leaves its reserved bits to others
        ones = int.from_bytes(inner.defined()) if isinstance(inner, Record) else mask
        assert not seen & (ones << shift), name
        seen |= ones << shift
    assert seen.bit_length() <= 8 * kind.SIZE_BYTES
