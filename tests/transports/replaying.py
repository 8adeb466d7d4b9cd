# SPDX-License-Identifier: GPL-2.0-or-later
"""What a policy got of its endpoint and did to it, written down and given again.

`Recording` and `Replaying` are endpoints. The second one gives to any runner what the first one
gave, in the same order, and refuses a call that the recorded policy did not make.
"""

import types
from collections import deque

import numpy as np

ASKED = (
    "take_calls", "send_progress", "send_state", "receive_state", "peer_state", "sent_on_paths",
)  # fmt: skip
READ = ("now_ns", "chunk_bytes", "window_packets", "control_bytes", "paths", "message_slots")
APPLIED = (
    "retransmit_sent", "send_feedback", "request_status", "use_paths", "set_timer", "detect_gaps",
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
    """A call's arguments as `==` compares them."""
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    if hasattr(value, "hook"):  # the call that is answered
        return value.hook, value.handle, value.at_ns
    return value.tolist() if isinstance(value, np.ndarray) else value


def kinds(calls):
    """Which acts are among recorded calls."""
    return {name for name, _, _ in calls if name in APPLIED}


class Recording:
    """An endpoint that keeps all that its policy asks for, and all that is done for it."""

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
        if name != "take_calls":
            self.calls.append((name, comparable(args), plain(value)))
        elif value:  # whatever turn they are of
            self.calls.append((name, [], plain(value)))
        return value


class Replaying:
    """An endpoint without an engine: it gives what a `Recording` kept."""

    def __init__(self, calls, *, beside):
        """`beside`: the recorded policy ran beside its engine."""
        self._calls = deque(calls)
        if beside:
            self.event_fd = -1

    def __getattr__(self, name):
        if name in READ:
            return self._next(name, ())
        if name in ASKED + APPLIED:
            return lambda *args: self._next(name, args)
        raise AttributeError(name)

    def take_calls(self, _begins):
        """Those that were taken next; none if the policy has something to do before."""
        taken = self._calls and self._calls[0][0] == "take_calls"
        return self._calls.popleft()[2] if taken else []

    def _next(self, name, args):
        call = (name, comparable(args))
        recorded = self._calls[0][:2] if self._calls else None
        assert call == recorded, f"{call}, recorded was {recorded}"
        return self._calls.popleft()[2]

    @property
    def left(self):
        """Calls that have not been made again."""
        return len(self._calls)

    def attach_policy(self, hooks, chunk_packets):
        """Of runners: no policy sees it."""

    def set_qkey(self, qkey):
        """Of messengers, which have endpoints: no policy sees it."""
