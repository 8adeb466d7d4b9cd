# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a user's policy on an endpoint whose transport is `python_policy`.

The session is native (native/transport/python_policy.hpp): it says which hook is to run, and bounds
what the hook returns. A `Sending` or `Receiving` is the hook's view of a message. The runner keeps
one for each message that the policy has seen, with the policy's `memory`, until the message is
over.

On a clock moved by hand a turn takes all events that wait. What a hook returns is applied before
the next event is handled; what arises from it waits for the next turn. On the real clock hooks run
beside the engine, whose session goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from softroce_lab import _native
from softroce_lab.transports import policy as hooked
from softroce_lab.transports.api import PeerState, ReceiveState, SendProgress, SendState, View
from softroce_lab.transports.control import PacketSet
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.policy import MessagePolicy, Receiving, Sending

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint, HookCall

LatenessRecorder = Callable[[int], None]
"""Called with the ns from each event to its hook."""

_HOOKS = {name: number for number, name in enumerate(_native.HOOKS)}
_OVER = len(_HOOKS)
_LAST_OF_SENDS = _HOOKS["on_parity"]
_GAP, _TRIMMED = _HOOKS["on_gap"], _HOOKS["on_trimmed"]
_OF_SUBMESSAGES = _HOOKS["on_parity"], _HOOKS["on_chunk"]
ALWAYS_RUN = "on_send_posted", "on_receive_posted"
"""Hooks that are called of every policy: one that is broken says so with the first of them."""
_MOST_CHUNK_PACKETS = 0xFFFF


