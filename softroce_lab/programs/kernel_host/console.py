# SPDX-License-Identifier: GPL-2.0-or-later
"""What the console of a guest that died shows of the cause.

A kernel that gives up prints a report (arch/x86/kernel/dumpstack.c): what is wrong, where, what the
registers held, who called whom, and then a dozen more lines of registers. What tells one death
from another stands at its beginning, and only the first report counts: later ones follow from it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_CALLS = 6  # in a summary, innermost first
_LAST_LINES = 8  # of a guest that printed nothing of the kind

_STAMP = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])? ?")
_PANIC = "Kernel panic - not syncing: "
_BEGIN = re.compile(r"BUG: |Oops: |kernel BUG at |general protection fault|" + _PANIC)
_WARNING = "WARNING: "  # may have foretold it
_END = re.compile(r"---\[ end |" + _PANIC)
_PLACE = re.compile(r"RIP: [\da-f]{4}:(\S+\+0x\S+(?: \[\w+\])?)")
_CALL = re.compile(r" {1,2}([\w.]+)\+0x[\da-f]+/0x[\da-f]+( \[\w+\])?$")  # one with "? " is a guess


@dataclass(frozen=True, slots=True)
class KernelPanic:
    """The first report of a kernel that gave up."""

    what: str  # "BUG: unable to handle page fault for address: ffff88800616c000"
    place: str | None  # where the processor was: "rxe_requester+0x2ab/0xd80 [rdma_rxe]"
    calls: tuple[str, ...]  # who called that, innermost first: "rxe_sender [rdma_rxe]"
    verdict: str | None  # "Fatal exception in interrupt"
    report: str  # all lines from there, or from the first warning, on

    def names(self, module: str) -> bool:
        """Whether code of a module was under way."""
        return any(f"[{module}]" in each for each in (self.place or "", *self.calls))

    def __str__(self) -> str:
        called = " < ".join(self.calls[:MOST_CALLS])
        facts = [
            self.what,
            f"at {self.place}" if self.place else None,
            f"called by {called}" if called else None,
            f"{_PANIC}{self.verdict}" if self.verdict and self.verdict not in self.what else None,
        ]
        return "; ".join(fact for fact in facts if fact)


def panic(text: str) -> KernelPanic | None:
    """The panic report on a console, if there is one."""
    lines = [_STAMP.sub("", line.rstrip()) for line in text.splitlines()]
    begin = next((at for at, line in enumerate(lines) if _BEGIN.match(line)), None)
    if begin is None or not any(line.startswith(_PANIC) for line in lines[begin:]):
        return None
    verdict = next(line for line in lines[begin:] if line.startswith(_PANIC))
    warned = next((at for at, line in enumerate(lines) if line.startswith(_WARNING)), begin)
    first = lines[begin : begin + 1 + _length(lines[begin + 1 :])]
    places = (found[1] for line in first if (found := _PLACE.match(line)))
    return KernelPanic(
        what=lines[begin],
        place=next(places, None),
        calls=tuple(_calls(first)),
        verdict=verdict.removeprefix(_PANIC),
        report="\n".join(lines[min(begin, warned) :]),
    )


def read_panic(console: Path) -> KernelPanic | None:
    """The same of a console's file, which need not be there."""
    with contextlib.suppress(FileNotFoundError):
        return panic(console.read_text("utf-8", "replace"))
    return None


def last_words(console: Path) -> str:
    """Why a guest died, as far as its console shows, to go behind an error about it."""
    if (found := read_panic(console)) is not None:
        return f": its kernel panicked: {found}"
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = console.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
    return f"; it said: {' / '.join(lines)}" if lines else ""


def _length(lines: Sequence[str]) -> int:
    """How many lines belong to the report that began before them."""
    ends = (at for at, line in enumerate(lines) if _END.match(line))
    return next(ends, len(lines))


def _calls(lines: Sequence[str]) -> Iterator[str]:
    traced = False
    for line in lines:
        traced = traced or line == "Call Trace:"
        if traced and (found := _CALL.match(line)):
            yield found[1] + (found[2] or "")
