# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes down while it runs: completions, and what its policy did and how late."""

from __future__ import annotations

from typing import IO, Any

import numpy as np

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Control,
    Event,
    FailReceive,
    Pause,
    Refuse,
    Resend,
    UsePaths,
)

COMPLETION = np.dtype(
    [
        ("message", "u4"),
        ("opcode", "u1"),
        ("status", "u1"),
        ("bytes", "u4"),
        ("packets", "u4"),
        ("resent", "u4"),
        ("duplicates", "u4"),
        ("posted_ns", "i8"),
        ("first_ns", "i8"),
        ("completed_ns", "i8"),
    ]
)
EVENT = np.dtype([("time_ns", "i8"), ("kind", "U16"), ("message", "u4"), ("packets", "u4")])

About = bytes | int  # a control message, or the number of a workload's message


class Journal:
    """Grows with messages and looks, never with packets."""

    def __init__(self) -> None:
        self._completions: list[tuple[Any, ...]] = []
        self._events: list[tuple[int, str, About, int]] = []
        self._lateness: list[int] = []

    def complete(self, completion: Any) -> None:
        """Write a work completion down."""
        names = COMPLETION.names or ()
        fields = {"message": completion.key[2], "bytes": completion.byte_len}
        self._completions.append(
            tuple(fields.get(name, getattr(completion, name, None)) for name in names)
        )

    def decided(self, lateness_ns: int) -> None:
        """A policy took up an event this long after it happened."""
        self._lateness.append(lateness_ns)

    def record(self, now_ns: int, event: Event, action: Action) -> None:
        """Write down an action that is worth a line: not the setting of timers."""
        about = event.body or event.key[2]
        match action:
            case Resend(indices=indices):
                self._events.append((now_ns, "resend", about, len(indices)))
            case Control(body=body):
                self._events.append((now_ns, "control", body, 0))
            case FailReceive() | Pause() | UsePaths() | Refuse():
                self._events.append((now_ns, type(action).__name__.lower(), about, 0))

    def lateness(self) -> dict[str, int]:
        """Percentiles of how late decisions came."""
        late = np.array(self._lateness or [0])
        return {f"p{q}": int(np.percentile(late, q)) for q in (50, 99, 100)}

    def save(self, file: IO[bytes]) -> None:
        """Write completions and events as .npz."""
        np.savez(
            file,
            completions=np.array(self._completions, dtype=COMPLETION),
            events=np.array([_row(*event) for event in self._events], dtype=EVENT),
        )


def _row(time_ns: int, kind: str, about: About, packets: int) -> tuple[int, str, int, int]:
    if isinstance(about, int):
        return time_ns, kind, about, packets
    try:
        message = control.decode(about)
    except control.ControlError:
        return time_ns, kind, 0, packets
    name = type(message).__name__.lower() if kind == "control" else kind
    return time_ns, name, _number(message), packets


def _number(message: control.Message) -> int:
    """The workload's number of the message that a control message is about; 0: several."""
    key = getattr(message, "key", None)
    return 0 if key is None else int(key[2])
