# SPDX-License-Identifier: GPL-2.0-or-later
"""A case of `lab fuzz failover` as a file: what a seed means, written out."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from softroce_lab.errors import UserError
from softroce_lab.experiment.fuzz.failover.draw import BOTH, Change, Drawn
from softroce_lab.experiment.fuzz.failover.work import FA, RECEIVE_BYTES, SI, SLOT, WI, Op, R, S, W
from softroce_lab.inputs.validation import Model, did_you_mean, validate
from softroce_lab.inputs.yaml_source import Source

_KINDS = {
    "WRITE": W, "WRITE_WITH_IMM": WI, "SEND": S, "SEND_WITH_IMM": SI, "READ": R, "FETCH_ADD": FA,
}  # fmt: skip
_NAMES: dict[int, str] = {kind: name for name, kind in _KINDS.items()}
_MARKS = ("signaled", "once")
_DIRECTIONS = {"to h2": 0, "to h1": 1, "both": BOTH}
_DOWN, _UP = "down", "up"
_CARRIES = re.compile(r"carries (\d{1,9}) more", re.ASCII)


def _request(text: str) -> str:
    _op(text)
    return text


def _cable(text: str) -> str:
    if text not in (_DOWN, _UP) and not _CARRIES.fullmatch(text):
        raise UserError(f"{text!r} is no state of a cable", hint="down, up, or carries N more")
    return text


def _op(text: str) -> Op:
    name, *rest = text.split() or [""]
    if name not in _KINDS:
        raise UserError(f"no request is called {name!r}", hint=did_you_mean(name, _KINDS))
    longest = RECEIVE_BYTES if name.startswith("SEND") else 8 if name == "FETCH_ADD" else SLOT
    length, *marks = rest or [""]
    if not (length.isascii() and length.isdecimal() and int(length) <= longest):
        raise UserError(f"{text!r}: expected its bytes, at most {longest}", hint=f"{name} 8")
    if unknown := [each for each in marks if each not in _MARKS]:
        raise UserError(
            f"{text!r}: unexpected {unknown[0]!r}", hint=did_you_mean(unknown[0], _MARKS)
        )
    return Op(_KINDS[name], int(length), "signaled" in marks, "once" in marks)


_Requests = Annotated[
    list[list[Annotated[str, AfterValidator(_request)]]], Field(min_length=2, max_length=2)
]
_Time = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Chance = Annotated[float, Field(ge=0, le=1)]


class _Cut(Model):
    at_ns: _Time
    rail: Annotated[int, Field(ge=0, le=1)]
    direction: Literal["to h2", "to h1", "both"]
    cable: Annotated[str, AfterValidator(_cable)]


class _Later(Model):
    at_ns: _Time
    requests: _Requests


class _CaseFile(Model):
    failover_seed: Annotated[int, Field(ge=0)]
    only_harmless: bool
    backup_fails: bool
    old_packets: bool
    at_once: Annotated[int, Field(ge=1)]
    receive_every: Annotated[int, Field(ge=1)]
    delay_ns: _Time
    jitter_ns: _Time
    duplicate: _Chance
    loss_on_backup: _Chance
    changes: list[_Cut]
    requests: _Requests
    later: list[_Later]


_AS_THEY_ARE = {  # fields that the file has as a seed's have them, and comments on them
    "only_harmless": " # no request that may not be repeated", "backup_fails": "",
    "old_packets": "", "at_once": "", "receive_every": "", "delay_ns": "", "jitter_ns": "",
    "duplicate": "", "loss_on_backup": "",
}  # fmt: skip


def of(source: Source) -> Drawn:
    """UserError with the place of what is wrong."""
    found = validate(_CaseFile, source)
    later = [(each.at_ns, _ops(each.requests)) for each in found.later]
    return Drawn(
        seed=found.failover_seed,
        requests=_ops(found.requests),
        changes=sorted(map(_change, found.changes), key=lambda change: change.at_ns),
        later=sorted(later, key=lambda each: each[0]),
        **found.model_dump(include={*_AS_THEY_ARE}),
    )


def _ops(requests: list[list[str]]) -> list[list[Op]]:
    return [[_op(text) for text in each] for each in requests]


def _change(cut: _Cut) -> Change:
    carries = _CARRIES.fullmatch(cut.cable)
    what = int(carries[1]) if carries else cut.cable == _DOWN
    return Change(cut.at_ns, cut.rail, _DIRECTIONS[cut.direction], what)


def text(drawn: Drawn) -> str:
    """The file, YAML."""
    later = (f"{{at_ns: {at}, requests: {_requests_text(ops)}}}" for at, ops in drawn.later)
    lines = [
        f"failover_seed: {drawn.seed} # of the cables' losses, delays and duplicates",
        *(f"{name}: {json.dumps(getattr(drawn, name))}{about}"
          for name, about in _AS_THEY_ARE.items()),
        *_listed("changes", map(_cut_text, drawn.changes)),
        f"requests: {_requests_text(drawn.requests)}",
        *_listed("later", later),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _listed(key: str, entries: Any) -> list[str]:
    found = [f"  - {each}" for each in entries]
    return [f"{key}:", *found] if found else [f"{key}: []"]


def _cut_text(change: Change) -> str:
    direction = next(name for name, each in _DIRECTIONS.items() if each == change.direction)
    if isinstance(change.what, bool):
        cable = _DOWN if change.what else _UP
    else:
        cable = f"carries {change.what} more"
    return f"{{at_ns: {change.at_ns}, rail: {change.rail}, direction: {direction}, cable: {cable}}}"


def _requests_text(ops: list[list[Op]]) -> str:
    hosts = (", ".join(map(_op_text, each)) for each in ops)
    return f"[{', '.join(f'[{each}]' for each in hosts)}]"


def _op_text(op: Op) -> str:
    marks = (name for name, has in zip(_MARKS, (op.signaled, op.once), strict=True) if has)
    return " ".join([_NAMES[op.kind], str(op.length), *marks])
