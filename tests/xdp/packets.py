# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets as the fault rules see them."""

from softroce_lab import _native
from softroce_lab.structs import CONSTANTS, Struct, enumerators

_PACKET, _IDENTITY = Struct("lab_packet"), Struct("lab_identity")
_KINDS = enumerators("lab_kind")


def packet(*, kind, opcode=_native.NO_OPCODE, new_tail=False, **values):
    """struct lab_packet; `values`: members of it and of its identity."""
    bit = 1 << kind
    if kind == _KINDS["probe"]:
        bit = 1 << _KINDS["control"] | CONSTANTS["LAB_KIND_BIT_PROBE"]
    if kind == _KINDS["parity"]:
        bit = CONSTANTS["LAB_KIND_BIT_PARITY"]
    if kind == CONSTANTS["LAB_KIND_NONE"]:
        bit = CONSTANTS["LAB_KIND_BIT_OTHER"]
    names = {name: value for name, value in values.items() if name in _IDENTITY.members}
    return _PACKET.pack(
        id=_IDENTITY.pack(kind=kind, **names),
        kind_bit=bit | CONSTANTS["LAB_KIND_BIT_TAIL"] * new_tail,
        opcode=opcode,
        **{name: value for name, value in values.items() if name not in names},
    )
