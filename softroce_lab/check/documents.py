# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of a run directory, as far as the checkers rely on them.

They may be cut, edited or foreign: what is there has the type that it should have, or is
refused with its place. What is absent stays absent, and what is not known here is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

# Of the standard library, pydantic takes TypedDicts since Python 3.12 only.
from typing_extensions import TypedDict

from softroce_lab.errors import UserError

_CONFIG = ConfigDict(extra="allow", strict=True)
_Int = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_Time = Annotated[int, Field(ge=1, lt=1 << 53)]
_OCTAVES = 64
_Histogram = Annotated[list[_Int], Field(max_length=_OCTAVES)]
"""Entry i counts what lasted 2^i to 2^(i+1) ns."""


class _Document(TypedDict):
    __pydantic_config__ = _CONFIG  # type: ignore[misc]


class HostFacts(_Document, total=False):
    """A host's process, on the real clock."""

    decision_lateness_ns: dict[str, _Int]
    timer_lateness_log2_ns: _Histogram
    turn_length_log2_ns: _Histogram


class CaptureFacts(_Document, total=False):
    file: str


class RunFacts(_Document, total=False):
    run: str
    transport: str
    protocol: str
    seed: Annotated[int, Field(ge=0, lt=1 << 64)]
    clock: str
    capture: CaptureFacts
    counters: dict[str, dict[str, _Int]]
    timing: dict[str, _Time]
    options: dict[str, bool | int | float | str]
    message_slots: Annotated[int, Field(ge=1, le=1 << 32)]
    stalled_ns: Annotated[int, Field(ge=0, lt=1 << 53)]
    verified: bool | None
    emulator_drops: _Int
    contexts_missed: _Int
    sha256: dict[str, str | None]
    processes: dict[str, HostFacts]


class FaultFacts(_Document, total=False):
    """What a rule did, in words, and on which directed links."""

    fault: str
    links: list[str]


class Manifest(_Document, total=False):
    source: str
    destination: str
    hosts: list[str]
    faults: list[FaultFacts]
    runs: list[RunFacts]


class _Wire(_Document, total=False):
    duplicated: _Int
    dropped_by_queue: _Int


class _LinkNeeds(_Document):
    name: str
    received: _Int
    emulator_drops: _Int
    injected_drops: _Int


class LinkFacts(_LinkNeeds, total=False):
    """A directed link's figures."""

    on_its_way: _Int
    wire: _Wire | None


class Links(_Document, total=False):
    runs: dict[str, list[LinkFacts]]


_MANIFEST = TypeAdapter(Manifest)
_LINKS = TypeAdapter(Links)


def read_manifest(path: Path) -> dict[str, Any]:
    """What was run; empty, if the file is not there. UserError if it is another one's."""
    return _read(_MANIFEST, path)


def read_links(path: Path) -> dict[str, Any]:
    """Figures of every directed link, by run. UserError as above."""
    return dict(_read(_LINKS, path).get("runs", {}))


def _read(adapter: TypeAdapter[Any], path: Path) -> dict[str, Any]:
    try:
        return dict(adapter.validate_python(json.loads(path.read_bytes())))
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise UserError(f"{place}: {first['msg'].lower()}", file=str(path)) from None
    except RecursionError:
        raise UserError("is nested too deep", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}", file=str(path)) from error
