# SPDX-License-Identifier: GPL-2.0-or-later
"""The view of a `MessagePolicy`: what a hook reads of its receive does not change meanwhile.

On the real clock the engine runs in another thread: a receive may complete while a hook decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from softroce_lab.recovery.api import ReceiveState, View


class HookView:
    """A `View` that keeps the state of one receive while a hook about it runs."""

    __slots__ = ("_held", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._held: tuple[int, ReceiveState] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def receive_state(self, handle: int) -> ReceiveState | None:
        """As it was when the hook began, of the receive that the hook is about."""
        if self._held is not None and self._held[0] == handle:
            return self._held[1]
        return self._view.receive_state(handle)

    @contextlib.contextmanager
    def holding(self, handle: int, state: ReceiveState) -> Iterator[None]:
        """Keep this state until the end of the context."""
        self._held = handle, state
        try:
            yield
        finally:
            self._held = None
