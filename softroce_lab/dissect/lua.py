# SPDX-License-Identifier: GPL-2.0-or-later
"""Wireshark's dissector of the lab's own headers, as a Lua program made from `description`.

The program is tables, generated, and `walker.lua`, which walks them. It finds our headers as a
heuristic of InfiniBand payloads, before those that Wireshark brings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from softroce_lab.dissect import description, packet_sets
from softroce_lab.dissect.description import Field, MissingPackets, Record, Repeated, Text
from softroce_lab.dissect.opcodes import RC_SEND_ONLY, UC_WRITE_ONLY_IMMEDIATE, UD_SEND_ONLY

MARK = "-- softroce_lab: Wireshark's dissector of the lab's own headers"
"""The first line: what distinguishes our file from others'."""

_WALKER = Path(__file__).with_name("walker.lua")


def dissector(version: str) -> str:
    made = _Fields()
    tables = [
        f"local HEADER = {made.record(description.HEADER)}",
        f"local OPERATION = {made.record(description.OPERATION)}",
        f"local PACKET_SET = {made.packet_set()}",
        f"local REPORT_BODY = {made.record(description.REPORT_BODY)}",
        f"local PROBE_BODY = {made.record(description.PROBE_BODY)}",
        f"local HELLO = {made.record(description.HELLO)}",
        "local CONTROLS = {",
        *(f"  [{each}] = {made.record(body)}," for each, body in description.CONTROLS.items()),
        "}",
        f"local IMMEDIATE = {made.record(description.IMMEDIATE)}",
        f"local SDR_CLEAR = {made.record(description.SDR_CLEAR)}",
    ]
    return "\n".join(
        [
            MARK,
            f"-- Of softroce_lab {version}; `lab doctor --wireshark install` renews this file.",
            "-- SPDX-License-Identifier: GPL-2.0-or-later",
            "",
            'local softroce = Proto("softroce", "softroce_lab")',
            *_constants(),
            *(f"local {name} = {table}" for table, name in made.values.items()),
            "",
            "local fields = {",
            *(f"  {each}," for each in made.definitions),
            "}",
            "softroce.fields = fields",
            "",
            *tables,
            "",
            _WALKER.read_text(),
        ]
    )


def _constants() -> Iterator[str]:
    numbers = {
        "VERSION": description.HEADER_VERSION,
        "OPERATION_VERSION": description.OPERATION_VERSION,
        "RESULT": description.RESULT,
        "DATA": description.DATA,
        "CONTROL": description.CONTROL,
        "REPORT": description.REPORT,
        "PATH_PROBE": description.PATH_PROBE,
        "PARITY": description.PARITY,
        "SPORT_BASE": description.SPORT_BASE,
        "TRIM_LAST_DSCP": description.TRIM_LAST_DSCP,
        "UD_SEND_ONLY": UD_SEND_ONLY,
        "RC_SEND_ONLY": RC_SEND_ONLY,
        "UC_WRITE_ONLY_IMMEDIATE": UC_WRITE_ONLY_IMMEDIATE,
        "HELLO_ID": description.HELLO_ID,
        "MOST_SLOT_BYTES": description.MOST_SLOT_BYTES,
        "PLAIN": description.PLAIN,
        "RUNS": description.RUNS,
        "MOST_IN_SET": description.MOST_IN_SET,
        "MOST_SCALE": 1 << packet_sets.MOST_SHIFT,
        "MOST_SHOWN": packet_sets.MOST_SHOWN,
    }
    yield from (f"local {name} = {value}" for name, value in numbers.items())
    yield f"local KINDS = {_table(description.KINDS)}"
    yield f"local VERBS = {_table(description.VERBS)}"


def _table(values: Mapping[int, str]) -> str:
    return "{ " + ", ".join(f"[{key}] = {json.dumps(each)}" for key, each in values.items()) + " }"


