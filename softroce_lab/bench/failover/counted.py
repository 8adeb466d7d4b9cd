# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab bench shift` runs under valgrind's callgrind, which counts instructions.

    valgrind --tool=callgrind --instr-atstart=no ... python -m softroce_lab.bench.failover.counted

The RNICs are in this process's memory. Each part is counted by itself and dumped with its name,
`plain trip` and so on, by client requests (valgrind.h and callgrind.h of valgrind).
"""

from __future__ import annotations

import ctypes
import gc
import mmap
from collections.abc import Callable, Iterator
from typing import Any

from softroce_lab.bench.failover.ends import CHAIN, Ends
from softroce_lab.shift import Backup, LocalStore
from softroce_lab.shift.rails import Rails

ROUNDS, WARM = 5, 2
TRIPS, CHAINS, PAIRS = 60, 12, 20
_STEP_NS = 2_000
_BASE = ord("C") << 24 | ord("T") << 16  # VG_USERREQ_TOOL_BASE('C', 'T')
_ZERO_STATS, _DUMP_STATS_AT, _START, _STOP = 1, 3, 4, 5
# The request's address in rdi: rotations by 128 bits in all, which valgrind knows, and a return.
_CODE = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")


class Callgrind:
    """Client requests; outside of valgrind they do nothing."""

    def __init__(self) -> None:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=7)  # may be executed
        page.write(_CODE)
        self._page = page
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        self._call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)

    def ask(self, request: int, text: str | None = None) -> None:
        """One request; `text` names a dump."""
        words = (ctypes.c_uint64 * 6)(_BASE + request)
        name = None if text is None else ctypes.create_string_buffer(text.encode())
        if name is not None:
            words[1] = ctypes.addressof(name)
        self._call(ctypes.addressof(words))

    def count(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work returns; its instructions are dumped under its name."""
        self.ask(_ZERO_STATS)
        found = work()
        self.ask(_DUMP_STATS_AT, name)
        return found


def _turns() -> Iterator[tuple[str, str]]:
    """The name of what is counted, and the kind; the first of each are warm-up."""
    for number in range(WARM + ROUNDS):
        for kind in ("plain", "shift"):
            yield (kind if number >= WARM else f"warm {kind}"), kind


def run() -> None:
    """All parts, of plain queue pairs and of ShiftQPs in turn."""
    callgrind = Callgrind()
    with Rails() as rails:
        first = rails.pairs[0]
        contexts = [nics[0] for nics in rails.contexts]
        backups = [rails.backup(host) for host in range(2)]
        store = LocalStore()
        later = [Backup(near, other, store, in_background=True) for near, other in rails.contexts]

        def progress() -> None:
            first.run(first.now_ns + _STEP_NS)

        ends = {
            "plain": Ends.connected(contexts, progress=progress),
            "shift": Ends.connected(contexts, backups, progress),
        }
        creators: dict[str, Any] = {"plain": (None, None), "shift": later}
        kept: list[Any] = []
        gc.disable()  # a collection would be of what either kind left
        callgrind.ask(_START)
        for name, kind in _turns():
            each = ends[kind]
            callgrind.count(f"{name} trip", lambda e=each: e.trips_per_second(TRIPS))  # type: ignore[misc]
            callgrind.count(f"{name} write", lambda e=each: e.writes_per_second(CHAINS))  # type: ignore[misc]
        for name, kind in _turns():  # afterwards: many queue pairs make the others slower
            chosen = creators[kind]
            make = lambda c=chosen: [Ends.connected(contexts, c) for _ in range(PAIRS)]  # noqa: E731
            kept.append(callgrind.count(f"{name} setup", make))
        callgrind.ask(_STOP)


MESSAGES = {"trip": 2 * TRIPS, "write": CHAIN * CHAINS, "setup": 2 * PAIRS}
"""How many messages, or queue pairs, a part is of."""

if __name__ == "__main__":
    run()
