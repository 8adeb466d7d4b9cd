# SPDX-License-Identifier: GPL-2.0-or-later
"""Between a user's policy and the engine: whatever the policy does ends in a clear error.

A guarded class is a subclass whose hooks check what the user's hooks return. PolicyError names the
file and the line of a hook that raises, does not return, or returns what is no action.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import traceback
import typing
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar, cast

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports.policy_call import (
    OverdueError,
    PolicyCall,
    PolicyError,
    by_user,
    line_in,
    of_this_thread,
)
from softroce_lab.transports import policy as hooked
from softroce_lab.transports.api import View
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.erasure.code import MOST_CHUNKS, ErasureCode
from softroce_lab.transports.options import Option, OptionError
from softroce_lab.transports.policy import NO_CODE, Actions, MessagePolicy, Receiving, Sending
from softroce_lab.transports.runner import ALWAYS_RUN

T = TypeVar("T")

MOST_ACTIONS = 1 << 16  # of one event
MOST_IDLE_TIMERS = 10_000  # in a row, each set for less than IDLE_TIMER_NS ahead
IDLE_TIMER_NS = 1000

_ON_TIMERS = ("on_send_timer", "on_receive_timer")
_NEWEST_NS = 1 << 63
MOST_CHUNK_PACKETS = 0xFFFF  # of CHUNKS


# --- A guarded class -------------------------------------------------------------------------


def guarded(policy: type[MessagePolicy], file: str, more: Mapping[str, Any]) -> type[MessagePolicy]:
    """The same policy; each of its hooks returns a list of actions, or raises PolicyError.

    `more`: attributes that it has besides.
    """
    body: dict[str, Any] = {}
    for name in _native.HOOKS:
        hook = getattr(policy, name)
        if name in ALWAYS_RUN or hook is not getattr(MessagePolicy, name):
            body[name] = _hook(name, hook, file)
    body["__init__"] = _init(policy, file)
    body["summary"] = _summary(policy, file)
    body["name"] = policy.name or policy.__name__
    body["__module__"] = policy.__module__
    return type(policy.__name__, (policy,), body | dict(more))


def _init(policy: type[MessagePolicy], file: str) -> Any:
    line = first_line(policy.__init__, file)
    call = PolicyCall(file, "__init__", line)

    def __init__(self: Any, view: View, timing: Timing, options: Any = None) -> None:  # noqa: N807
        object.__setattr__(self, "_guard", _Guard(view))
        try:
            called(call, lambda: policy.__init__(self, view, timing, options))
            if (why := wrong_chunk(self.chunk_packets)) is not None:
                raise PolicyError(file, line, why)
        except PolicyError as error:  # the first hook raises it: then there is a run to fail
            self._guard.broken = error

    return __init__


def wrong_chunk(packets: object) -> str | None:
    """What is wrong with such `chunk_packets`; None: nothing."""
    number = isinstance(packets, int) and 1 <= packets <= MOST_CHUNK_PACKETS
    if packets is None or number:
        return None
    most = f"{MOST_CHUNK_PACKETS:,}"
    return f"chunk_packets: {shown(packets)} is no number of packets from 1 to {most}"


def _summary(policy: type[MessagePolicy], file: str) -> Any:
    call = PolicyCall(file, "summary", first_line(policy.summary, file))

    def summary(self: Any) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            made = policy.summary(self)
            json.dumps(made)
            return dict(made)

        return called(call, make)

    return summary


def _hook(name: str, inner: Callable[..., Any], file: str) -> Any:
    """A hook's guard. It is on the path of every event."""
    line = first_line(inner, file)
    call = PolicyCall(file, name, line)

    def hook(self: Any, message: Sending | Receiving, *more: Any) -> Actions:  # the time is last
        guard: _Guard = self._guard
        if guard.busy:  # called by another hook
            return cast("Actions", inner(self, message, *more))
        if guard.broken is not None:
            raise guard.broken
        guard.busy = True
        call.enter()
        try:
            returned = inner(self, message, *more)
            actions = list(itertools.islice(returned, MOST_ACTIONS + 1))
        except OverdueError:
            raise call.error() from None
        except BaseException as error:  # SystemExit, too: it would end the command, with success
            if by_user(error):
                raise
            raise _raised(call, error) from error
        finally:
            call.leave()
            guard.busy = False
        try:
            guard.check(name, message.handle, actions, more[-1])
        except _Nonsense as error:
            raise PolicyError(file, line, f"{name} {error}") from None
        return actions

    return hook


