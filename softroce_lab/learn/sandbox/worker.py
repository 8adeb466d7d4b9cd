# SPDX-License-Identifier: GPL-2.0-or-later
"""The process of one host's policy. It receives calls of hooks, and answers with actions.

It knows neither seed nor fabric, and no other host: only what its policy returns leaves it. Its
guard names the file and the line of a mistake, for the student. The judge checks every answer.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from softroce_lab.errors import LabError, UserError
from softroce_lab.experiment.transports import guard, policy_file
from softroce_lab.experiment.transports.policy_call import PolicyCall, PolicyError
from softroce_lab.learn.sandbox.wire import Channel, WireError
from softroce_lab.transports import policy as hooked
from softroce_lab.transports.control import PacketSet
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.policy import Receiving, Sending

FAILOVER_HOOKS = ("on_failure", "on_move")
_LIMITS = {
    resource.RLIMIT_AS: 1 << 30,
    resource.RLIMIT_CPU: 120,  # seconds
    resource.RLIMIT_FSIZE: 1 << 16,
    resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_STACK: 1 << 23,
}
_TASKS = 2
"""Threads of a process in bubblewrap: its own, and its guard's. It starts no other."""
_IMPORTED_BEFORE = (  # modules that policies import, and modules that numpy imports late
    "bisect", "collections", "dataclasses", "functools", "heapq", "itertools", "math", "random",
    "statistics", "typing", "numpy.random", "encodings.idna",
)  # fmt: skip


# --- A transport's policy --------------------------------------------------------------------


class RemoteView:
    """A policy's view of its host. It asks the judge."""

    def __init__(self, channel: Channel, facts: dict[str, int]) -> None:
        self._channel = channel
        self._peers: dict[int, Any] = {}
        self._sends: dict[int, Any] = {}
        self.__dict__.update(facts)

    def remember(self, message: dict[str, Any], peer: dict[str, Any], send: Any) -> None:
        """Keep what came with a hook's call: the message's peer, and a send's state or None."""
        self._peers = {message["peer"]: SimpleNamespace(**peer)}
        self._sends = {} if send is None else {message["handle"]: send}

    def peer_state(self, peer: int) -> Any:
        if peer not in self._peers:
            self._peers[peer] = _object(self._ask("peer_state", peer))
        return self._peers[peer]

    def send_state(self, handle: int) -> Any:
        known = self._sends.get(handle)
        return _object(self._ask("send_state", handle) if known is None else known)

    send_progress = send_state  # a send's state holds its progress

    def receive_state(self, handle: int) -> Any:
        return _object(self._ask("receive_state", handle))

    def sent_on_paths(self, peer: int) -> list[int]:
        counts: list[int] = self._ask("sent_on_paths", peer)
        return counts

    def _ask(self, what: str, number: int) -> Any:
        self._channel.send(["ask", what, int(number)])
        return self._channel.receive()


def _object(facts: Any) -> Any:
    """An object with these facts. Its arrays are copies, as the engine's are."""
    if facts is None:
        return None
    arrays = {key: value.copy() for key, value in facts.items() if isinstance(value, np.ndarray)}
    return SimpleNamespace(**(facts | arrays))


class HostedTransport:
    """The policy of one run, and the messages that its hooks were given."""

    def __init__(self, channel: Channel, file: str, name: str, begin: dict[str, Any]) -> None:
        policy: Any = policy_file.entry(file, name, policy_file.digest(Path(file))).policy
        self.view = RemoteView(channel, begin["view"])
        self.policy: Any = policy(self.view, Timing(**begin["timing"]), {})
        self._messages: dict[tuple[bool, int], Any] = {}

    @property
    def facts(self) -> tuple[Any, list[str]]:
        """`chunk_packets`, and the hooks that the student's class defines."""
        defined = {
            name
            for base in type(self.policy).__mro__[1:]
            for name in vars(base)
            if base not in hooked.MessagePolicy.__mro__
        }
        hooks = [name for name in vars(hooked.MessagePolicy) if name.startswith("on_")]
        return self.policy.chunk_packets, [name for name in hooks if name in defined]

    def call(
        self, hook: str, message: dict[str, Any], peer: Any, send: Any, packets: Any, now: int
    ) -> list[Any]:
        """Call a hook; its actions, as lists."""
        self.view.remember(message, peer, send)
        known = self._known(message)
        more = () if packets is None else (packets.copy(),)
        return [_as_list(action) for action in getattr(self.policy, hook)(known, *more, now)]

    def _known(self, message: dict[str, Any]) -> Any:
        """The object of a message: the same one for all its hooks."""
        sends = message.pop("sends")
        message["key"] = tuple(message["key"])
        if message.get("known_missing") is not None:
            message["known_missing"] = PacketSet(*message["known_missing"])
        place = (sends, message["handle"])
        known = self._messages.get(place)
        if known is None:
            known = self._messages[place] = (Sending if sends else Receiving)(**message)
        for name, value in message.items():
            setattr(known, name, value)
        return known


