# SPDX-License-Identifier: GPL-2.0-or-later
"""Opcodes against scapy's table of the same numbers."""

from scapy.contrib import roce

from softroce_lab.faults.opcodes import OPCODES, UD_SEND_ONLY


def test_scapy_agrees_on_all_that_it_knows() -> None:
    number_of = {name: number for number, name in roce._bth_opcodes.items()}
    both = number_of.keys() & OPCODES.keys()
    assert len(both) >= 30
    assert {name: number_of[name] for name in both} == {name: OPCODES[name] for name in both}


def test_numbers_are_those_of_one_name() -> None:
    assert len(set(OPCODES.values())) == len(OPCODES)
    assert OPCODES["UD_SEND_ONLY"] == UD_SEND_ONLY
