# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a policy on an endpoint: events in, actions out; the same on both clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softroce_lab.recovery.api import (
    Action,
    CompleteSend,
    Control,
    Event,
    FailReceive,
    LookAt,
    LookAtPeer,
    Pause,
    Policy,
    Refuse,
    Resend,
    UsePaths,
)

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

Recorder = Callable[[int, Event, Action], None]
"""Called with the time in ns, what happened, and each action that is taken upon it."""

LatenessRecorder = Callable[[int], None]
"""Called with the ns from each event to its decision: zero on a clock moved by hand."""


class PolicyRunner:
    """Hands an endpoint's events to a policy and the policy's actions to the endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        policy: Policy,
        recorder: Recorder | None = None,
        lateness: LatenessRecorder | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._recorder = recorder
        self._lateness = lateness
        self._handlers: dict[str, Any] = {
            "SEND_POSTED": policy.on_send_posted,
            "SENT": policy.on_sent,
            "RECEIVE_POSTED": policy.on_receive_posted,
            "FIRST_PACKET": policy.on_first_packet,
            "TAIL_SEEN": policy.on_tail_seen,
            "RECEIVE_COMPLETE": policy.on_receive_complete,
            "LOOK": policy.on_look,
            "PEER_LOOK": policy.on_peer_look,
            "CONTROL": policy.on_control,
            "NO_RECEIVE": policy.on_no_receive,
            "TOO_LONG": policy.on_too_long,
            "LATE_PACKET": policy.on_late_packet,
        }

    def step(self) -> int:
        """Handle all waiting events; returns how many there were."""
        events = self._endpoint.take_events()
        for event in events:
            now_ns = self._endpoint.now_ns
            if self._lateness is not None:
                self._lateness(now_ns - event.at_ns)
            for action in self._handlers[event.kind.name](event, now_ns):
                if self._recorder is not None:
                    self._recorder(now_ns, event, action)
                self._apply(action)
        return len(events)

    def _apply(self, action: Action) -> None:
        endpoint = self._endpoint
        match action:
            case LookAt(handle, at_ns):
                endpoint.look_at(handle, at_ns)
            case LookAtPeer(peer, at_ns):
                endpoint.look_at_peer(peer, at_ns)
            case Control(peer, body):
                endpoint.control(peer, body)
            case Resend(handle, indices):
                endpoint.resend(handle, indices)
            case CompleteSend(handle, status):
                endpoint.complete_send(handle, int(status))
            case FailReceive(handle, status):
                endpoint.fail_receive(handle, int(status))
            case Pause(handle, paused):
                endpoint.pause(handle, paused)
            case UsePaths(peer, weights):
                endpoint.set_path_weights(peer, list(weights))
            case Refuse():
                endpoint.count("rx_bad_control")
