# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy whose hooks run in another process, and a record of its decisions.

Every answer of that process is checked here, whatever its own guard has checked before.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.learn.isolation import POLICY, Workers
from softroce_lab.transports import policy as hooked
from softroce_lab.transports import registry
from softroce_lab.transports.api import Key, PeerState, View
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.policy import MOST_COPIES, Action, MessagePolicy, Receiving, Sending

LABEL = "yours"

_VIEW_FACTS = ("chunk_bytes", "window_packets", "control_bytes", "paths", "message_slots")
_PEER_FACTS = tuple(PeerState.__annotations__)
_SEND_FACTS = ("count", "sent", "retransmit_pending", "paused", "attempts", "paths", "sent_ns",
               "waiting")  # fmt: skip
_RECEIVE_FACTS = ("open", "id", "count", "received", "duplicates", "highest", "first_missing",
                  "first_ns", "last_ns", "words")  # fmt: skip
_HOOKS = ("on_send_posted", "on_sent", "on_feedback", "on_send_timer", "on_receive_posted",
          "on_first_packet", "on_last_packet", "on_gap", "on_receive_timer")  # fmt: skip
_HOOKS_THAT_READ_STATE = ("on_feedback", "on_send_timer")
_NEWEST_NS = (1 << 63) - 1
_MAX_ACTIONS = 1 << 16
_MAX_RECORD_BYTES = 1 << 27
"""Bound of a trial's record; model solutions need a few MiB."""
_DECISION_BYTES = 1 << 10  # of a decision without its arrays, rounded up


@dataclasses.dataclass(frozen=True, slots=True)
class Retransmission:
    """What a policy decided to send again, and what it could know when it did."""

    at_ns: int
    hook: str
    key: Key
    sent: int  # packets that had been sent at least once
    packets: npt.NDArray[np.uint32]
    missing: npt.NDArray[np.uint32] | None  # by the newest feedback; None: there was none
    sent_ns: npt.NDArray[np.int64]  # when each packet was last sent
    srtt_ns: int
    copies: int
    sent_in_all: int  # packets that had been sent to this peer, repetitions included


@dataclasses.dataclass(frozen=True, slots=True)
class Weighting:
    """How a policy decided to share packets among paths."""

    weights: tuple[int, ...]
    sent: tuple[int, ...]  # packets that had been sent over each path


@dataclasses.dataclass(slots=True)
class Record:
    """The decisions of one trial."""

    retransmissions: list[Retransmission] = dataclasses.field(default_factory=list)
    weightings: list[Weighting] = dataclasses.field(default_factory=list)
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    hosts: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteTransport(Transport):
    """A transport whose policy is a submission's."""

    remote: registry.Entry | None = None

    @property
    def entry(self) -> registry.Entry:
        """The submission's entry."""
        if self.remote is None:
            raise ValueError("a transport without its submission")
        return self.remote


def transport(workers: Workers, record: Record) -> RemoteTransport:
    """The submission of these workers, for one trial that is recorded."""
    body = {"_workers": workers, "_record": record, "name": LABEL}
    made = type("Remote", (_RemotePolicy,), body)
    return RemoteTransport(LABEL, LABEL, remote=registry.Entry.of(made))


