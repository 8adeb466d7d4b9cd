# SPDX-License-Identifier: GPL-2.0-or-later
"""What many seeds came to, added up as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar


class Campaign(Protocol):
    """A sum of seeds."""

    interrupted: bool

    def add(self, seen: Any) -> None:
        """One more."""


_C = TypeVar("_C", bound=Campaign)


def gather(
    found: _C, seen: Iterable[Any], until: Callable[[], bool], progress: Callable[[_C], None]
) -> _C:
    """All seeds, or as many as there are before `until` is true, or Ctrl-C is pressed.

    `progress` gets the campaign after every seed.
    """
    try:
        for each in seen:
            found.add(each)
            progress(found)
            if until():
                break
    except KeyboardInterrupt:
        found.interrupted = True
    return found
