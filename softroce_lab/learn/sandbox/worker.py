# SPDX-License-Identifier: GPL-2.0-or-later
"""The process of one host's policy. It gets hooks, and answers with actions.

It knows neither seed nor fabric, and no other host: what its policy returns is all that leaves it.
Its own guard names file and line of what is wrong, for the student. The judge trusts none of it.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from softroce_lab.errors import LabError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.learn.sandbox import failover, seccomp
from softroce_lab.learn.sandbox.wire import Channel, WireError
from softroce_lab.recovery import policy as hooked
from softroce_lab.recovery.control import PacketSet
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.work import Receiving, Sending

MOST_MEMORY_BYTES = 1 << 30
MOST_CPU_S = 120
# What policies import, and numpy loads late.
_BEFOREHAND = ("bisect", "collections", "dataclasses", "functools", "heapq", "itertools", "math",
               "random", "statistics", "typing", "numpy.random", "encodings.idna")  # fmt: skip


class _View:
    """A policy's view: it asks the judge."""

    def __init__(self, channel: Channel, facts: dict[str, int]) -> None:
        self._channel = channel
        self._peers: dict[int, Any] = {}
        self._sends: dict[int, Any] = {}
        self.__dict__.update(facts)

    def learn(self, message: dict[str, Any], peer: dict[str, Any], send: Any) -> None:
        """What is known of a message while this hook runs: its peer, and a send's state or None."""
        self._peers = {message["peer"]: SimpleNamespace(**peer)}
        self._sends = {} if send is None else {message["handle"]: send}

    def peer_state(self, peer: int) -> Any:
        if peer not in self._peers:
            self._peers[peer] = _state(self._ask("peer_state", peer))
        return self._peers[peer]

    def send_state(self, handle: int) -> Any:
        if handle in self._sends:
            return _state(self._sends[handle])
        return _state(self._ask("send_state", handle))

    send_progress = send_state  # which has all of it

    def receive_state(self, handle: int) -> Any:
        return _state(self._ask("receive_state", handle))

    def sent_on_paths(self, peer: int) -> list[int]:
        found: list[int] = self._ask("sent_on_paths", peer)
        return found

    def _ask(self, what: str, of: int) -> Any:
        self._channel.send(["ask", what, int(of)])
        return self._channel.receive()


def _state(facts: Any) -> Any:
    """An object with these facts; its arrays are copies, as the engine's are."""
    if facts is None:
        return None
    arrays = {key: value.copy() for key, value in facts.items() if isinstance(value, np.ndarray)}
    return SimpleNamespace(**(facts | arrays))


class _Hosted:
    """One run's policy, and the messages that its hooks were given."""

    def __init__(self, channel: Channel, file: str, name: str, begin: dict[str, Any]) -> None:
        sha256 = policy_file.digest(Path(file))
        made: Any = policy_file.entry(file, name, sha256).policy
        self.view = _View(channel, begin["view"])
        self.policy: Any = made(self.view, Timing(**begin["timing"]), {})
        self._messages: dict[tuple[bool, int], Any] = {}

    @property
    def ready(self) -> tuple[Any, list[str]]:
        """What the judge has to know."""
        return self.policy.chunk_packets, self.hooks

    @property
    def hooks(self) -> list[str]:
        """Those that its class defines: the others return nothing."""
        own = {name for each in type(self.policy).__mro__[1:] for name in vars(each)
               if each not in hooked.MessagePolicy.__mro__}  # fmt: skip
        return [name for name in vars(hooked.MessagePolicy) if name.startswith("on_")
                and name in own]  # fmt: skip

    def call(
        self, hook: str, message: dict[str, Any], peer: Any, send: Any, packets: Any, now: int
    ) -> Any:
        """The actions of a hook, as lists."""
        self.view.learn(message, peer, send)
        known = self._known(message)
        more = () if packets is None else (packets.copy(),)
        return [_plain(action) for action in getattr(self.policy, hook)(known, *more, now)]

    def _known(self, message: dict[str, Any]) -> Any:
        sends = message.pop("sends")
        message["key"] = tuple(message["key"])
        if message.get("known_missing") is not None:
            message["known_missing"] = PacketSet(*message["known_missing"])
        place = (sends, message["handle"])
        known = self._messages.get(place)
        if known is None:
            known = (Sending if sends else Receiving)(**message)
            self._messages[place] = known
        else:
            for name, value in message.items():
                setattr(known, name, value)
        return known


_KINDS: dict[str, type[_Hosted | failover.Hosted]] = {
    "transport": _Hosted,
    "failover": failover.Hosted,
}


def _plain(action: Any) -> list[Any]:
    """Its kind; whether it is about a send, and of which handle; the rest."""
    if isinstance(action, hooked.Retransmit):
        packets = np.asarray(action.packets).astype("<u4")
        more = [packets, bool(action.urgent), int(action.copies)]
        return ["Retransmit", True, action.send.handle, *more]
    if isinstance(action, hooked.SetTimer):
        sends = isinstance(action.message, Sending)
        return ["SetTimer", sends, action.message.handle, int(action.at_ns)]
    if isinstance(action, hooked.DetectGaps):
        return ["DetectGaps", False, action.receive.handle, int(action.window_ns)]
    if isinstance(action, hooked.Feedback):
        return ["Feedback", False, action.receive.handle]
    if isinstance(action, hooked.RequestStatus):
        return ["RequestStatus", True, action.send.handle]
    return ["PathWeights", True, int(action.peer), [int(each) for each in action.weights]]


def _failed(error: Exception) -> list[Any]:
    if isinstance(error, PolicyError):
        return ["failed", error.line, error.why, error.hint]
    if isinstance(error, LabError):
        return ["failed", getattr(error, "line", None), error.what, error.hint]
    return ["failed", None, f"{type(error).__name__}: {error}", None]


def _restrict() -> None:
    """Bound what this process takes, and what it may ask of the kernel."""
    limits = {
        resource.RLIMIT_AS: MOST_MEMORY_BYTES,
        resource.RLIMIT_CPU: MOST_CPU_S,
        resource.RLIMIT_FSIZE: 1 << 16,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: 1 << 23,
    }
    for which, most in limits.items():
        _, hard = resource.getrlimit(which)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))
    seccomp.drop_capabilities()
    seccomp.install()


def main() -> None:
    """Answer until the judge asks no more."""
    file, name, kind = sys.argv[1:]
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # a print of the policy is no frame
    for each in _BEFOREHAND:
        importlib.import_module(each)
    _restrict()
    hosted: _Hosted | failover.Hosted | None = None
    while True:
        try:
            what, *more = channel.receive()
            if what == "begin":
                hosted = _KINDS[kind](channel, file, name, *more)
                channel.send(["ready", *hosted.ready])
            elif hosted is not None:
                channel.send(["done", hosted.call(*more)])
        except WireError:
            return
        except Exception as error:
            channel.send(_failed(error))


if __name__ == "__main__":
    main()