class _RemotePolicy(MessagePolicy):
    """The policy of one host."""

    _workers: Workers
    _record: Record

    def __init__(self, view: View, timing: Timing, options: Any = None) -> None:
        super().__init__(view, timing, options)
        self._messages: dict[tuple[bool, int], Sending | Receiving] = {}
        self._worker = self._workers.get(self._record.hosts)
        self._record.hosts += 1
        document = {"view": _facts(view, _VIEW_FACTS), "timing": dataclasses.asdict(timing)}
        chunk, self._hooks = self._worker.begin(document)
        if chunk is not None and not (isinstance(chunk, int) and 1 <= chunk <= 0xFFFF):
            raise PolicyError(POLICY, None, "chunk_packets is no number of packets")
        self.chunk_packets = chunk

    def _call(
        self, hook: str, message: Sending | Receiving, packets: Any, now_ns: int
    ) -> list[Action]:
        if hook not in self._hooks:
            return []
        self._record.calls[hook] += 1
        sends = isinstance(message, Sending)
        self._messages[sends, message.handle] = message
        reads = hook in _HOOKS_THAT_READ_STATE
        state = self._answer("send_state", message.handle) if reads else None
        peer = _facts(self.view.peer_state(message.peer), _PEER_FACTS)
        question = [hook, _as_document(message, sends), peer, state, packets, now_ns]
        answer = self._worker.call(question, self._answer)
        if len(answer) > _MAX_ACTIONS:
            self._refuse(hook, f"more than {_MAX_ACTIONS:,} actions")
        actions = [self._action(hook, written) for written in answer]
        for action in actions:
            if isinstance(action, hooked.Retransmit):
                self._record_retransmission(hook, action, now_ns)
            elif isinstance(action, hooked.PathWeights):
                sent = tuple(map(int, self.view.sent_on_paths(action.peer)))
                self._record.weightings.append(Weighting(tuple(action.weights), sent))
                self._count_record(hook, 0)
        return actions

    def _answer(self, what: Any, number: int) -> Any:
        """What a policy asks of its view; None if there is no such thing."""
        try:
            if what == "peer_state":
                return _facts(self.view.peer_state(number), _PEER_FACTS)
            if what == "sent_on_paths":
                return list(self.view.sent_on_paths(number))
        except (IndexError, OverflowError, TypeError):
            return None
        sends = what == "send_state"
        if (sends, number) not in self._messages:
            return None
        state: Any = self.view.send_state(number) if sends else self.view.receive_state(number)
        return None if state is None else _facts(state, _SEND_FACTS if sends else _RECEIVE_FACTS)

    def _refuse(self, hook: str, what: str) -> NoReturn:
        raise PolicyError(POLICY, None, f"{hook} returned {what}")

    def _action(self, hook: str, written: Any) -> Action:
        try:
            kind, sends, handle, *fields = written
            if kind == "PathWeights":
                self.view.peer_state(handle)  # raises if there is no such peer
                return hooked.PathWeights(handle, _weights(*fields, paths=self.view.paths))
            wanted, make = _ACTIONS[kind]
            message = self._messages[sends, handle]
            if not isinstance(message, wanted):
                raise TypeError
            return make(message, *fields)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError):
            self._refuse(hook, "what is no action")

    def _count_record(self, hook: str, size_bytes: int) -> None:
        """PolicyError before a submission takes as much of the judge's memory as it likes."""
        self._record.bytes += _DECISION_BYTES + size_bytes
        if self._record.bytes > _MAX_RECORD_BYTES:
            self._refuse(hook, "more actions than a run needs: the run was ended")

    def _record_retransmission(self, hook: str, action: hooked.Retransmit, now_ns: int) -> None:
        send = action.send
        state = self.view.send_state(send.handle)
        if state is None:
            return
        srtt_ns, _ = self.rtt_ns(send)
        known = None if send.known_missing is None else self.missing(send)
        arrays = (action.packets, known, state.sent_ns)
        self._count_record(hook, sum(array.nbytes for array in arrays if array is not None))
        self._record.retransmissions.append(
            Retransmission(
                now_ns, hook, send.key, state.sent, action.packets, known, state.sent_ns, srtt_ns,
                action.copies, sum(map(int, self.view.sent_on_paths(send.peer))),
            )
        )  # fmt: skip


def _hook(name: str) -> Callable[..., list[Action]]:
    def hook(self: _RemotePolicy, message: Sending | Receiving, *more: Any) -> list[Action]:
        packets = more[0].astype("<u4") if len(more) == 2 else None
        return self._call(name, message, packets, more[-1])

    return hook


for _name in _HOOKS:
    setattr(_RemotePolicy, _name, _hook(_name))


def _facts(state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(state, name) for name in names}


def _as_document(message: Sending | Receiving, sends: bool) -> dict[str, Any]:
    """A message's fields, without the policy's own memory, which stays where the policy is."""
    names = [field.name for field in dataclasses.fields(message) if field.name != "memory"]
    fields = _facts(message, tuple(names))
    missing = fields.get("known_missing")
    if missing is not None:
        fields["known_missing"] = [int(missing.base), missing.bits]
    return fields | {"sends": sends}


# --- Actions, as another process writes them -------------------------------------------------


def _retransmit(send: Any, packets: Any, urgent: Any, copies: Any) -> Action:
    if packets.dtype != np.uint32 or packets.ndim != 1:
        raise TypeError
    if packets.size and int(packets.max()) >= send.count:
        raise ValueError
    return hooked.Retransmit(send, packets, bool(urgent), _integer(copies, 1, MOST_COPIES))


def _weights(written: Any, *, paths: int) -> list[int]:
    weights = [_integer(weight, 0, 1 << 20) for weight in written]
    if len(weights) != paths or not any(weights):
        raise ValueError
    return weights


def _integer(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError
    return value


_ACTIONS: Mapping[str, tuple[Any, Callable[..., Action]]] = {
    "Retransmit": (Sending, _retransmit),
    "RequestStatus": (Sending, hooked.RequestStatus),
    "SetTimer": (
        (Sending, Receiving),
        lambda message, at_ns: hooked.SetTimer(message, _integer(at_ns, 0, _NEWEST_NS)),
    ),
    "DetectGaps": (
        Receiving,
        lambda receive, ns: hooked.DetectGaps(receive, _integer(ns, 0, _NEWEST_NS)),
    ),
    "Feedback": (Receiving, hooked.Feedback),
}
