# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes down while it runs: what its policy did, why, and how late."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.hosts.report import HostRecords
from softroce_lab.experiment.messages import Ends
from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    EVENTS,
    LOSS_REASONS,
    LOST_PACKET,
    Action,
    Control,
    Encode,
    Event,
    FailReceive,
    Key,
    MovePath,
    Pause,
    Refuse,
    Restore,
    Retransmit,
    UsePaths,
)
from softroce_lab.telemetry import recoveries
from softroce_lab.telemetry.recoveries import Recoveries

EVENT = np.dtype(
    [
        ("time_ns", "i8"),
        ("kind", "U16"),
        ("operation", "u2"),
        ("step", "u2"),
        ("message", "u4"),
        ("packets", "u4"),
    ]
)

_LOSS = EVENTS.index("loss")
_RETRANSMIT = recoveries.EVENTS.index("retransmit")
_POLICY = recoveries.REASONS.index("policy")
_REASON_CHARACTERS = 48  # of the longest one
_NAMES = {
    kind: re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    for kind in get_args(control.Message)
}

About = bytes | Key  # a control message, or what a workload calls a message


class Reasons:
    """Why a policy retransmitted: by time and message, and by time alone for several messages."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, Key | None], str] = {}
        self._times: dict[Key | None, list[int]] = {}  # ascending

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, Key, str]]) -> Reasons:
        """Of times and messages whose reasons are known."""
        found = cls()
        found._of = {(time_ns, key): why for time_ns, key, why in rows}
        return found

    def add(self, now_ns: int, event: Event) -> None:
        """The event that a policy reacted to: a control message by its name, a timer, or how the
        engine found the losses.
        """
        reason, key = EVENTS[event.number], event.key
        if event.number == _LOSS:
            found = np.bincount(np.frombuffer(event.body, LOST_PACKET)["reason"])
            reason = ", ".join(LOSS_REASONS[each] for each in np.flatnonzero(found))
        elif event.body:
            try:
                message = control.decode(event.body)
            except control.ControlError:
                return
            reason, key = _NAMES[type(message)], _key(message)
        for about in (key, None):
            self._of[now_ns, about] = reason
            self._times.setdefault(about, []).append(now_ns)

    def of(self, now_ns: int, key: tuple[Any, ...]) -> str:
        """The reason; `policy` if it is not known."""
        return self._of.get((now_ns, key), self._of.get((now_ns, None), "policy"))

    def before(self, now_ns: int, key: Key) -> str:
        """The last one until then: on the real clock an engine acts a while after its policy."""
        for about in (key, None):
            times = self._times.get(about, [])
            if at := bisect.bisect_right(times, now_ns):
                return self._of[times[at - 1], about]
        return "policy"


class Journal:
    """Grows with loss checks, never with packets."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, About, int]] = []
        self._lateness: list[int] = []
        self.reasons = Reasons()

    def decided(self, lateness_ns: int) -> None:
        """A policy took up an event this long after it happened."""
        self._lateness.append(lateness_ns)

    def record(self, now_ns: int, event: Event, action: Action) -> None:
        """Write down an action that is worth a line: not the setting of timers."""
        lost = event.number == _LOSS
        about = event.key if lost else event.body or event.key
        match action:
            case Retransmit() if lost:
                packets = np.frombuffer(event.body, LOST_PACKET)
                counts = np.bincount(packets["reason"], minlength=len(LOSS_REASONS)).tolist()
                for reason, count in zip(LOSS_REASONS, counts, strict=True):
                    if count:
                        self._events.append((now_ns, f"retransmit_{reason}", about, count))
                self.reasons.add(now_ns, event)
            case Retransmit(indices=indices):
                self._events.append((now_ns, "retransmit", about, len(indices)))
                self.reasons.add(now_ns, event)
            case Control(body=body):
                self._events.append((now_ns, "control", body, 0))
            case Encode() | Restore():
                self._events.append((now_ns, type(action).__name__.lower(), event.key, 0))
            case FailReceive() | Pause() | MovePath() | UsePaths() | Refuse():
                self._events.append((now_ns, type(action).__name__.lower(), about, 0))

    def acts(self, epoch_ns: int) -> Iterator[dict[str, Any]]:
        """What the policy did, as lines of the event log; `epoch_ns`: CLOCK_MONOTONIC at time 0."""
        rows = (_row(*event) for event in self._events)
        for time_ns, act, _operation, _step, message, packets in rows:
            yield {
                "time_ns": epoch_ns + time_ns,
                "event": "policy",
                "act": act,
                "message": message,
                "packets": packets,
            }

    def lateness(self) -> dict[str, int]:
        """Percentiles of how late decisions came."""
        late = np.array(self._lateness or [0])
        return {f"p{q}": int(np.percentile(late, q)) for q in (50, 99, 100)}

    def records(self, ends: Ends, found: Recoveries) -> HostRecords:
        """With the ends of messages, and what was done about losses, which gets its reasons."""
        whys = np.full(len(found), "", dtype=f"U{_REASON_CHARACTERS}")
        policy = (found["event"] == _RETRANSMIT) & (found["reason"] == _POLICY)
        for row in np.flatnonzero(policy).tolist():
            key = tuple(found[row][["operation", "step", "message"]].tolist())
            whys[row] = self.reasons.before(int(found[row]["time_ns"]), key)
        return HostRecords(ends, self.events(), found, whys)

    def events(self) -> npt.NDArray[Any]:
        """What the policy did, as rows of `EVENT`."""
        return np.array([_row(*event) for event in self._events], dtype=EVENT)


Row: TypeAlias = tuple[int, str, int, int, int, int]
_SEVERAL: Key = 0, 0, 0


def _row(time_ns: int, kind: str, about: About, packets: int) -> Row:
    if isinstance(about, tuple):
        return time_ns, kind, *about, packets
    try:
        message = control.decode(about)
    except control.ControlError:
        return time_ns, kind, *_SEVERAL, packets
    name = _NAMES[type(message)] if kind == "control" else kind
    return time_ns, name, *_key(message), packets


def _key(message: control.Message) -> Key:
    """What the workload calls the message that a control message is about; zeros: several."""
    key: Key | None = getattr(message, "key", None)
    return _SEVERAL if key is None else key


def acted(node: str, acts: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """What a host's policy did, rows of `EVENT`: those columns of events.parquet that it has."""
    names = ("time_ns", "operation", "step", "message", "packets")
    return {
        "source": np.full(len(acts), node),
        "event": acts["kind"],
        **{name: acts[name] for name in names},
    }
