# SPDX-License-Identifier: GPL-2.0-or-later
"""What all objects of the verbs have in common: parents, an order of closing, a printed table."""

from __future__ import annotations

import contextlib
import enum
import errno
import time
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, Self, TypeVar

from softroce_lab.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError

_LONGEST_WAIT_S = 86400

P = ParamSpec("P")
R = TypeVar("R")


def table(rows: Iterable[tuple[str, Any]], indent: str = "") -> str:
    """One line a row, as pyverbs prints its objects."""
    return "".join(f"{indent}{name:22}: {value}\n" for name, value in rows)


def named(kind: Callable[[Any], enum.IntEnum | enum.IntFlag], value: object) -> str:
    """A value by its name in C, where it has one."""
    try:
        return kind(value).name or "0"
    except (TypeError, ValueError):
        return str(value)


def deadline(timeout_s: float) -> float:
    """When a wait is over, on the monotonic clock; every wait is bounded."""
    if not isinstance(timeout_s, (int, float)) or not timeout_s <= _LONGEST_WAIT_S:
        raise PyverbsUserError(f"a wait has at most {_LONGEST_WAIT_S} s, not {timeout_s!r}")
    return time.monotonic() + timeout_s


def expect(name: str, value: object, kind: type) -> None:
    """Raise the TypeError that pyverbs raises, if an argument is not what it must be."""
    if not isinstance(value, kind):
        raise TypeError(
            f"Argument '{name}' has incorrect type "
            f"(expected {kind.__name__}, got {type(value).__name__})"
        )


def expect_unsigned(name: str, value: int, bits: int) -> int:
    """The value as an int; TypeError and OverflowError as pyverbs raises, where it is none."""
    expect(name, value, int)
    if value < 0:
        raise OverflowError(f"{name}: can't convert negative value to uint{bits}_t")
    if value >> bits:
        raise OverflowError(f"{name}: value too large to convert to uint{bits}_t")
    return int(value)


def ask(failure: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What the RNIC answers; what it throws becomes a PyverbsRDMAError."""
    try:
        return call(*args, **kwargs)
    except OSError as error:
        raise PyverbsRDMAError(failure, error.errno or errno.EIO) from error


class Closable:
    """Closes its children before itself; is closed when it leaves a `with`, or is forgotten.

    Children hold their parents, parents know their children without holding them.
    """

    close_rank = 0
    """Children of a low rank are closed before those of a higher one."""

    def __init__(self, *parents: Closable) -> None:
        self.closed = False
        self._children: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._parents = parents
        for parent in parents:
            parent.adopt(self)

    def adopt(self, child: Closable) -> None:
        """Close `child` before this."""
        self._children.add(child)

    def check_open(self, failure: str) -> None:
        """EINVAL, if this is closed: the C library would be handed a pointer to nothing."""
        if self.closed:
            name = type(self).__name__
            raise PyverbsRDMAError(failure, errno.EINVAL, hint=f"the {name} is closed")

    def close(self) -> None:
        """Close the children, then this; does nothing the second time."""
        if self.closed:
            return
        for child in sorted(self._children, key=lambda each: each.close_rank):
            child.close()
        self._release()
        self.closed = True

    def _release(self) -> None:
        """Give back what the RNIC holds for this; raises PyverbsRDMAError if it may not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # An object whose construction failed has nothing to close.
        if not getattr(self, "closed", True):
            with contextlib.suppress(PyverbsError):
                self.close()
