# SPDX-License-Identifier: GPL-2.0-or-later
"""Which tests `lab test` leaves out, and `lab test --all` runs: those in slow.txt.

Chosen from durations that were measured on the whole suite:

    ./lab test --all -- --durations-to FILE
    .venv/bin/python -m tests.slow FILE

A function of tests is slow if its cases take long together. Every file keeps its fastest function,
unless even that takes more than `MOST_S`, and every room keeps one whatever it takes.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

LIST = Path(__file__).with_name("slow.txt")
BUDGET_S = 440  # of two processes in six minutes; the rest: collecting, and slower machines
MOST_S = 15


def listed() -> frozenset[str]:
    """The functions in slow.txt, as `tests/room/test_file.py::test_function`."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def function_of(node_id: str) -> str:
    """A test's function, for all its cases alike."""
    return node_id.partition("[")[0]


def choose(durations_s: dict[str, float]) -> list[str]:
    """The functions to leave out so that the others take `BUDGET_S` at most."""
    kept, left_s = _kept_in_any_case(durations_s), float(BUDGET_S)
    left_s -= sum(durations_s[function] for function in kept)
    for function in sorted(durations_s.keys() - kept, key=lambda each: durations_s[each]):
        left_s -= durations_s[function]
        if left_s >= 0:
            kept.add(function)
    return sorted(durations_s.keys() - kept)


def _kept_in_any_case(durations_s: dict[str, float]) -> set[str]:
    files, rooms = defaultdict(list), defaultdict(list)
    for function, seconds in durations_s.items():
        file = function.partition("::")[0]
        files[file].append((seconds, function))
        rooms[PurePosixPath(file).parent].append((seconds, function))
    fastest = [min(functions) for functions in files.values()]
    kept = {function for seconds, function in fastest if seconds <= MOST_S}
    return kept | {min(functions)[1] for functions in rooms.values()}


def measured(record: Path) -> dict[str, float]:
    """Function -> seconds of all its cases; of several runs of a case, the shortest."""
    cases = dict[str, float]()
    for line in record.read_text(encoding="utf-8").splitlines():
        node_id, wall_s, _cpu_s = json.loads(line)
        cases[node_id] = min(wall_s, cases.get(node_id, wall_s))
    functions = defaultdict[str, float](float)
    for node_id, seconds in cases.items():
        functions[function_of(node_id)] += seconds
    return dict(functions)


def main() -> None:
    """Write slow.txt anew from the record that is named."""
    functions = choose(measured(Path(sys.argv[1])))
    head = "# Left out by `lab test`, run by `lab test --all`; written by tests/slow.py.\n"
    LIST.write_text(head + "".join(f"{function}\n" for function in functions), encoding="utf-8")


if __name__ == "__main__":
    main()
