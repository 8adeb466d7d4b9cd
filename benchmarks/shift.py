# SPDX-License-Identifier: GPL-2.0-or-later
"""What a ShiftQP costs while nothing fails, over a plain queue pair; RNICs in memory."""

from __future__ import annotations

import functools
import time
from typing import Any

from benchmarks.memory import Ends, MakeQp
from softroce_lab.transports.shift import Backup, LocalStore, ShiftQP
from softroce_lab.transports.shift.rails import Rails
from softroce_lab.verbs import QP

TURNS = 10
"""Of each kind in turn: the quickest, which other work disturbed least, counts."""


def measure(short: bool) -> dict[str, float]:
    """Ratios of rates: SHIFT over plain."""
    with Rails() as rails:
        contexts = [nics[0] for nics in rails.contexts]
        ready = [rails.backup(host) for host in range(2)]
        store = LocalStore()
        later = [Backup(near, other, store, in_background=True) for near, other in rails.contexts]
        make = functools.partial(Ends, rails.pairs[0], contexts)
        kinds = {"plain": make(), "shift": make(_makes(ready))}
        created = {"plain": (QP, QP), "shift": _makes(later)}
        best = {name: [0.0, 0.0, 0.0] for name in kinds}
        turns = 2 if short else 20
        for _ in range(TURNS):
            for name, ends in kinds.items():
                rates = (
                    ends.writes_per_cpu_s(turns),
                    ends.trips_per_cpu_s(10 * turns),
                    _setups_per_cpu_s(make, created[name], turns),
                )
                best[name] = [max(pair) for pair in zip(best[name], rates, strict=True)]
    figures = ("writes", "round_trips", "setup")
    return {
        f"{figure}_shift_over_plain": shift / plain
        for figure, shift, plain in zip(figures, best["shift"], best["plain"], strict=True)
    }


def _makes(backups: list[Backup]) -> tuple[MakeQp, MakeQp]:
    first, second = (functools.partial(ShiftQP, backup=each) for each in backups)
    return first, second


def _setups_per_cpu_s(make: Any, makes: tuple[MakeQp, MakeQp], pairs: int) -> float:
    """Pairs of queue pairs a second, until the program has them; backups come afterwards."""
    began = time.process_time()
    kept = [make(makes) for _ in range(pairs)]
    spent = time.process_time() - began
    del kept
    return pairs / spent
