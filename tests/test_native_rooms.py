# SPDX-License-Identifier: GPL-2.0-or-later
"""The one-way order of the native rooms: what a C or C++ file includes lies further down.

A room is a folder below native/, and below native/engine/. As in tests/test_rooms.py, rooms of one
storey do not know each other, and no files include each other in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_rooms import first_circle

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "native"

STOREYS = (
    {"bindings", "veth", "fuzz", "verbs/rdmacm"},
    {"verbs"},
    {"sim", "live"},
    {"pair", "endpoint", "wire", "monitor", "shift"},
    {"engine/rnic", "transport", "capture", "system"},
    {"engine/striped"},
    {"engine/verbs", "erasure"},
    {"engine/codec", "engine/congestion"},
    {"engine"},  # units, counters, containers
    {"xdp"},  # what BPF and user space share
)
STOREY = {room: number for number, rooms in enumerate(STOREYS) for room in rooms}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
SUFFIXES = {".cpp", ".hpp", ".c", ".h"}


def sources() -> list[Path]:
    found = [p for room in ("native", "xdp") for p in (ROOT / room).rglob("*")]
    return sorted(p for p in found if p.suffix in SUFFIXES)


def room_of(path: Path) -> str:
    """The folder that holds it: of native/engine/ the folder in there."""
    parts = path.relative_to(ROOT).parts[:-1]
    return parts[0] if parts[0] == "xdp" else "/".join(parts[1:3])


def included(path: Path, text: str) -> Iterator[Path]:
    """The project's files that a file names; xdp/ is on the monitor's include path."""
    for name in INCLUDE.findall(text):
        beside = (path.parent / name).resolve()
        yield beside if beside.is_file() else ROOT / "xdp" / name


def misplaced(path: Path, text: str) -> list[str]:
    """What a file includes that its room may not know."""
    room = room_of(path)
    return [
        f"{path.relative_to(ROOT)} includes {other.relative_to(ROOT)}"
        for other in included(path, text)
        if (target := room_of(other)) != room and STOREY[target] <= STOREY[room]
    ]


def test_every_native_folder_has_a_storey():
    assert {room_of(path) for path in sources()} <= STOREY.keys()


def test_every_included_file_is_there():
    assert [str(o) for p in sources() for o in included(p, p.read_text()) if not o.is_file()] == []


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sources()])
def test_a_file_includes_downwards_only(path):
    assert misplaced(path, path.read_text()) == []


def test_no_files_include_each_other_in_a_circle():
    graph = {str(p): {str(o) for o in included(p, p.read_text())} for p in sources()}
    assert first_circle(graph) == []


# The checker itself can fail.


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("native/engine/codec/codec.cpp", '#include "../verbs/completion.hpp"'),
        ("native/engine/verbs/memory.hpp", '#include "../striped/message_engine.hpp"'),
        ("native/engine/codec/crc.hpp", '#  include "../congestion/congestion.hpp"'),
        ("native/engine/units.hpp", '#include "codec/packet.hpp"'),
        ("native/engine/striped/timers.hpp", '#include "../../system/clock.hpp"'),
        ("native/sim/fabric.cpp", '#include "../live/host.hpp"'),
        ("native/wire/stage.cpp", '#include "../endpoint/endpoint.hpp"'),
        ("native/monitor/sink.cpp", '#include "../wire/link.hpp"'),
        ("xdp/lab_wire.h", '#include "../native/engine/units.hpp"'),
    ],
)
def test_an_upward_include_is_found(path, text):
    assert len(misplaced(ROOT / path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("native/engine/striped/sender.hpp", '#include "../verbs/completion.hpp"'),
        ("native/engine/striped/sender.hpp", '#include "flow_control.hpp"\n#include <vector>'),
        ("native/monitor/sink.hpp", '#include "lab_records.h"'),
        ("native/sim/fabric.hpp", '// "../live/host.hpp"\n#include "../wire/wheel.hpp"'),
    ],
)
def test_a_downward_include_is_fine(path, text):
    assert misplaced(ROOT / path, text) == []
