# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a policy on an endpoint: events in, actions out; the same on both clocks.

Actions are applied after the handler returned, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from softroce_lab.recovery.api import EVENTS, Action, Event, Policy

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
        self._handlers = [getattr(policy, f"on_{name}") for name in EVENTS]
        self._turn_end = policy.on_turn_end

    def step(self) -> int:
        """Handle all waiting events; returns how many there were."""
        endpoint, handlers, recorder = self._endpoint, self._handlers, self._recorder
        events = endpoint.take_events()
        for event in events:
            now_ns = endpoint.now_ns
            if self._lateness is not None:
                self._lateness(now_ns - event.at_ns)
            # All of them before any is applied: a handler sees none of its own effects, on the
            # real clock because the engine runs in another thread, here because of this line.
            actions = list(handlers[event.number](event, now_ns))
            for action in actions:
                if recorder is not None:
                    recorder(now_ns, event, action)
                action.apply(endpoint)
        if events:
            now_ns = endpoint.now_ns
            for action in list(self._turn_end(now_ns)):
                if recorder is not None:
                    recorder(now_ns, events[-1], action)
                action.apply(endpoint)
        return len(events)