def first_line(inner: Callable[..., Any], file: str) -> int | None:
    """Where a method of the file begins; None: it is of another file."""
    code = getattr(inner, "__code__", None)
    return code.co_firstlineno if code is not None and code.co_filename == file else None


def _raised(call: PolicyCall, error: BaseException) -> PolicyError:
    file, line, name = call.file, call.line, call.what
    if isinstance(error, MemoryError):
        error.__traceback__ = None  # of endless recursion: millions of frames
        hint = "it recurses without end, or keeps too much"
        return PolicyError(file, line, f"{name} raised MemoryError", hint=hint)
    frames = list(traceback.walk_tb(error.__traceback__))
    found = line_in(file, reversed(frames))
    if found is None and isinstance(error, TypeError) and "iter" in _text(error):
        return PolicyError(file, line, f"{name} returned no list of actions: {_text(error)}")
    where = "" if found is not None else _elsewhere(frames)
    text = _text(error)
    return PolicyError(file, found or line, f"{name} raised {type(error).__name__}: {text}{where}")


def _elsewhere(frames: list[tuple[FrameType, int]]) -> str:
    frame, line = frames[-1]
    if frame.f_code.co_filename == __file__:  # the call itself: wrong parameters
        return ""
    return f" ({frame.f_code.co_filename}:{line})"


def called(call: PolicyCall, run: Callable[[], T]) -> T:
    """What a user's part returns; PolicyError, with its line, if it does not."""
    try:
        return call.watched(run)
    except (OptionError, PolicyError):
        raise
    except BaseException as error:
        if by_user(error):
            raise
        raise _raised(call, error) from error


# --- What may be returned --------------------------------------------------------------------


class _Nonsense(Exception):  # noqa: N818 - never leaves this file
    """What is wrong with an action, as the end of a sentence."""


class _Guard:
    def __init__(self, view: View) -> None:
        self.busy = False
        self.broken: PolicyError | None = None
        self._view = view
        self._idle_timers: dict[int, int] = {}  # in a row, by handle

    def check(self, name: str, handle: int, actions: list[Any], now_ns: int) -> None:
        """_Nonsense for the first action that is none, or names what is not there."""
        if len(actions) > MOST_ACTIONS:
            raise _Nonsense(f"returned more than {MOST_ACTIONS:,} actions")
        for action in actions:
            checks = _CHECKS.get(type(action))
            if checks is None:
                raise _Nonsense(f"returned {shown(action)}, which is no action")
            for field, check in checks:
                try:
                    check(self, action, getattr(action, field))
                except (TypeError, ValueError, OverflowError) as error:
                    kind = type(action).__name__
                    raise _Nonsense(f"returned {kind} with {field}: {error}") from None
        if name in _ON_TIMERS:
            self._count_timers(handle, actions, now_ns + IDLE_TIMER_NS)

    def _count_timers(self, handle: int, actions: list[Any], until_ns: int) -> None:
        """A timer that sets itself for the present moment leaves no time between."""
        timers = [each for each in actions if type(each) is hooked.SetTimer]
        idle = any(each.at_ns < until_ns for each in timers)
        self._idle_timers[handle] = self._idle_timers.get(handle, 0) + 1 if idle else 0
        if self._idle_timers[handle] > MOST_IDLE_TIMERS:
            raise _Nonsense(
                f"set {MOST_IDLE_TIMERS:,} timers in a row less than {IDLE_TIMER_NS} ns ahead: "
                "time does not go on"
            )

    def packets(self, action: Any, packets: object) -> None:
        found = np.asarray(packets)
        if found.shape == (0,):
            return  # a list without packets has no type
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise ValueError(f"{shown(packets)} is no array of packet indices")
        count = action.send.count
        if int(found.min()) < 0 or int(found.max()) >= count:
            wrong = int(found.max()) if int(found.max()) >= count else int(found.min())
            raise ValueError(f"packet {wrong} of a message of {count}")

    def moment(self, _: object, at_ns: object) -> None:
        if not isinstance(at_ns, int | np.integer) or not 0 <= at_ns < _NEWEST_NS:
            raise ValueError(f"{at_ns!r} is no time in ns")

    def codes(self, _: object, by_bits: Any) -> None:
        found = [operator.index(each) for each in by_bits]
        if len(found) != 33 or not all(0 <= each <= 255 for each in found):
            raise ValueError(f"{shown(by_bits)} is no code, 0 to 255, for each of 0 to 32 bits")

    def peer(self, _: object, peer: object) -> None:
        try:
            self._view.peer_state(operator.index(peer))  # type: ignore[arg-type]
        except IndexError:
            raise ValueError(f"there is no peer {peer!r}") from None

    def weights(self, _: object, weights: Any) -> None:
        found = [operator.index(each) for each in weights]
        if len(found) != self._view.paths or min(found) < 0 or not 0 < sum(found) < 1 << 32:
            raise ValueError(f"{found} are no weights of {self._view.paths} paths")


