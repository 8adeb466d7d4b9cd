# SPDX-License-Identifier: GPL-2.0-or-later
"""Protection domains: what queue pairs and memory regions must share (IBA 10.2.3)."""

from __future__ import annotations

from softroce_lab.rnic.base import Closable, expect, table
from softroce_lab.rnic.device import Context


class PD(Closable):
    """A protection domain of a context."""

    close_rank = 0

    def __init__(self, creator: Context) -> None:
        expect("creator", creator, Context)
        creator.check_open("Failed to allocate PD")
        super().__init__(creator)
        self.ctx = creator
        self.handle = creator.new_pd_number()

    def __str__(self) -> str:
        return "PD\n" + table([("handle", self.handle)])
