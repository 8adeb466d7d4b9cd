# SPDX-License-Identifier: GPL-2.0-or-later
"""The view of a `MessagePolicy`: what a hook reads of its receive does not change meanwhile.

On the real clock the engine runs in another thread: a receive may complete while a hook decides.
"""

from __future__ import annotations

from typing import Any

from softroce_lab.recovery.api import PeerState, ReceiveState, SendState, View


class HookView:
    """A `View` that keeps the state of one receive while a hook about it runs."""

    __slots__ = ("_view", "held")

    def __init__(self, view: View) -> None:
        self._view = view
        self.held: tuple[int, ReceiveState] | None = None  # handle and state, while a hook runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def receive_state(self, handle: int) -> ReceiveState | None:
        """As it was when the hook began, of the receive that the hook is about."""
        if self.held is not None and self.held[0] == handle:
            return self.held[1]
        return self._view.receive_state(handle)

    # Those that hooks read most, without the way through __getattr__.

    def send_state(self, handle: int) -> SendState | None:
        """A send's state."""
        return self._view.send_state(handle)

    def peer_state(self, peer: int) -> PeerState:
        """What is known of a peer."""
        return self._view.peer_state(peer)
