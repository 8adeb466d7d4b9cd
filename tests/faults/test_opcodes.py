# SPDX-License-Identifier: GPL-2.0-or-later
"""Opcodes against scapy's table of the same numbers."""

import pytest
from scapy.contrib import roce

from softroce_lab.faults.opcodes import OPCODES, UD_SEND_ONLY, opcode_name


@pytest.mark.parametrize(
    ("name", "opcode"),
    [
        ("RC_SEND_FIRST", 0x00),
        ("RC_SEND_ONLY", 0x04),
        ("RC_RDMA_WRITE_ONLY", 0x0A),
        ("RC_ACKNOWLEDGE", 0x11),
        ("RC_FETCH_ADD", 0x14),
        ("RC_SEND_ONLY_WITH_INVALIDATE", 0x17),
        ("UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", 0x2B),
        ("RD_RESYNC", 0x55),
        ("UD_SEND_ONLY", 0x64),
        ("UD_SEND_ONLY_WITH_IMMEDIATE", 0x65),
        ("CNP", 0x81),
    ],
)
def test_numbers_of_the_architecture(name: str, opcode: int) -> None:
    assert OPCODES[name] == opcode
    assert opcode_name(opcode) == name


def test_scapy_agrees_on_all_that_it_knows() -> None:
    number_of = {name: number for number, name in roce._bth_opcodes.items()}
    both = number_of.keys() & OPCODES.keys()
    assert len(both) >= 30
    assert {name: number_of[name] for name in both} == {name: OPCODES[name] for name in both}


def test_numbers_are_those_of_one_name() -> None:
    assert len(set(OPCODES.values())) == len(OPCODES)
    assert OPCODES["UD_SEND_ONLY"] == UD_SEND_ONLY


def test_an_opcode_without_a_name_is_its_number() -> None:
    assert opcode_name(0xC1) == "0xc1"
