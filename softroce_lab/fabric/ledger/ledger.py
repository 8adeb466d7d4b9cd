# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab has put on this machine, written down before it is made.

`/run/softroce_lab/<lab>/ledger.jsonl` is only ever appended to, one JSON object a line:

    {"record": "lab", "format": 1, "name", "token", "boot", "owner", "begun_ns"}   the first line
    {"record": "state", "state": "starting" | "up" | "stopping", ...}
    {"record": "object", "id", "kind", ...}   about to be made
    {"record": "identity", "id", ...}         made; how to identify it later
    {"record": "gone", "id"}                  taken away

A line without its newline is one whose writer died writing it: what it announces was never made.
Whoever writes holds a flock on the lab's directory, so `up`, `down` and `gc` never meet in one
lab; a lab whose writer died is free at once, since the kernel drops the lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from softroce_lab.errors import LabError, RunError
from softroce_lab.fabric import rights
from softroce_lab.fabric.ledger.identity import ProcessIdentity, boot_id
from softroce_lab.fabric.net import syscalls

State = Literal["starting", "up", "stopping"]

FILE = "ledger.jsonl"
_FORMAT = 1
_LOCK_POLL_S = 0.01
_RESERVE_BYTES = 4096  # behind every line: room to take a lab down on a full file system
_MODE = 0o700  # whoever may open the directory may lock it, and so keep the lab from going down


@dataclasses.dataclass(slots=True)
class Entry:
    id: int
    kind: str
    facts: dict[str, Any]  # of the announcement and, once it is known, the identity


@dataclasses.dataclass(slots=True)
class History:
    header: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: State = "starting"
    state_facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    entries: dict[int, Entry] = dataclasses.field(default_factory=dict)
    next_id: int = 0

    def add(self, record: dict[str, Any]) -> None:
        facts = dict(record)
        match facts.pop("record"):
            case "lab":
                self.header = facts
            case "state":
                self.state = facts.pop("state")
                self.state_facts = facts
            case "object":
                entry = Entry(facts.pop("id"), facts.pop("kind"), facts)
                self.entries[entry.id] = entry
                self.next_id = entry.id + 1
            case "identity":
                self.entries[facts.pop("id")].facts.update(facts)
            case "gone":
                del self.entries[facts["id"]]
            case other:
                raise ValueError(f"no record is called {other!r}")

    def check(self) -> None:
        """ValueError, LookupError or TypeError if a required record is missing."""
        if self.header["format"] != _FORMAT:
            raise ValueError(f"format {self.header['format']}, not {_FORMAT}")
        _ = self.token, self.owner, self.header["boot"], self.header["name"]
        if self.state not in get_args(State):
            raise ValueError(f"no state is called {self.state!r}")

    @property
    def token(self) -> int:
        return int(self.header["token"], 16)

    @property
    def owner(self) -> ProcessIdentity | None:
        """The process whose end takes the ephemeral lab down."""
        owner = self.header["owner"]
        return None if owner is None else ProcessIdentity(**owner)

    def of_kind(self, kind: str) -> list[Entry]:
        """The living entries of one kind, oldest first."""
        return [entry for entry in self.entries.values() if entry.kind == kind]


class LedgerDamagedError(LabError):
    """A ledger that this program did not write like that."""

    def __init__(self, path: Path, line: int, problem: Exception) -> None:
        super().__init__(
            f"line {line} of {path} is damaged ({type(problem).__name__}: {problem})",
            hint="what the lab made is in `ip netns list` and `mount`; remove that by hand, "
            f"then {path.parent}",
        )


def read(directory: Path) -> History:
    """The history so far, of a lab that another process may be writing.

    FileNotFoundError, LedgerDamagedError.
    """
    history = History()
    path = directory / FILE
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            history.add(json.loads(line))
            history.check()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise LedgerDamagedError(path, number, error) from error
    return history


