# SPDX-License-Identifier: GPL-2.0-or-later
"""A submission's processes: one for each host, so that hosts learn of each other by packets alone.

Each process runs in bubblewrap: without a network, with a read-only system, and with no file of
its machine but Python and this package without the labs. It bounds its memory, its processor time
and its output itself, before it reads the policy (sandbox/worker.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import EnvironmentLackError
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.learn.sandbox.wire import Channel, TimeoutWireError, WireError

POLICY = "policy.py"
ANSWER_S = 20.0
"""How long a process may take for one hook; its own guard ends a hook that loops after 5 s."""
TRIAL_S = 60.0
"""How long a process may take for all hooks of one trial."""
START_S = 60.0
_END_S = 5.0
_MAX_PRINTED = 1 << 16  # bytes of a process

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOM = Path(__file__).resolve().parent
_HIDDEN = (_PACKAGE / "transports" / "shift",)
"""Rooms that hold the answer to a lab."""
WORKER = "softroce_lab.learn.sandbox.worker"
_INSIDE = "/submission"


# --- bubblewrap ------------------------------------------------------------------------------


@functools.cache
def why_not_isolated() -> str | None:
    """Why submissions cannot run in bubblewrap here; None: they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory() as folder:
        command = [*bubblewrap(Path(folder)), sys.executable, "-c", "import numpy"]
        try:
            done = subprocess.run(
                command, env=_environment(), capture_output=True, text=True, timeout=START_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap cannot run here: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"bubblewrap cannot run here: {lines[-1]}"
    return None


def require_isolation(*, trust: bool = False, may_trust: bool = True) -> bool:
    """Whether to run in bubblewrap. EnvironmentLackError where it cannot, unless trusted."""
    why = why_not_isolated()
    if why is None or trust:
        return why is None
    hint = "apt install bubblewrap; it needs user namespaces, or root"
    if may_trust:
        hint += ". --trust runs a policy of your own without it"
    what = f"the policy cannot be isolated: {why}"
    raise EnvironmentLackError("bubblewrap", what, hint=hint)


def bubblewrap(submission: Path) -> list[str]:
    """The command that runs another one with this folder as its only own file system."""
    command = [
        "bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
        "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "sandbox",
        "--cap-drop", "ALL",
    ]  # fmt: skip
    if os.geteuid() == 0:  # the worker becomes another user
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += _mounts()
    # A policy must not read what a task requires: of this package it sees `sandbox` alone.
    command += ["--tmpfs", str(_ROOM)]
    for name in ("__init__.py", "sandbox"):
        command += ["--ro-bind", str(_ROOM / name), str(_ROOM / name)]
    command += ["--remount-ro", str(_ROOM)]
    for path in _HIDDEN:
        command += ["--tmpfs", str(path), "--remount-ro", str(path)]
    command += ["--dev", "/dev", "--remount-ro", "/dev", "--ro-bind", str(submission), _INSIDE]
    return [*command, "--remount-ro", "/", "--chdir", _INSIDE]


def _mounts() -> list[str]:
    """The system and Python, read-only."""
    options = []
    for name in ("usr", "lib", "lib64", "lib32", "bin", "sbin"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    folders = _python_folders()
    for parent in sorted({parent for path in folders for parent in path.parents[:-1]}):
        if not any(parent.is_relative_to(path) for path in folders):
            options += ["--perms", "0755", "--dir", str(parent)]
    for path in folders:
        options += ["--ro-bind", str(path), str(path)]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        options += ["--ro-bind-try", file, file]
    return options


def _python_folders() -> list[Path]:
    """Where this interpreter imports from, without the rest of a checkout."""
    folders = {
        Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent,
        _PACKAGE, Path(str(_native.__file__)).parent, Path(np.__file__).parents[1],
    }  # fmt: skip
    return sorted(path for path in folders - {Path("/")} if not path.is_relative_to("/usr"))


def _environment() -> dict[str, str]:
    paths = [str(_PACKAGE.parent), str(Path(np.__file__).parents[1])]
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PYTHONPATH": ":".join(dict.fromkeys(paths)),
        "PYTHONHASHSEED": "0",  # what a policy decides by a set's order is the same everywhere
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


# --- The processes ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """A submission's file."""

    source: bytes
    name: str  # of the class
    kind: str = "transport"  # or "failover"


class Workers:
    """Processes of one submission, by host. A context: they end with it."""

    def __init__(self, policy: Policy, *, isolated: bool, prints: bool = False) -> None:
        """`isolated`: in bubblewrap. `prints`: what the policy prints goes to stderr."""
        self._folder = tempfile.TemporaryDirectory(prefix="softroce-lab-learn-")
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        (folder / POLICY).write_bytes(policy.source)
        self._prints = prints
        inside = _INSIDE if isolated else str(folder)
        words = [f"{inside}/{POLICY}", policy.name, policy.kind, "isolated" if isolated else ""]
        python = [sys.executable, "-s", "-m", WORKER, *words]
        self._command = [*bubblewrap(folder), *python] if isolated else python
        self._workers: dict[int, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()
        self._folder.cleanup()

    def get(self, host: int) -> Worker:
        """The process of a host; a new one if there is none, or if it ended."""
        worker = self._workers.get(host)
        if worker is None or worker.ended:
            worker = self._workers[host] = Worker(self._command, self._prints)
        return worker


def _printable(text: str) -> str:
    """A text in which no character moves a terminal's cursor or begins a line."""
    return "".join(char if char.isprintable() else " " for char in text)


class Worker:
    """One process. PolicyError for whatever it does instead of answering."""

    def __init__(self, command: list[str], prints: bool) -> None:
        self._process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if prints else subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._relay = threading.Thread(target=self._relay_prints, daemon=True)
        self._relay.start()
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stdin) if pipe]
        self._channel = Channel(*(pipe.fileno() for pipe in self._pipes))
        self.ended = False
        self._until_s = 0.0

    def _relay_prints(self) -> None:
        """Show what the policy prints, up to a bound. What comes then is dropped."""
        left = _MAX_PRINTED
        pipe = self._process.stderr
        while pipe is not None and (part := os.read(pipe.fileno(), 4096)):
            lines = part[:left].decode(errors="replace").split("\n")
            sys.stderr.write("\n".join(map(_printable, lines)))
            if len(part) > left > 0:
                sys.stderr.write("\n... the policy printed more than is shown\n")
            left = max(left - len(part), 0)

    def begin(self, document: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """A new policy for a new trial: its `chunk_packets`, and the hooks that it defines."""
        self._until_s = time.monotonic() + TRIAL_S
        self._send(["begin", document], "__init__")
        what, *more = self._receive("the file", START_S)
        if what != "ready" or len(more) != 2 or not isinstance(more[1], list):
            raise self._nonsense("__init__")
        if not all(isinstance(name, str) for name in more[1]):
            raise self._nonsense("__init__")
        return more[0], more[1]

    def call(self, question: list[Any], answer: Callable[[Any, int], Any]) -> list[Any]:
        """The actions of a hook; `answer(what, number)` answers what it asks meanwhile."""
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

    def _time_left(self, most_s: float) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:  # a policy that asks without end is never silent
            raise TimeoutWireError("no time is left")
        return min(most_s, left_s)

    def _send(self, document: Any, hook: str) -> None:
        try:
            self._channel.send(document, self._time_left(ANSWER_S))
        except TimeoutWireError:
            raise self._silent(hook) from None
        except WireError:
            raise self._dead(hook) from None

    def _receive(self, hook: str, most_s: float) -> list[Any]:
        try:
            answer = self._channel.receive(self._time_left(most_s))
        except TimeoutWireError:
            raise self._silent(hook) from None
        except WireError as error:
            if "ended" in str(error):
                raise self._dead(hook) from None
            raise self._nonsense(hook) from None
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], str):
            raise self._nonsense(hook)
        if answer[0] == "failed":
            raise self._failure(hook, answer[1:])
        return answer

    def _failure(self, hook: str, parts: list[Any]) -> PolicyError:
        if len(parts) != 3:
            return self._nonsense(hook)
        line, why, hint = parts
        line = line if isinstance(line, int) else None
        hint = None if hint is None else _printable(str(hint)[:500])
        return PolicyError(POLICY, line, _printable(str(why)[:500]), hint=hint)

    def _silent(self, hook: str) -> PolicyError:
        self.end()
        why = f"{hook} did not return, or all hooks of one run took more than {TRIAL_S:g} s"
        return PolicyError(POLICY, None, why)

    def _nonsense(self, hook: str) -> PolicyError:
        self.end()
        return PolicyError(POLICY, None, f"{hook} answered with what are no actions")

    def _dead(self, hook: str) -> PolicyError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)  # it closed its pipe, and is about to end
        self.end()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        why = f"{hook} ended its process ({how}); a hook returns a list of actions"
        return PolicyError(POLICY, None, why)

    def end(self) -> None:
        """Kill the process; what it started dies with its process namespace."""
        if self.ended:
            return
        self.ended = True
        self._process.kill()
        self._process.wait()
        self._relay.join(_END_S)
        for pipe in (*self._pipes, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
