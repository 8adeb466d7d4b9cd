# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan of a lab that is up, as JSON beside its ledger."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from pathlib import Path
from typing import Any

from softroce_lab.errors import LabError
from softroce_lab.plan.plan import Plan

FILE = "plan.json"
NEXT = "plan.json.next"  # while a change is made


def write(plan: Plan, directory: Path) -> None:
    (directory / FILE).write_text(_text(plan), "utf-8")


def begin(plan: Plan, directory: Path) -> None:
    """Write the next plan next to the current one, before any change is made."""
    (directory / NEXT).write_text(_text(plan), "utf-8")


def commit(directory: Path) -> None:
    """Put the plan that came true in the place of the other; readers see one or the other."""
    (directory / NEXT).replace(directory / FILE)


def abandon(directory: Path) -> None:
    """Take away the plan that was to come true, none of which did."""
    (directory / NEXT).unlink(missing_ok=True)


def begun(directory: Path) -> Plan | None:
    """The plan of a change that was broken off; None: there is none."""
    try:
        return _parsed((directory / NEXT).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError):
        abandon(directory)  # it was broken off while this was written: nothing came true
        return None


def _text(plan: Plan) -> str:
    return json.dumps(plan, default=_fields) + "\n"


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass's fields and, unlike `dataclasses.asdict`, no deep copy of them."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def read(directory: Path) -> Plan:
    """The plan of the lab whose directory this is. FileNotFoundError, LabError if it is not one."""
    path = directory / FILE
    try:
        return _parsed(path.read_text("utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is not a plan: {error}", hint="only `lab down` is left") from error


@functools.lru_cache(maxsize=2)  # a plan is a value, and one process reads the same several times
def _parsed(text: str) -> Plan:
    plan = _as(Plan, json.loads(text))
    assert isinstance(plan, Plan)  # noqa: S101 - what _as makes of Plan
    return plan


@functools.cache
def _hints(wanted: type) -> dict[str, Any]:
    """The types of a dataclass's fields, which take long to find out."""
    return typing.get_type_hints(wanted)


def _as(wanted: Any, value: Any) -> Any:
    """`value`, which json read, as the type `wanted`: a dataclass, tuple, union or plain value."""
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        hints = _hints(wanted)
        return wanted(**{name: _as(hints[name], item) for name, item in value.items()})
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is tuple:
        kinds = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(value)
        return tuple(_as(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin in (typing.Union, types.UnionType) and value is not None:
        return _as(_arm(arguments, value), value)
    return value


def _arm(arguments: tuple[Any, ...], value: Any) -> Any:
    """The part of a union that `value` is: the only one, or the one of its `kind`."""
    kinds = [argument for argument in arguments if argument is not type(None)]
    if len(kinds) == 1:
        return kinds[0]
    by_name = {kind.__dataclass_fields__["kind"].default: kind for kind in kinds}
    return by_name[value["kind"]]
