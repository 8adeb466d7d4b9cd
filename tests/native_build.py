# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds with CMake in folders that several processes of tests share."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from softroce_lab import _native
from softroce_lab.paths import PROJECT_ROOT

FUZZ = PROJECT_ROOT / "native" / "fuzz"
BUILD = PROJECT_ROOT / "build" / "fuzz"
_BUILD_S = 3600


def made(folder: Path, configure: Sequence[str | Path], *targets: str) -> None:
    """Configure a build folder and build its targets, or everything, one process at a time.

    Two ninjas in one folder would take each other's files for their own.
    """
    jobs = str(len(os.sched_getaffinity(0)))
    wanted = ["--target", *targets] if targets else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", *configure],
            ["cmake", "--build", folder, *wanted, "--parallel", jobs],
        ):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_BUILD_S, check=False
            )
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def fuzz(*targets: str, folder: Path = BUILD, options: Sequence[str] = ()) -> None:
    """Targets of native/fuzz, or all of them: with sanitizers, by default."""
    made(folder, ["-G", "Ninja", "-S", FUZZ, "-B", folder, *options], *targets)


def of_the_module(target: str) -> Path:
    """The tree in which `_native` was made, with a target of native/; skips without such a tree."""
    trees = [Path(_native.__file__).resolve().parents[1], *PROJECT_ROOT.glob("build/*")]
    source = f"CMAKE_HOME_DIRECTORY:INTERNAL={PROJECT_ROOT}\n"
    for tree in trees:
        cache = tree / "CMakeCache.txt"
        if cache.exists() and source in cache.read_text():
            made(tree, [tree], target)
            return tree
    pytest.skip("there is no build tree of this checkout, as ./lab leaves one")