def _as_list(action: Any) -> list[Any]:
    """An action's kind; whether it concerns a send, and which handle; its other fields."""
    if isinstance(action, hooked.Retransmit):
        packets = np.asarray(action.packets).astype("<u4")
        fields = [packets, bool(action.urgent), int(action.copies)]
        return ["Retransmit", True, action.send.handle, *fields]
    if isinstance(action, hooked.SetTimer):
        sends = isinstance(action.message, Sending)
        return ["SetTimer", sends, action.message.handle, int(action.at_ns)]
    if isinstance(action, hooked.DetectGaps):
        return ["DetectGaps", False, action.receive.handle, int(action.window_ns)]
    if isinstance(action, hooked.Feedback):
        return ["Feedback", False, action.receive.handle]
    if isinstance(action, hooked.RequestStatus):
        return ["RequestStatus", True, action.send.handle]
    return ["PathWeights", True, int(action.peer), [int(weight) for weight in action.weights]]


# --- A failover ------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False, slots=True)
class Request:
    """A request in flight, as a failover of lab 7 receives it."""

    number: int  # in the order of posting
    kind: str  # WRITE, WRITE_IMM, SEND, READ or ADD
    bytes: int
    notifies: bool  # the peer is notified of it: a SEND, or a WRITE with immediate
    once: bool  # its program wants it executed once or not at all
    begun: bool  # a packet of it has left


class HostedFailover:
    """One host's failover, for one run."""

    facts = (None, list(FAILOVER_HOOKS))

    def __init__(self, _: Channel, file: str, name: str, __: dict[str, Any]) -> None:
        policy: Any = policy_file.named(file, name, policy_file.digest(Path(file)))
        if not isinstance(policy, type):
            raise UserError(f"has no class {name!r}", hint=f"class {name}: ...", file=file)
        self._file = file
        self.failover: Any = guard.called(PolicyCall(file, "__init__"), policy)
        self._calls: dict[str, PolicyCall] = {}
        for hook in FAILOVER_HOOKS:
            code = getattr(getattr(self.failover, hook, None), "__code__", None)
            if code is None:
                raise PolicyError(file, None, f"has no method {hook}")
            self._calls[hook] = PolicyCall(file, hook, code.co_firstlineno)

    def call(self, hook: str, *more: Any) -> list[Any]:
        """Steps; or the places of the requests that are done, and of those to post again."""
        call = self._calls[hook]
        if hook == "on_failure":
            steps = guard.called(call, lambda: list(self.failover.on_failure()))
            if not all(isinstance(step, str) for step in steps):
                raise PolicyError(self._file, call.line, "on_failure returned no list of steps")
            return steps
        requests, executed = [Request(**fields) for fields in more[0]], more[1]
        answer = guard.called(call, lambda: self.failover.on_move(list(requests), executed))
        try:
            done, again = answer
            return [_places(done, requests), None if again is None else _places(again, requests)]
        except (TypeError, ValueError, KeyError):
            why = "on_move returned no two lists of the requests that it was given: done, again"
            raise PolicyError(self._file, call.line, why) from None


def _places(chosen: Sequence[Any], requests: Sequence[Request]) -> list[int]:
    places = {id(request): place for place, request in enumerate(requests)}
    return [places[id(request)] for request in chosen]


# --- The process -----------------------------------------------------------------------------

_KINDS: dict[str, Any] = {"transport": HostedTransport, "failover": HostedFailover}


def _restrict(isolated: bool) -> None:
    """Bound what this process takes. In bubblewrap, start no process, and be no root."""
    limits = dict(_LIMITS)
    if isolated:
        tasks = _TASKS
        if os.getuid() == 0:  # a user of its own: root's processes are not bounded
            user = (1 << 30) + int.from_bytes(os.urandom(3), "big")
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        else:
            tasks += 1  # bubblewrap's first process is of the same user
        limits[resource.RLIMIT_NPROC] = tasks
    for which, most in limits.items():
        _, hard = resource.getrlimit(which)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))


def _failure(error: Exception) -> list[Any]:
    if isinstance(error, PolicyError):
        return ["failed", error.line, error.why, error.hint]
    if isinstance(error, LabError):
        return ["failed", getattr(error, "line", None), error.what, error.hint]
    return ["failed", None, f"{type(error).__name__}: {error}", None]


def main() -> None:
    """Answer until the judge asks no more."""
    file, name, kind, isolated = sys.argv[1:]
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what the policy prints is no frame
    for module in _IMPORTED_BEFORE:
        importlib.import_module(module)
    _restrict(isolated == "isolated")
    hosted: Any = None
    while True:
        try:
            what, *more = channel.receive()
            if what == "begin":
                hosted = _KINDS[kind](channel, file, name, *more)
                channel.send(["ready", *hosted.facts])
            elif hosted is not None:
                channel.send(["done", hosted.call(*more)])
        except WireError:
            return
        except Exception as error:
            channel.send(_failure(error))


if __name__ == "__main__":
    main()
