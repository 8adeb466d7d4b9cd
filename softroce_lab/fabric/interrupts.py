# SPDX-License-Identifier: GPL-2.0-or-later
"""Ctrl-C between two acts, never inside one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """SIGINT, SIGTERM and SIGHUP only leave a mark, and act when this is left.

    Yields a function that raises KeyboardInterrupt if a mark was left: call it where work may be
    broken off. Signals go to the main thread; in any other there is nothing to hold.
    """
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    def check() -> None:
        if caught:
            caught.clear()
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, note) for number in heeded}
    try:
        yield check
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    check()
