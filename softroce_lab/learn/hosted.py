# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy whose hooks run in another process, and a record of what it retransmitted.

What comes from there is checked here, whatever its own guard has checked before.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.learn.crew import POLICY, Crew, Member
from softroce_lab.recovery import policy as hooked
from softroce_lab.recovery import registry
from softroce_lab.recovery.api import Key, PeerState, View
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.policy import MOST_COPIES, Action, MessagePolicy, Receiving, Sending

LABEL = "yours"

_VIEW_FACTS = ("chunk_bytes", "window_packets", "control_bytes", "paths", "message_slots")
_PEER_FACTS = tuple(PeerState.__annotations__)
_SEND_STATE = ("count", "sent", "retransmit_pending", "paused", "attempts", "paths", "sent_ns",
               "waiting")  # fmt: skip
_RECEIVE_STATE = ("open", "id", "count", "received", "duplicates", "highest", "first_missing",
                  "first_ns", "last_ns", "words")  # fmt: skip
_ASKED_BY = ("on_feedback", "on_send_timer")  # hooks that read the send's state nearly always
_NEWEST_NS = (1 << 63) - 1
_MOST_ACTIONS = 1 << 16
_MOST_NOTED_BYTES = 1 << 27
"""Of what is kept of a trial's decisions; model solutions come to a few MiB."""
_NOTE_BYTES = 1 << 10  # of one without its arrays, rounded up


@dataclasses.dataclass(frozen=True, slots=True)
class Retransmission:
    """What a policy decided to send again, and what it could know when it did."""

    at_ns: int
    hook: str
    host: int
    peer: int
    key: Key
    id: int
    count: int  # packets of the message
    sent: int  # of these that had been sent at least once
    packets: npt.NDArray[np.uint32]
    missing: npt.NDArray[np.uint32] | None  # by the newest feedback; None: there was none
    sent_ns: npt.NDArray[np.int64]  # when each packet was last sent
    srtt_ns: int
    rttvar_ns: int
    copies: int
    sent_in_all: int  # packets that had been sent to this peer, repetitions included


@dataclasses.dataclass(frozen=True, slots=True)
class Weighting:
    """How a policy decided to share packets among paths."""

    at_ns: int
    host: int
    peer: int
    weights: tuple[int, ...]
    sent: tuple[int, ...]  # packets that had been sent over each path


@dataclasses.dataclass(slots=True)
class Record:
    """Of one trial."""

    retransmissions: list[Retransmission] = dataclasses.field(default_factory=list)
    weightings: list[Weighting] = dataclasses.field(default_factory=list)
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    hosts: int = 0
    noted_bytes: int = 0  # of the first two


@dataclasses.dataclass(frozen=True, slots=True)
class HostedTransport(Transport):
    """A transport whose policy is a submission's."""

    hosted: registry.Entry | None = None

    @property
    def entry(self) -> registry.Entry:
        """Of the submission."""
        if self.hosted is None:
            raise ValueError("a transport without its submission")
        return self.hosted


def transport(crew: Crew, record: Record) -> HostedTransport:
    """The submission of this crew, for one trial that is recorded."""
    body = {"_crew": crew, "_record": record, "name": LABEL}
    made = type("Hosted", (_Remote,), body)
    return HostedTransport(LABEL, LABEL, hosted=registry.Entry.of(made))


