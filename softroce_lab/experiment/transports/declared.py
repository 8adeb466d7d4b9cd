# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user's policy declares beside its hooks: attributes, and class methods that are called
before a run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import guard, watchdog
from softroce_lab.experiment.transports.policy_call import PolicyCall, PolicyError
from softroce_lab.transports.erasure.code import MOST_CHUNKS
from softroce_lab.transports.options import Option
from softroce_lab.transports.policy import NO_CODE, MessagePolicy

_TYPES = {"has_rto": (bool, "True or False"), "name": (str, "a text")}


def wrong(policy: type[MessagePolicy]) -> str | None:
    """What is wrong with the attributes of a class; None: nothing."""
    name, options, known = policy.__name__, policy.options, _native.framing_names()
    if not isinstance(options, tuple | list) or not all(isinstance(o, Option) for o in options):
        return f"{name}.options holds something else than Option(...)"
    if len({option.name for option in options}) < len(options):
        return f"{name}.options has two options of one name"
    framings: object = policy.framings
    if policy.framing not in known:
        return f"{name}.framing is {policy.framing!r}, not {' or '.join(known)}"
    listed = framings if isinstance(framings, tuple | list) else ()
    if not listed or not all(each in known for each in listed):
        return f"{name}.framings is {guard.shown(framings)}, not a tuple of {' and '.join(known)}"
    for attribute, (kind, what) in _TYPES.items():
        if not isinstance(value := getattr(policy, attribute), kind):
            return f"{name}.{attribute} is {guard.shown(value)}, not {what}"
    for attribute in _JUDGES:
        if not callable(value := getattr(policy, attribute)):
            return f"{name}.{attribute} is {guard.shown(value)}, not a class method"
    if isinstance(policy.chunk_packets, int) and (why := guard.wrong_chunk(policy.chunk_packets)):
        return f"{name}.{why}"
    return None


def class_methods(policy: type[MessagePolicy], file: str) -> dict[str, Any]:
    """Those that are called before a run. UserError, with the line, for what they raise or return.

    OptionError passes.
    """
    return {name: _method(policy, name, judge, file) for name, judge in _JUDGES.items()}


def _method(
    policy: type[MessagePolicy], name: str, judge: Callable[[Any], object], file: str
) -> Any:
    inner = getattr(policy, name)
    if not callable(inner):
        return inner  # `wrong` names it
    line = guard.first_line(inner, file)
    call = PolicyCall(file, name, line)

    def method(cls: type[MessagePolicy], *of: Any) -> Any:
        if watchdog.of_this_thread().inside:  # of another part of the file, which is guarded
            return inner(*of)
        try:
            returned = guard.called(call, lambda: inner(*of))
        except PolicyError as error:
            raise UserError(error.why, hint=error.hint, file=file, line=error.line) from None
        try:
            return judge(returned)
        except (TypeError, ValueError):
            what = f"{name} returned {guard.shown(returned)}, not {_WANTED[name]}"
            raise UserError(what, file=file, line=line) from None

    return classmethod(method)


# --- What class methods may return -----------------------------------------------------------


def _codes(returned: Any) -> tuple[tuple[int, int], ...]:
    found = tuple((operator.index(k), operator.index(m)) for k, m in returned)
    if len(found) > NO_CODE or any(k < 1 or m < 1 or k + m > MOST_CHUNKS for k, m in found):
        raise ValueError
    return found


def _code_chunk_packets(returned: Any) -> int:
    packets = operator.index(returned)
    if not 1 <= packets <= guard.MOST_CHUNK_PACKETS:
        raise ValueError
    return packets


_JUDGES: Mapping[str, Callable[[Any], object]] = {
    "check": lambda _: None,
    "codes": _codes,
    "code_chunk_packets": _code_chunk_packets,
}
_WANTED = {
    "codes": f"at most {NO_CODE} pairs (k, m) with k, m >= 1 and k + m <= {MOST_CHUNKS}",
    "code_chunk_packets": f"a number of packets from 1 to {guard.MOST_CHUNK_PACKETS:,}",
}