class HookView:
    """A policy's `View`: what a hook reads of its own message does not change meanwhile.

    On the real clock the engine goes on while a hook decides, and the message may end.
    """

    __slots__ = ("_handle", "_state", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._handle = 0
        self._state: Any = None

    def hold(self, handle: int, state: Any) -> None:
        """The state of the message that the next hook is about; None: whatever it is then."""
        self._handle, self._state = handle, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    # Those that hooks read most, without the way through __getattr__.

    def receive_state(self, handle: int) -> ReceiveState | None:
        """As it was when the hook began, of the message that the hook is about."""
        if handle == self._handle and self._state is not None:
            return cast("ReceiveState", self._state)
        return self._view.receive_state(handle)

    def send_state(self, handle: int) -> SendState | None:
        """As it was when the hook began, of the message that the hook is about."""
        if handle == self._handle and self._state is not None:
            return cast("SendState", self._state)
        return self._view.send_state(handle)

    def send_progress(self, handle: int) -> SendProgress | None:
        """As it was when the hook began, of the message that the hook is about."""
        if handle == self._handle and self._state is not None:
            return cast("SendProgress", self._state)
        return self._view.send_progress(handle)

    def peer_state(self, peer: int) -> PeerState:
        """What is known of a peer."""
        return self._view.peer_state(peer)


class PolicyRunner:
    """A policy of an endpoint: calls its hooks, and does what they return."""

    def __init__(
        self,
        endpoint: Endpoint,
        hosted: type[MessagePolicy],
        timing: Timing,
        options: Mapping[str, Any] | None = None,
        lateness: LatenessRecorder | None = None,
    ) -> None:
        """`options`: the policy's; OptionError for a value that an option does not take.

        Before anything is posted to the endpoint.
        """
        self._endpoint = endpoint
        self._lateness = lateness
        self._beside = hasattr(endpoint, "event_fd")
        self._view = HookView(cast("View", endpoint))
        self.policy = hosted(cast("View", self._view), timing, options)
        self._hooks = [getattr(self.policy, name) for name in _HOOKS]
        own = [number for number, name in enumerate(_HOOKS)
               if name in ALWAYS_RUN or _overridden(self._hooks[number], name)]  # fmt: skip
        chunk = self.policy.chunk_packets
        valid = isinstance(chunk, int) and 1 <= chunk <= _MOST_CHUNK_PACKETS
        endpoint.attach_policy(own, chunk if valid else 0)
        self._messages: dict[int, Any] = {}  # by handle

    def step(self) -> int:
        """Run all hooks that wait; returns how many there were."""
        count = 0
        take = self._endpoint.take_calls
        calls = take(True)
        while calls:
            for call in calls:
                self._run(call)
            count += len(calls)
            calls = take(False)
        return count

    def summary(self) -> dict[str, Any]:
        """Figures of the session and of the policy."""
        return {**self._endpoint.figures(), **self.policy.summary()}

    def _run(self, call: HookCall) -> None:
        hook = call.hook
        if hook == _OVER:
            self._messages.pop(call.handle, None)
            return
        endpoint = self._endpoint
        now_ns = endpoint.now_ns
        if self._lateness is not None:
            self._lateness(now_ns - call.at_ns)
        message: Sending | Receiving
        if hook <= _LAST_OF_SENDS:
            message = self._sending(call)
            if self._beside:
                state = endpoint.send_state(call.handle)
                if state is None:  # it has ended in the meantime
                    return
                self._view.hold(call.handle, state)
        else:
            message = self._receiving(call)
            state = endpoint.receive_state(call.handle)
            if state is None:
                return
            self._view.hold(call.handle, state)
        returned = self._hooks[hook](message, *_facts(call), now_ns)
        actions = list(returned)  # a generator reads state, too
        self._view.hold(0, None)
        for action in actions:
            _ACTS[type(action)](endpoint, call, action)

    def _sending(self, call: HookCall) -> Sending:
        send: Sending | None = self._messages.get(call.handle)
        if send is None:
            send = Sending(call.handle, call.peer, call.id, call.key, call.count)
            self._messages[call.handle] = send
        send.out = call.out
        send.rnr_naks = call.rnr_naks
        send.retry_ns = call.retry_ns
        send.timeouts_without_progress = call.timeouts_without_progress
        known = call.known_missing
        if known is not None:
            send.known_missing = PacketSet(known[0], known[1].view(np.bool_))
        return send

    def _receiving(self, call: HookCall) -> Receiving:
        receive: Receiving | None = self._messages.get(call.handle)
        if receive is None:
            receive = Receiving(call.handle, call.peer, call.key, call.count)
            self._messages[call.handle] = receive
        if call.begun:
            receive.id, receive.count = call.id, call.count
        receive.received = call.received
        receive.fed_back = call.fed_back
        receive.timeouts_without_progress = call.timeouts_without_progress
        return receive


def _facts(call: HookCall) -> tuple[Any, ...]:
    """The hook's arguments after its message and before `now_ns`."""
    if call.hook == _GAP:
        return (call.packets,)
    if call.hook == _TRIMMED:
        return int(call.packets[0]), call.last_hop
    return (call.submessage,) if call.hook in _OF_SUBMESSAGES else ()


def _overridden(hook: Any, name: str) -> bool:
    return getattr(hook, "__func__", None) is not getattr(MessagePolicy, name)


# --- What hooks return ------------------------------------------------------------------------


def _retransmit(endpoint: Endpoint, call: HookCall, action: hooked.Retransmit) -> None:
    packets = np.ascontiguousarray(action.packets, np.uint32)
    endpoint.retransmit_sent(
        call, action.send.handle, packets, bool(action.urgent), int(action.copies)
    )


def _set_timer(endpoint: Endpoint, _: HookCall, action: hooked.SetTimer) -> None:
    endpoint.set_timer(action.message.handle, int(action.at_ns))


def _feedback(endpoint: Endpoint, _: HookCall, action: hooked.Feedback) -> None:
    endpoint.send_feedback(action.receive.handle)


def _request_status(endpoint: Endpoint, _: HookCall, action: hooked.RequestStatus) -> None:
    endpoint.request_status(action.send.handle)


def _path_weights(endpoint: Endpoint, call: HookCall, action: hooked.PathWeights) -> None:
    endpoint.use_paths(call, action.peer, list(action.weights))


def _detect_gaps(endpoint: Endpoint, _: HookCall, action: hooked.DetectGaps) -> None:
    endpoint.detect_gaps(action.receive.handle, int(action.window_ns))


def _encode(endpoint: Endpoint, call: HookCall, action: hooked.Encode) -> None:
    endpoint.note_coded(call, action.send.handle)
    endpoint.encode(action.send.handle, action.submessage, action.code.native)


def _restore(endpoint: Endpoint, call: HookCall, action: hooked.Restore) -> None:
    endpoint.note_coded(call, action.receive.handle)
    endpoint.restore(action.receive.handle, action.submessage, action.code.native)


def _use_codes(endpoint: Endpoint, _: HookCall, action: hooked.UseCodes) -> None:
    endpoint.set_codes(action.peer, list(action.by_bits))


_ACTS: Mapping[type, Callable[[Endpoint, HookCall, Any], None]] = {
    hooked.Retransmit: _retransmit,
    hooked.SetTimer: _set_timer,
    hooked.Feedback: _feedback,
    hooked.RequestStatus: _request_status,
    hooked.PathWeights: _path_weights,
    hooked.DetectGaps: _detect_gaps,
    hooked.Encode: _encode,
    hooked.Restore: _restore,
    hooked.UseCodes: _use_codes,
}
