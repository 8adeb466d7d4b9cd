# SPDX-License-Identifier: GPL-2.0-or-later
"""Protection domains: what queue pairs and memory regions must share (IBA 10.2.3)."""

from __future__ import annotations

from collections.abc import Callable

from softroce_lab.verbs.base import Closable, expect, table
from softroce_lab.verbs.device import Context


class PD(Closable):
    """A protection domain of a context."""

    close_rank = 0

    def __init__(self, creator: Context) -> None:
        expect("creator", creator, Context)
        creator.check_open("Failed to allocate PD")
        super().__init__(creator)
        self.ctx = creator
        self.handle = creator.new_pd_number()
        self.on_region: Callable[[Closable], None] | None = None
        """Called with every region that is registered from now on."""

    def children(self) -> list[Closable]:
        """What was made of this domain and is open."""
        return [each for each in self._children if not each.closed]

    def __str__(self) -> str:
        return "PD\n" + table([("handle", self.handle)])
