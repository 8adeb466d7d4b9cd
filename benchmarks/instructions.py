# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions of a message in a program of verbs, without and with a backup (SHIFT).

callgrind counts for two numbers of messages: the difference has no set-up in it. Both ends of the
connection are in one process, which no port and no other process disturbs. The C library's own
instructions do not count: what its allocator does depends on where the heap begins. Calls of it
count, as an instruction each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.paths import verbs_library

SOURCE = Path(__file__).with_name("message_cost.c")
KINDS = ("plain", "shift")
VERBS = ("write", "send")
CHAINS = (1, 16)
"""Requests of one post."""
_RUN_S = 300
_LIBC = "/libc.so"


def measure(short: bool) -> dict[str, float]:
    """By verb, requests of a post, and kind. EnvironmentLackError, RunError."""
    library = verbs_library()
    if shutil.which("valgrind") is None:
        raise EnvironmentLackError("valgrind is missing", hint="apt-get install valgrind")
    fewer, more = (1000, 5000) if short else (4000, 20000)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="softroce-benchmark-") as made:
        program = Path(made, "message_cost")
        compile_ = ["cc", "-O2", "-o", program, SOURCE, library]
        subprocess.run(compile_, check=True, timeout=_RUN_S)
        environment = _with_two_devices(Path(made), library.parent)
        for verb, chain, kind in product(VERBS, CHAINS, KINDS):
            environment["SOFTROCE_SHIFT"] = str(int(kind == "shift"))
            few, many = (
                _counted(Path(made), [str(program), verb, str(chain), str(messages)], environment)
                for messages in (fewer, more)
            )
            found[f"{verb}_in_{chain}_{kind}_instructions"] = (many - few) / (more - fewer)
    return found


def _with_two_devices(folder: Path, libraries: Path) -> dict[str, str]:
    """The environment of a program that has two RNICs without a port."""
    files = []
    for number in range(2):
        lines = [
            f"device softroce{number}", f"guid {number + 1}", f"gid ::ffff:10.0.{number}.1",
            "path_mtu 1024", f"statistics {folder}/statistics{number}",
        ]  # fmt: skip
        files.append(folder / f"device{number}")
        files[-1].write_text("\n".join(lines) + "\n")
    return {
        **os.environ,
        "SOFTROCE_VERBS": ":".join(map(str, files)),
        "LD_LIBRARY_PATH": str(libraries),
    }


def _counted(folder: Path, command: list[str], environment: dict[str, str]) -> int:
    """Instructions of a process, all threads. RunError."""
    counts = folder / "counts"
    argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", *command]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False
    )
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)}: {done.stderr.strip()}")
    with counts.open(errors="replace") as lines:
        return sum(_own_costs(lines))


def _own_costs(lines: Iterator[str]) -> Iterator[int]:
    """Yields the costs in callgrind's output, without those of the C library.

    A line with positions and a cost belongs to the object that was named last. The line after
    `calls=` has the cost of the called function, which is counted where that function is.
    """
    names: dict[str, str] = {}
    counts = True
    for line in lines:
        if line.startswith("calls="):
            next(lines)
        elif line.startswith(("ob=", "cob=")):
            kind, _, named = line.partition("=")
            key, _, name = named.strip().partition(" ")
            name = names.setdefault(key, name)
            if kind == "ob":
                counts = _LIBC not in name
        elif counts and line[:1] in "0123456789+-*":
            yield int(line.split()[1])