class _Fields:
    """Definitions of ProtoFields as they are used, each once."""

    def __init__(self) -> None:
        self.definitions: list[str] = []
        self.values: dict[str, str] = {}  # a table of names for values -> the name of the table

    def _define(self, kind: str, name: str, label: str, *rest: str) -> str:
        arguments = ", ".join((json.dumps(name), json.dumps(label), *rest))
        self.definitions.append(f"ProtoField.{kind}({arguments})")
        return f"fields[{len(self.definitions)}]"

    def _numbers(self, prefix: str, parts: tuple[Field, ...]) -> tuple[str, int]:
        """A table of numbers, and the bytes that they take."""
        lines, bit = [], 0
        for part in parts:
            lines.append(self._number(f"{prefix}.{part.name}", part, bit))
            bit += part.bits
        if not lines:
            return "{}", 0
        return "{\n    " + ",\n    ".join(lines) + ",\n  }", bit // 8

    def _number(self, name: str, part: Field, bit: int) -> str:
        at, size = bit // 8, -(-(bit % 8 + part.bits) // 8)
        below = 8 * size - bit % 8 - part.bits  # bits of its bytes that are a later field's
        shares = 8 * size != part.bits
        rest = ["base.DEC"]
        if part.values or shares:
            rest.append(self._values(part.values))
        if shares:
            rest.append(f"{(1 << part.bits) - 1 << below:#0{2 + 2 * size}x}")
        field = self._define(f"uint{8 * size}", name, part.label, *rest)
        members = [f'name = "{part.name}"', f"at = {at}", f"bytes = {size}", f"field = {field}"]
        if shares:
            members += [f"unit = {1 << below}", f"most = {1 << part.bits}"]
        return "{ " + ", ".join(members) + " }"

    def _values(self, values: Mapping[int, str] | None) -> str:
        if values is None:
            return "nil"
        return self.values.setdefault(_table(values), f"values_{len(self.values) + 1}")

    def record(self, record: Record) -> str:
        prefix = ".".join(filter(None, (description.PREFIX, record.abbreviation)))
        numbers, size = self._numbers(
            prefix, tuple(part for part in record.parts if isinstance(part, Field))
        )
        members = [f"name = {json.dumps(record.name)}", f"bytes = {size}", f"numbers = {numbers}"]
        if record.abbreviation:
            members.append(f"field = {self._define('none', prefix, record.name)}")
        repeated = [part for part in record.parts if isinstance(part, Repeated)]
        if repeated:
            entries = ", ".join(self._entries(prefix, part) for part in repeated)
            members.append(f"entries = {{ {entries} }}")
        for part in record.parts:
            if isinstance(part, Text):  # behind all numbers
                field = self._define("string", f"{prefix}.{part.name}", part.label)
                text = f"{{ at = {size}, bytes = {part.octets}, field = {field} }}"
                members.append(f"text = {text}")
            if isinstance(part, MissingPackets):
                field = self._define("none", f"{prefix}.{part.name}", part.label)
                members.append(f"missing = {{ field = {field} }}")
        return "{\n  " + ",\n  ".join(members) + ",\n}"

    def _entries(self, prefix: str, part: Repeated) -> str:
        name = f"{prefix}.{part.name}"
        field = self._define("none", name, part.label)
        numbers, size = self._numbers(name, part.fields)
        count = json.dumps(part.count) if part.count else "nil"
        return f"{{ field = {field}, bytes = {size}, count = {count}, numbers = {numbers} }}"

    def packet_set(self) -> str:
        """The table of a packet set: a record, its bits, and what they say."""
        record = self.record(description.PACKET_SET)
        prefix = f"{description.PREFIX}.{description.PACKET_SET.abbreviation}"
        bits = self._define("bytes", f"{prefix}.bits", "Bits")
        packets = self._define("string", f"{prefix}.packets", "Packets")
        return record[: -len("}")] + f"  bits = {bits},\n  packets = {packets},\n}}"
