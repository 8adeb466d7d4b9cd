# SPDX-License-Identifier: GPL-2.0-or-later
"""What a policy got of its endpoint and did to it, written down and given again.

`Recording` and `Replaying` are endpoints. The second one gives to any runner what the first one
gave, in the same order, and refuses a call that the recorded policy did not make.
"""

import types
from collections import deque

import numpy as np

ASKED = (
    "take_events", "send_progress", "send_state", "receive_state", "peer_state", "sent_on_paths",
)  # fmt: skip
READ = ("now_ns", "chunk_bytes", "window_packets", "control_bytes", "paths", "message_slots")
APPLIED = (
    "retransmit", "pause", "control", "set_timer", "set_peer_timer", "complete_send",
    "fail_receive", "detect_gaps", "set_path_weights", "move_path", "count",
)  # fmt: skip


def plain(value):
    """The same value without objects of the native module, which no file holds."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if type(value).__module__.startswith("softroce_lab._native"):
        fields = [name for name in dir(value) if not name.startswith("_")]
        return types.SimpleNamespace(**{name: getattr(value, name) for name in fields})
    return value


def comparable(value):
    """A call's arguments, or an action's fields, as `==` compares them."""
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


class Decisions(list):
    """What a runner's recorder is called with."""

    def record(self, now_ns, event, action):
        fields = comparable([getattr(action, name) for name in action.__slots__])
        self.append((now_ns, event.number, type(action).__name__, fields))

    def kinds(self):
        return {kind for _, _, kind, _ in self}


class Recording:
    """An endpoint that keeps all that its policy asks for, and all actions that are applied."""

    def __init__(self, endpoint):
        self._endpoint, self.calls = endpoint, []

    def __getattr__(self, name):
        value = getattr(self._endpoint, name)
        if name in READ:
            return self._kept(name, (), value)
        if name not in ASKED + APPLIED:
            return value
        return lambda *args: self._kept(name, args, value(*args))

    def _kept(self, name, args, value):
        value = plain(value)
        if name != "take_events" or value:
            self.calls.append((name, comparable(args), value))
        return value


class Replaying:
    """An endpoint without an engine: it gives what a `Recording` kept."""

    def __init__(self, calls):
        self._calls = deque(calls)

    def __getattr__(self, name):
        if name in READ:
            return self._next(name, ())
        if name in ASKED + APPLIED:
            return lambda *args: self._next(name, args)
        raise AttributeError(name)

    def _next(self, name, args):
        if not self._calls and name == "take_events":
            return []
        call = (name, comparable(args))
        recorded = self._calls[0][:2] if self._calls else None
        assert call == recorded, f"{call}, recorded was {recorded}"
        return self._calls.popleft()[2]

    @property
    def left(self):
        """Calls that have not been made again."""
        return len(self._calls)

    def set_qkey(self, qkey):
        """Of messengers, which have endpoints; no policy sees it."""
