# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab up` and `lab down` of a k=4 fat-tree and of a star of 100 hosts, as their user waits.

The time of `lab --version` is subtracted: starting Python is no lab's. A lab is down when its
command has ended and the kernel has none of its programs and maps left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from softroce_lab.errors import RunError
from softroce_lab.fabric import runtime
from softroce_lab.fabric.bpf import bpffs

SHAPES = ("fat-tree-k4", "star-100")
_PATIENCE_S = 60.0


def measure(short: bool) -> dict[str, float]:
    """Seconds by the clock on the wall; the first time, XDP programs are compiled."""
    name, found = f"bench-{os.getpid()}", {}
    with tempfile.TemporaryDirectory(prefix="softroce-benchmark-") as cache:
        for shape in SHAPES[: 1 if short else 2]:
            version_s = _command_s(cache, "--version")
            key = shape.replace("-", "_")
            for prefix in ("first_", ""):
                try:
                    found[f"{key}_{prefix}up_s"] = _up_s(cache, shape, name) - version_s
                    found[f"{key}_{prefix}down_s"] = _down_s(cache, name) - version_s
                finally:
                    if runtime.examine(name) is not None:
                        runtime.down(name, lambda _: None)
            del found[f"{key}_first_down_s"]
    return found


def _up_s(cache: str, shape: str, name: str) -> float:
    return _command_s(cache, "up", shape, "--name", name)


def _down_s(cache: str, name: str) -> float:
    pinned = bpffs.pinned(runtime.DIRECTORY / name / runtime.BPFFS)
    began = time.perf_counter()
    _command_s(cache, "down", name)
    while pinned.living():
        if time.perf_counter() - began > _PATIENCE_S:
            raise RunError(f"after `lab down` there is still: {pinned.living()}")
        time.sleep(0.001)
    return time.perf_counter() - began


def _command_s(cache: str, *arguments: str) -> float:
    """The seconds that a `lab` command takes. RunError if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", *arguments],
        env=os.environ | {"LAB_CACHE": cache},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RunError(f"`lab {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return time.perf_counter() - began