class _Remote(MessagePolicy):
    """Each instance is a host's."""

    _crew: Crew
    _record: Record

    def __init__(self, view: View, timing: Timing, options: Any = None) -> None:
        super().__init__(view, timing, options)
        self._host = self._record.hosts
        self._record.hosts += 1
        self._messages: dict[tuple[bool, int], Sending | Receiving] = {}
        self._member: Member = self._crew.member(self._host)
        facts = {name: getattr(view, name) for name in _VIEW_FACTS}
        document = {"view": facts, "timing": dataclasses.asdict(timing)}
        chunk, self._hooks = self._member.begin(document)
        if chunk is not None and not (isinstance(chunk, int) and 1 <= chunk <= 0xFFFF):
            raise PolicyError(POLICY, None, "chunk_packets is no number of packets")
        self.chunk_packets = chunk

    # ---------------------------------------------------------------- a hook

    def _ask(
        self, hook: str, message: Sending | Receiving, now_ns: int, packets: Any = None
    ) -> list[Action]:
        if hook not in self._hooks:
            return []
        self._record.calls[hook] += 1
        sends = isinstance(message, Sending)
        self._messages[sends, message.handle] = message
        state = self._answer("send_state", message.handle) if hook in _ASKED_BY else None
        peer = _facts(self.view.peer_state(message.peer), _PEER_FACTS)
        question = [hook, _plain(message, sends), peer, state, packets, now_ns]
        found = self._member.call(question, self._answer)
        if len(found) > _MOST_ACTIONS:
            self._refuse(hook, f"more than {_MOST_ACTIONS:,} actions")
        actions = [self._action(hook, each) for each in found]
        for action in actions:
            if isinstance(action, hooked.Retransmit):
                self._note(hook, action, now_ns)
            elif isinstance(action, hooked.PathWeights):
                sent = tuple(map(int, self.view.sent_on_paths(action.peer)))
                shares = tuple(action.weights)
                decided = Weighting(now_ns, self._host, action.peer, shares, sent)
                self._record.weightings.append(decided)
                self._bounded(hook, 0)
        return actions

    def _answer(self, what: Any, of: int) -> Any:
        try:
            if what == "peer_state":
                return _facts(self.view.peer_state(of), _PEER_FACTS)
            if what == "sent_on_paths":
                return list(self.view.sent_on_paths(of))
        except (IndexError, OverflowError, TypeError):
            return None  # there is no such peer
        sends = what == "send_state"
        if (sends, of) not in self._messages:
            return None
        state: Any = self.view.send_state(of) if sends else self.view.receive_state(of)
        return None if state is None else _facts(state, _SEND_STATE if sends else _RECEIVE_STATE)

    def _refuse(self, hook: str, what: str) -> NoReturn:
        raise PolicyError(POLICY, None, f"{hook} returned {what}")

    def _action(self, hook: str, written: Any) -> Action:
        """An action of what is written; PolicyError if it is none."""
        try:
            kind, sends, handle, *more = written
            if kind == "PathWeights":
                self.view.peer_state(handle)  # there is such a peer
                return _path_weights(handle, *more, paths=self.view.paths)
            return _MAKERS[kind](self._messages[sends, handle], *more)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError):
            self._refuse(hook, "what is no action")

    def _bounded(self, hook: str, size_bytes: int) -> None:
        """PolicyError before the judge's memory is what a submission likes."""
        self._record.noted_bytes += _NOTE_BYTES + size_bytes
        if self._record.noted_bytes > _MOST_NOTED_BYTES:
            self._refuse(hook, "more actions than a run needs: the run was ended")

    def _note(self, hook: str, action: hooked.Retransmit, now_ns: int) -> None:
        send = action.send
        state = self.view.send_state(send.handle)
        if state is None:
            return
        srtt_ns, rttvar_ns = self.rtt_ns(send)
        known = None if send.known_missing is None else self.missing(send)
        arrays = (action.packets, known, state.sent_ns)
        self._bounded(hook, sum(each.nbytes for each in arrays if each is not None))
        self._record.retransmissions.append(
            Retransmission(
                now_ns, hook, self._host, send.peer, send.key, send.id, send.count, state.sent,
                action.packets, known, state.sent_ns, srtt_ns, rttvar_ns, action.copies,
                sum(map(int, self.view.sent_on_paths(send.peer))),
            )
        )  # fmt: skip

    # ---------------------------------------------------------------- hooks

    def on_send_posted(self, send: Sending, now_ns: int) -> list[Action]:
        return self._ask("on_send_posted", send, now_ns)

    def on_sent(self, send: Sending, now_ns: int) -> list[Action]:
        return self._ask("on_sent", send, now_ns)

    def on_feedback(self, send: Sending, now_ns: int) -> list[Action]:
        return self._ask("on_feedback", send, now_ns)

    def on_send_timer(self, send: Sending, now_ns: int) -> list[Action]:
        return self._ask("on_send_timer", send, now_ns)

    def on_receive_posted(self, receive: Receiving, now_ns: int) -> list[Action]:
        return self._ask("on_receive_posted", receive, now_ns)

    def on_first_packet(self, receive: Receiving, now_ns: int) -> list[Action]:
        return self._ask("on_first_packet", receive, now_ns)

    def on_last_packet(self, receive: Receiving, now_ns: int) -> list[Action]:
        return self._ask("on_last_packet", receive, now_ns)

    def on_gap(
        self, receive: Receiving, packets: npt.NDArray[np.uint32], now_ns: int
    ) -> list[Action]:
        return self._ask("on_gap", receive, now_ns, packets.astype("<u4"))

    def on_receive_timer(self, receive: Receiving, now_ns: int) -> list[Action]:
        return self._ask("on_receive_timer", receive, now_ns)


def _facts(state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(state, name) for name in names}


def _plain(message: Sending | Receiving, sends: bool) -> dict[str, Any]:
    """Its fields, but for the policy's own memory, which stays where the policy is."""
    found = {
        field.name: getattr(message, field.name)
        for field in dataclasses.fields(message)
        if field.name != "memory"
    }
    missing = found.get("known_missing")
    if missing is not None:
        found["known_missing"] = [int(missing.base), missing.bits]
    return found | {"sends": sends}


# --- Actions, as they are written -------------------------------------------------------------


def _retransmit(send: Any, packets: Any, urgent: Any, copies: Any) -> Action:
    if not isinstance(send, Sending) or packets.dtype != np.uint32 or packets.ndim != 1:
        raise TypeError
    if packets.size and int(packets.max()) >= send.count:
        raise ValueError
    return hooked.Retransmit(send, packets, bool(urgent), _whole(copies, 1, MOST_COPIES))


def _set_timer(message: Any, at_ns: Any) -> Action:
    return hooked.SetTimer(message, _whole(at_ns, 0, _NEWEST_NS))


def _detect_gaps(receive: Any, window_ns: Any) -> Action:
    return hooked.DetectGaps(_receiving(receive), _whole(window_ns, 0, _NEWEST_NS))


def _feedback(receive: Any) -> Action:
    return hooked.Feedback(_receiving(receive))


def _request_status(send: Any) -> Action:
    if not isinstance(send, Sending):
        raise TypeError
    return hooked.RequestStatus(send)


def _path_weights(peer: Any, weights: Any, *, paths: int) -> Action:
    shares = [_whole(each, 0, 1 << 20) for each in weights]
    if len(shares) != paths or not any(shares):
        raise ValueError
    return hooked.PathWeights(peer, shares)


def _receiving(receive: Any) -> Receiving:
    if not isinstance(receive, Receiving):
        raise TypeError
    return receive


def _whole(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError
    return value


_MAKERS: dict[str, Callable[..., Action]] = {
    "Retransmit": _retransmit,
    "SetTimer": _set_timer,
    "DetectGaps": _detect_gaps,
    "Feedback": _feedback,
    "RequestStatus": _request_status,
}