class LabBusyError(LabError):
    """Another process is working on this lab."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"another process is working on the lab {directory.name}",
            hint="wait for it, or stop it; `lab ps` shows the labs",
        )


def lock(directory: Path, patience_s: float = 0.5) -> int:
    """A descriptor that holds the lab until it is closed. LabBusyError, FileNotFoundError.

    A timeout is for callers that only test whether the lab is held.
    """
    deadline = time.monotonic() + patience_s
    while True:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if _locked(fd) and os.path.samestat(os.fstat(fd), directory.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # held, or of a lab that went down meanwhile
        if time.monotonic() >= deadline:
            raise LabBusyError(directory)
        time.sleep(_LOCK_POLL_S)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _claimed(directory: Path) -> int:
    """The lock on a directory made now, with an empty ledger in it. FileExistsError."""
    while True:
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last lab to go takes the parent
            directory.mkdir(mode=_MODE)
            fd = lock(directory)
            break
    try:
        (directory / FILE).touch(mode=0o600, exist_ok=False)
    except BaseException:
        directory.rmdir()
        os.close(fd)
        raise
    return fd


def remove_empty(directory: Path) -> None:
    """Remove the directory of a lab whose `lab up` died before it began a ledger.

    OSError if it is not empty; LabBusyError, FileNotFoundError.
    """
    fd = lock(directory)
    try:
        directory.rmdir()
    finally:
        os.close(fd)
    _remove_if_empty(directory.parent)


def _remove_if_empty(parent: Path) -> None:
    with contextlib.suppress(OSError):  # contains other labs
        parent.rmdir()


def _header(name: str, ephemeral: bool) -> dict[str, Any]:
    owner = dataclasses.asdict(ProcessIdentity.of(os.getpid())) if ephemeral else None
    return {
        "format": _FORMAT,
        "name": name,
        "token": secrets.token_hex(8),
        "boot": boot_id(),
        "owner": owner,
        "begun_ns": time.time_ns(),
    }


def no_step() -> None:
    """Do nothing at a step."""


class Ledger:
    """The one writer of a lab's ledger. Close it to let others work on the lab.

    `on_step` is called right before and right after each line is written: between any two acts.
    What it raises passes through, so it is where an interrupt ends the work.
    """

    def __init__(
        self, directory: Path, lock_fd: int, on_step: Callable[[], None] = no_step
    ) -> None:
        """Take over `lock_fd`, from `lock(directory)`, and the ledger that is there."""
        self.directory = directory
        self._lock_fd = lock_fd
        self._fd = -1
        self.on_step = on_step
        try:
            self._fd = os.open(directory / FILE, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
            self.history = read(directory)
            self._cut_torn_line()
        except BaseException:
            self.close()
            raise

    @classmethod
    def begin(
        cls, directory: Path, *, ephemeral: bool, on_step: Callable[[], None] = no_step
    ) -> Ledger:
        """Claim a lab's name by making its directory. FileExistsError if it is claimed."""
        self = cls(directory, _claimed(directory), on_step)
        try:
            self._append({"record": "lab", **_header(directory.name, ephemeral)})
        except BaseException:
            self.destroy()
            raise
        return self

    @classmethod
    def resume(cls, directory: Path, *, on_step: Callable[[], None] = no_step) -> Ledger:
        """Go on with the ledger of an existing lab.

        LabBusyError, FileNotFoundError, LedgerDamagedError.
        """
        return cls(directory, lock(directory), on_step)

    def _cut_torn_line(self) -> None:
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        os.ftruncate(self._fd, text.rfind(b"\n") + 1)

    def _append(self, record: dict[str, Any], *, dispensable: bool = False) -> None:
        """Write a line down. RunError if it finds no room, unless it is dispensable."""
        self.on_step()
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            self._write(line, 0 if dispensable else _RESERVE_BYTES)
        except OSError as error:
            if not dispensable:
                path = self.directory / FILE
                raise RunError(
                    f"cannot write {path}: {error.strerror}", hint=rights.ROOM_HINT
                ) from error
        self.history.add(record)
        self.on_step()

    def _write(self, line: bytes, reserve_bytes: int) -> None:
        """Append the whole line, or nothing and raise OSError."""
        end = os.fstat(self._fd).st_size
        if reserve_bytes:
            self._reserve(end, len(line) + reserve_bytes)
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, end)  # or the next line would be glued to a torn one
            raise

    def _reserve(self, offset: int, length_bytes: int) -> None:
        try:
            syscalls.reserve(self._fd, offset, length_bytes)
        except OSError as error:
            if (
                error.errno != errno.EOPNOTSUPP
            ):  # then a line may fail for lack of space, with an error
                raise

    def enter_state(self, state: State, **facts: object) -> None:
        """Note how far the lab is. That it is on its way out can be left unsaid."""
        record = {"record": "state", "state": state, **facts}
        self._append(record, dispensable=state == "stopping")

    def announce(self, kind: str, **facts: object) -> int:
        number = self.history.next_id
        self._append({"record": "object", "id": number, "kind": kind, **facts})
        return number

    def identify(self, number: int, **facts: object) -> None:
        self._append({"record": "identity", "id": number, **facts})

    def strike(self, number: int) -> None:
        """Note that an object is gone; without space for it, the absence shows it."""
        self._append({"record": "gone", "id": number}, dispensable=True)

    def destroy(self) -> None:
        """Remove the lab's directory, which is to hold nothing but the ledger, and close."""
        strangers = sorted(set(os.listdir(self.directory)) - {FILE})  # noqa: PTH208
        if strangers:
            raise LabError(
                f"{self.directory} holds what the lab did not make: {', '.join(strangers)}",
                hint="remove that, then run: lab doctor --clean",
            )
        (self.directory / FILE).unlink()
        self.directory.rmdir()
        _remove_if_empty(self.directory.parent)
        self.close()

    def close(self) -> None:
        """Let go of the lab, which stays as it is."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1
