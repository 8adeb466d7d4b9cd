# SPDX-License-Identifier: GPL-2.0-or-later
"""Which code makes a result: a commit to be named, and a fingerprint that no change escapes."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import subprocess
from collections.abc import Mapping
from pathlib import Path

import softroce_lab
from softroce_lab import __version__
from softroce_lab.paths import PROJECT_ROOT

_PACKAGE = Path(softroce_lab.__file__).parent
_GIT_S = 10.0
PACKED = ".packed"
"""In the root of code that was packed from a commit."""


def name() -> str:
    """The commit, or the version where there is none."""
    return commit() or __version__


def commit() -> str | None:
    """Of the checkout, or of packed code; `-dirty` behind it if files differ. None in a wheel."""
    found = _words("describe", "--always", "--abbrev=40")
    if found is None:
        return _packed_commit()
    return f"{found}-dirty" if _words("status", "--porcelain", "--untracked-files=no") else found


def packed(of: str, files: Mapping[str, bytes]) -> str:
    """The text of `PACKED`, for code that leaves its checkout: its commit, and what it consists of.

    A line has the SHA-256 of a file, in hex, two spaces and its name.
    """
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return f"{of}\n{''.join(sums)}"


def _packed_commit() -> str | None:
    """Of code that was packed, if there is no checkout."""
    try:
        of, *lines = (PROJECT_ROOT / PACKED).read_text().splitlines()
    except (OSError, ValueError):
        return None
    same = all(_sum_of(line[66:]) == line[:64] for line in lines)
    return of if same else f"{of}-dirty"


def _sum_of(name: str) -> str | None:
    """Of a file of the project; None if it is not there."""
    try:
        return hashlib.sha256((PROJECT_ROOT / name).read_bytes()).hexdigest()
    except OSError:
        return None


def _words(*arguments: str) -> str | None:
    return (git(*arguments) or b"").decode().strip() or None


def git(*arguments: str, limit_s: float = _GIT_S) -> bytes | None:
    """What git prints about the checkout, whoever owns it; it writes nothing.

    None if git fails, or there is no checkout.
    """
    if not (PROJECT_ROOT / ".git").exists():  # it may lie in another repository
        return None
    whose = f"safe.directory={PROJECT_ROOT}"
    argv = ["git", "--no-optional-locks", "-c", whose, "-C", str(PROJECT_ROOT), *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def fingerprint() -> str:
    """SHA-256, hex, over all modules: two equal ones give equal results on the virtual clock.

    Of those in Python names and texts; a native module that was built twice of one source may have
    two fingerprints.
    """
    found = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        name = file.relative_to(_PACKAGE).as_posix()
        found.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    native = importlib.util.find_spec("softroce_lab._native")
    if native is not None and native.origin:
        found.update(Path(native.origin).read_bytes())
    return found.hexdigest()