def _kind(kinds: Any, what: str) -> Callable[[_Guard, Any, Any], None]:
    def check(_guard: _Guard, _action: object, value: object) -> None:
        if not isinstance(value, kinds):
            raise TypeError(f"{shown(value)} is no {what}")

    return check


def _between(low: int, high: int, what: str) -> Callable[[_Guard, Any, Any], None]:
    def check(_guard: _Guard, _action: object, value: object) -> None:
        if not isinstance(value, int | np.integer) or not low <= value <= high:
            raise ValueError(f"{shown(value)} is no {what}")

    return check


_BY_FIELD: Mapping[str, Callable[[_Guard, Any, Any], None]] = {
    "packets": _Guard.packets,
    "message": _kind(Sending | Receiving, "message that a hook was given"),
    "send": _kind(Sending, "message that is sent here"),
    "receive": _kind(Receiving, "message that is received here"),
    "at_ns": _Guard.moment,
    "copies": _between(1, hooked.MOST_COPIES, f"number from 1 to {hooked.MOST_COPIES}"),
    "peer": _Guard.peer,
    "weights": _Guard.weights,
    "window_ns": _between(0, _NEWEST_NS - 1, "reordering window in ns"),
    "submessage": _between(0, (1 << 32) - 1, "number of a submessage"),
    "code": _kind(ErasureCode, "ErasureCode"),
    "by_bits": _Guard.codes,
}


_CHECKS: Mapping[type, list[tuple[str, Callable[..., None]]]] = {
    kind: [
        (field.name, _BY_FIELD[field.name])
        for field in dataclasses.fields(kind)
        if field.name in _BY_FIELD
    ]
    for kind in typing.get_args(hooked.Action)
}


def shown(value: object) -> str:
    """For an error: not longer than a line has room for."""
    text = _text(value, repr)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: object, as_text: Callable[[object], str] = str) -> str:
    try:
        return as_text(value)
    except Exception:  # the user's own __str__ or __repr__
        return f"{type(value).__name__} without a text"


# --- What a class declares beside its hooks ------------------------------------------------------

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
        return f"{name}.framings is {shown(framings)}, not a tuple of {' and '.join(known)}"
    for attribute, (kind, what) in _TYPES.items():
        if not isinstance(value := getattr(policy, attribute), kind):
            return f"{name}.{attribute} is {shown(value)}, not {what}"
    for attribute in _JUDGES:
        if not callable(value := getattr(policy, attribute)):
            return f"{name}.{attribute} is {shown(value)}, not a class method"
    if isinstance(policy.chunk_packets, int) and (why := wrong_chunk(policy.chunk_packets)):
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
    line = first_line(inner, file)
    call = PolicyCall(file, name, line)

    def method(cls: type[MessagePolicy], *of: Any) -> Any:
        if of_this_thread().inside:  # of another part of the file, which is guarded
            return inner(*of)
        try:
            returned = called(call, lambda: inner(*of))
        except PolicyError as error:
            raise UserError(error.why, hint=error.hint, file=file, line=error.line) from None
        try:
            return judge(returned)
        except (TypeError, ValueError):
            what = f"{name} returned {shown(returned)}, not {_WANTED[name]}"
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
    if not 1 <= packets <= MOST_CHUNK_PACKETS:
        raise ValueError
    return packets


_JUDGES: Mapping[str, Callable[[Any], object]] = {
    "check": lambda _: None,
    "codes": _codes,
    "code_chunk_packets": _code_chunk_packets,
}
_WANTED = {
    "codes": f"at most {NO_CODE} pairs (k, m) with k, m >= 1 and k + m <= {MOST_CHUNKS}",
    "code_chunk_packets": f"a number of packets from 1 to {MOST_CHUNK_PACKETS:,}",
}
