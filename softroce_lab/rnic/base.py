# SPDX-License-Identifier: GPL-2.0-or-later
"""What all objects of the verbs have in common: parents, an order of closing, a printed table."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable
from typing import Any, Self

from softroce_lab.rnic.errors import PyverbsError


def table(rows: Iterable[tuple[str, Any]], indent: str = "") -> str:
    """One line a row, as pyverbs prints its objects."""
    return "".join(f"{indent}{name:22}: {value}\n" for name, value in rows)


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
