# SPDX-License-Identifier: GPL-2.0-or-later
"""Which packets a fault hits: kinds of packets, opcodes, and Lumina's named packets."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from softroce_lab.errors import UserError
from softroce_lab.faults.opcodes import OPCODES, UD_SEND_ONLY
from softroce_lab.faults.words import (
    NUMBER_MAX,
    NUMBER_SCHEMA,
    NUMBERS_SCHEMA,
    Compact,
    number,
    numbers,
    parts_of,
)
from softroce_lab.inputs.validation import KeyedError, did_you_mean
from softroce_lab.plan.effects import RC_TAILS, Filter, PacketKind

MAX_ITER = 64
QPN_MAX = PSN_MAX = 2**24 - 1

_KINDS: tuple[PacketKind, ...] = ("data", "parity", "control", "probe", "report", "other")


def _parse_kinds(value: object) -> tuple[PacketKind, ...]:
    parts = [part.strip() if isinstance(part, str) else part for part in parts_of(value)]
    for part in parts:
        if part not in _KINDS:
            raise UserError(f"unknown packets {part!r}", hint=did_you_mean(str(part), _KINDS))
    if not parts:
        raise UserError("an empty list can match nothing", hint=f"known: {', '.join(_KINDS)}")
    return tuple(kind for kind in _KINDS if kind in parts)


_KIND_SCHEMA: dict[str, Any] = {"enum": list(_KINDS)}
Kinds = Annotated[
    tuple[PacketKind, ...],
    PlainValidator(_parse_kinds),
    WithJsonSchema({"anyOf": [_KIND_SCHEMA, {"type": "array", "items": _KIND_SCHEMA}]}),
]


def _parse_opcode(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, int) and not isinstance(value, bool):
        opcode = value
    elif re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|\d{1,8}", text, re.ASCII):
        opcode = int(text, 0 if text[1:2] in {"x", "X"} else 10)
    elif text.upper() in OPCODES:
        opcode = OPCODES[text.upper()]
    else:
        raise UserError(f"unknown opcode {text!r}", hint=did_you_mean(text.upper(), OPCODES))
    if not 0 <= opcode <= 0xFF:
        raise UserError(f"opcode {text} can match nothing", hint="0x00 to 0xff, such as 0x64")
    return opcode


Opcode = Annotated[
    int,
    PlainValidator(_parse_opcode),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 255}, {"enum": list(OPCODES)}]}
    ),
]


class DropEvent(Compact):
    """Packets to drop: by their names, or all that match every given key."""

    flags: ClassVar = ("absolute",)

    message: Annotated[int, number("message", 0, NUMBER_MAX), NUMBER_SCHEMA] | None = Field(
        None,
        description=(
            "Number of a message of the workload, from 0. Without `packet`: the whole message, "
            "its parity, too."
        ),
    )
    packet: Annotated[tuple[int, ...], numbers("packet", 0, NUMBER_MAX), NUMBERS_SCHEMA] | None = (
        Field(
            None,
            description=(
                "Numbers of packets of data of that message, from 0: a number, a range `0-7`, or "
                "several."
            ),
        )
    )
    qpn: Annotated[int, number("qpn", 0, QPN_MAX), NUMBER_SCHEMA] | None = Field(
        None,
        description="The sender's n-th connection, from 1. Without `psn`: the whole connection.",
    )
    psn: Annotated[tuple[int, ...], numbers("psn", 0, PSN_MAX), NUMBERS_SCHEMA] | None = Field(
        None, description="Packets of that connection, from 1."
    )
    absolute: bool = Field(
        False, description="`qpn` and `psn` are the numbers on the wire, such as `0x100a`."
    )
    iter: Annotated[tuple[int, ...], numbers("iter", 1, MAX_ITER), NUMBERS_SCHEMA] | None = Field(
        None, description="Only these transmissions of a packet; 1 is the first. Default: all."
    )
    opcode: Opcode | None = Field(
        None,
        description=(
            "Packets with this opcode: a name of IBA 9.2.1, such as `RC_SEND_ONLY`, or a number."
        ),
    )
    only: Kinds | None = Field(
        None,
        description=(
            "Packets of these kinds: `data`, `parity`, `control`, `probe`, `report`, `other`. A "
            "path probe is `control`, too."
        ),
    )
    tail: Annotated[int, number("tail", 1, NUMBER_MAX), NUMBER_SCHEMA] | None = Field(
        None,
        description=(
            "This many last packets of the data of each message, not of its parity. RC: `1` is the "
            "last packet of a SEND or a WRITE, in its first transmission."
        ),
    )

    @property
    def named(self) -> bool:
        """Whether it names single packets."""
        return self.packet is not None or self.psn is not None

    @model_validator(mode="after")
    def _possible(self) -> DropEvent:
        if not (self.model_fields_set - {"absolute", "iter"}):
            raise UserError(
                "drop does not say which packets", hint="such as tail: 1; loss: blackout drops all"
            )
        self._check_company()
        self._check_relative()
        self._check_carriers()
        return self

    def _check_company(self) -> None:
        """Which keys go together."""
        if self.packet is not None and self.message is None:
            raise KeyedError("packet", "'packet' needs the 'message' that it is of")
        if self.psn is not None and self.qpn is None:
            raise KeyedError("psn", "'psn' needs the 'qpn' that it is of")
        if self.absolute and self.qpn is None:
            raise KeyedError("absolute", "'absolute' needs a 'qpn'")
        name = {"message", "packet"} if self.packet is not None else {"qpn", "psn", "absolute"}
        extra = [
            key for key in self.written_keys() if key in self.model_fields_set - name - {"iter"}
        ]
        if self.named and extra:
            own = "message and packet" if self.packet is not None else "qpn and psn"
            raise KeyedError(extra[0], f"{extra[0]!r} does not go with {own}, which name a packet")

    def _check_relative(self) -> None:
        """Relative numbers count from 1."""
        if self.absolute:
            return
        hint = "relative numbers count from 1; absolute: true takes those on the wire"
        if self.qpn == 0:
            raise KeyedError("qpn", "qpn 0 can match nothing", hint)
        if self.psn is not None and self.psn[0] == 0:
            raise KeyedError("psn", "psn 0 can match nothing", hint)

    def _check_carriers(self) -> None:
        """Packets that have all that is asked of them: of striped messages, or RC's tails.

        Striped messages alone have numbers and attempts; all packets of them are UD.
        """
        if self.named:
            return
        striped = [key for key in ("message", "tail", "iter") if key in self.model_fields_set]
        only = self.only or _KINDS
        asked = Filter((), message=self.message, tail=self.tail, iters=self.iter or ())
        tails = RC_TAILS if asked.takes_rc_tails and "other" in only else frozenset[int]()
        carries = any(kind in only for kind in asked.carriers)
        if striped and not carries and not tails:
            what = f"{striped[0]!r} can match nothing: only {', '.join(only)} packets count"
            raise KeyedError(striped[0], what, f"known to {', '.join(asked.carriers)} packets")
        ours = striped or "other" not in only
        sends = not striped or carries
        lab = frozenset({UD_SEND_ONLY}) if sends else frozenset[int]()
        if ours and self.opcode is not None and self.opcode not in lab | tails:
            beside = striped[0] if striped else "only"
            what = f"'opcode' can match nothing beside {beside!r}"
            hint = "the lab's own packets are all UD_SEND_ONLY"
            if tails:
                hint += "; the last packets of RC messages are ONLY and LAST of SEND and WRITE"
            raise KeyedError("opcode", what, hint)
