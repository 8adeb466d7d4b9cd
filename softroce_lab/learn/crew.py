# SPDX-License-Identifier: GPL-2.0-or-later
"""A submission's processes: one for each host, so that hosts know of each other by packets alone.

Each is started in bubblewrap, where that can run: without network, and with no file of its machine
but Python and this package without the labs. Where it cannot, rlimits and the filter of system
calls are left (`sandbox/`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from softroce_lab import _native
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.learn.sandbox.wire import Channel, SilentError, WireError

POLICY = "policy.py"
ANSWER_S = 20.0
"""How long a process may take for one hook; its own guard ends a hook that loops after 5 s."""
TRIAL_S = 60.0
"""How long it may take for all hooks of one trial."""
START_S = 60.0
_END_S = 0.5

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOM = Path(__file__).resolve().parent
_HIDDEN = (_PACKAGE / "shift",)
"""Rooms that have the answer to a lab."""
_WORKER = "softroce_lab.learn.sandbox.worker"
_INSIDE = "/submission"


# --- Where a process runs --------------------------------------------------------------------


@functools.cache
def lacks_bubblewrap() -> str | None:
    """Why submissions cannot be shut in here; None: they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (Debian: apt install bubblewrap)"
    with tempfile.TemporaryDirectory() as folder:
        command = [*_bubblewrap(Path(folder)), sys.executable, "-c", "import numpy"]
        try:
            done = subprocess.run(
                command, env=_environment(), capture_output=True, text=True, timeout=START_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap cannot run here: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended without a word"]
        return f"bubblewrap cannot run here: {lines[-1]}"
    return None


def _bubblewrap(submission: Path) -> list[str]:
    command = [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534",
        "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox",
    ]  # fmt: skip
    for name in ("usr", "lib", "lib64", "lib32", "bin", "sbin"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    for path in _python_folders():
        command += ["--ro-bind", str(path), str(path)]
    for each in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", each, each]
    # The labs' rooms are shut: what a task wants is nobody's business in there.
    command += ["--tmpfs", str(_ROOM)]
    for name in ("__init__.py", "sandbox"):
        command += ["--ro-bind", str(_ROOM / name), str(_ROOM / name)]
    command += ["--remount-ro", str(_ROOM)]
    for path in _HIDDEN:
        command += ["--tmpfs", str(path), "--remount-ro", str(path)]
    return [*command, "--dev", "/dev", "--ro-bind", str(submission), _INSIDE, "--chdir", _INSIDE]


def _python_folders() -> list[Path]:
    """What this interpreter imports from, without the rest of a checkout."""
    native = Path(str(_native.__file__)).parent
    found = {
        Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent,
        _PACKAGE, native,
    }  # fmt: skip
    found.add(Path(np.__file__).parents[1])
    found = {path for path in found if path != Path("/usr") and path != Path("/")}
    return sorted(path for path in found if not path.is_relative_to("/usr"))


def _environment() -> dict[str, str]:
    paths = [str(_PACKAGE.parent), str(Path(np.__file__).parents[1])]
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PYTHONPATH": ":".join(dict.fromkeys(paths)),
        "PYTHONHASHSEED": "0",  # what a policy decides by a set's order is the same everywhere
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


# --- The processes ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """A submission's file."""

    source: bytes
    name: str  # of the class
    kind: str = "transport"  # or "failover": who asks it what


class Crew:
    """Processes of one submission, by host. A context: they end with it."""

    def __init__(self, policy: Policy, *, shut_in: bool, prints: bool = False) -> None:
        """`shut_in`: in bubblewrap. `prints`: what the policy prints goes to stderr."""
        self._policy, self._shut_in, self._prints = policy, shut_in, prints
        self._folder = tempfile.TemporaryDirectory(prefix="softroce-lab-learn-")
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        (folder / POLICY).write_bytes(policy.source)
        self._members: list[Member | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            if member is not None:
                member.end()
        self._folder.cleanup()

    def member(self, host: int) -> Member:
        """The process of a host; a new one if there is none, or if it ended."""
        while len(self._members) <= host:
            self._members.append(None)
        found = self._members[host]
        if found is None or found.ended:
            found = self._members[host] = Member(self._command(), self._prints)
        return found

    def _command(self) -> list[str]:
        folder = Path(self._folder.name)
        inside = _INSIDE if self._shut_in else str(folder)
        asked = [f"{inside}/{POLICY}", self._policy.name, self._policy.kind]
        python = [sys.executable, "-s", "-m", _WORKER, *asked]
        return [*_bubblewrap(folder), *python] if self._shut_in else python


def _printable(text: Any) -> str:
    """At most 500 characters, none of which moves a terminal's cursor or begins a line."""
    return "".join(each if each.isprintable() else " " for each in str(text)[:500])


class Member:
    """One process. PolicyError for whatever it does instead of answering."""

    def __init__(self, command: list[str], prints: bool) -> None:
        self._process = subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if prints else subprocess.DEVNULL,
            cwd="/",
        )
        self._pipes = [each for each in (self._process.stdout, self._process.stdin) if each]
        self._channel = Channel(*(each.fileno() for each in self._pipes))
        self.ended = False
        self._until_s = 0.0

    def begin(self, document: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """A new policy for a new trial: its `chunk_packets`, and the hooks that it has."""
        self._until_s = time.monotonic() + TRIAL_S
        self._send(["begin", document], "__init__")
        what, *more = self._receive("the file", START_S)
        if what != "ready" or len(more) != 2 or not isinstance(more[1], list):
            raise self._nonsense("__init__")
        if not all(isinstance(each, str) for each in more[1]):
            raise self._nonsense("__init__")
        return more[0], more[1]

    def call(self, question: list[Any], answer: Any) -> list[Any]:
        """The actions of a hook; `answer(what, of)` has what it asks meanwhile."""
        hook = question[0]
        self._send(["call", *question], hook)
        while True:
            what, *more = self._receive(hook, ANSWER_S)
            if what == "done" and len(more) == 1 and isinstance(more[0], list):
                actions: list[Any] = more[0]
                return actions
            if what != "ask" or len(more) != 2 or not isinstance(more[1], int):
                raise self._nonsense(hook)
            self._send(answer(*more), hook)

    def _send(self, document: Any, hook: str) -> None:
        try:
            self._channel.send(document)
        except WireError:
            raise self._dead(hook) from None

    def _receive(self, hook: str, most_s: float) -> list[Any]:
        wait_s = min(most_s, self._until_s - time.monotonic())
        try:
            if wait_s <= 0:  # one that never stops asking is not silent
                raise SilentError("no time is left")
            found = self._channel.receive(wait_s)
        except SilentError:
            self.end()
            why = f"{hook} did not return, or all hooks of one run took more than {TRIAL_S:g} s"
            raise PolicyError(POLICY, None, why) from None
        except WireError as error:
            if "ended" in str(error):
                raise self._dead(hook) from None
            raise self._nonsense(hook) from None
        if not isinstance(found, list) or not found or not isinstance(found[0], str):
            raise self._nonsense(hook)
        if found[0] == "failed":
            raise self._failure(hook, found[1:])
        return found

    def _failure(self, hook: str, parts: list[Any]) -> PolicyError:
        if len(parts) != 3:
            return self._nonsense(hook)
        line, why, hint = parts
        line = line if isinstance(line, int) else None
        hint = None if hint is None else _printable(hint)
        return PolicyError(POLICY, line, _printable(why), hint=hint)

    def _nonsense(self, hook: str) -> PolicyError:
        self.end()
        return PolicyError(POLICY, None, f"{hook} answered with what are no actions")

    def _dead(self, hook: str) -> PolicyError:
        self.end()
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        why = f"{hook} ended its process ({how}); a hook returns a list of actions"
        return PolicyError(POLICY, None, why)

    def end(self) -> None:
        """Kill it, and with it all that it started: bubblewrap's first process was its parent."""
        if self.ended:
            return
        self.ended = True
        read, write = self._pipes
        with contextlib.suppress(OSError):
            write.close()  # ends a process that waits for the next question
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        read.close()
