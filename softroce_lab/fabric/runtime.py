# SPDX-License-Identifier: GPL-2.0-or-later
"""All labs of this machine: which there are, how they are, and which are only remains."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from softroce_lab.errors import LabError, UserError
from softroce_lab.fabric import interrupts
from softroce_lab.fabric.ledger import ledger, removal
from softroce_lab.fabric.ledger.identity import boot_id
from softroce_lab.fabric.ledger.ledger import History, LabBusyError, Ledger, LedgerDamagedError
from softroce_lab.fabric.rights import needing_room, needing_root
from softroce_lab.paths import LABS

DIRECTORY = LABS
BPFFS = "bpf"  # the mount point in a lab's directory


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """How a lab is at this moment."""

    name: str
    history: History
    busy: bool  # a process is working on it
    remains: str | None  # why it is only what is left of a lab; None: it is one
    unreadable: LabError | None = (
        None  # why the lab cannot be identified; it is then left unchanged
    )

    @property
    def word(self) -> str:
        if self.unreadable is not None:
            return "unreadable"
        return "remains" if self.remains else self.history.state


class ForeignError(LabError):
    """Something lies where a lab's directory would, and no lab made it."""


def examine(name: str) -> Condition | None:
    """How the lab called `name` is; None if there is none.

    EnvironmentLackError without the rights to read it.
    """
    problem: LabError
    try:
        with needing_root():
            return _examine(DIRECTORY / name)
    except FileNotFoundError:
        return None  # it went down meanwhile
    except OSError as error:
        problem = _foreign(DIRECTORY / name, error.strerror or str(error))
    except (ForeignError, LedgerDamagedError) as error:
        problem = error
    return Condition(name, History(), busy=False, remains=None, unreadable=problem)


def _examine(directory: Path) -> Condition:
    busy = _is_locked(directory)
    try:
        history = ledger.read(directory)
    except FileNotFoundError:
        history = History()
        strangers = sorted(path.name for path in directory.iterdir())
        if strangers and not busy:
            raise _foreign(directory, f"it has no ledger, but {', '.join(strangers)}") from None
    return Condition(directory.name, history, busy, None if busy else _why_remains(history))


def _foreign(path: Path, why: str) -> ForeignError:
    return ForeignError(f"{path} is not a lab's: {why}", hint="look at it, and remove it")


def _is_locked(directory: Path) -> bool:
    try:
        os.close(ledger.lock(directory, patience_s=0))
    except LabBusyError:
        return True
    return False


def _why_remains(history: History) -> str | None:
    """Why a lab that no process works on counts as remains."""
    if not history.header:
        return "its `lab up` died before it made anything"
    if history.header["boot"] != boot_id():
        return "it is of an earlier boot"
    if history.state != "up":
        died = {"starting": "its `lab up` died", "stopping": "its `lab down` died"}
        return died[history.state]
    if history.owner is not None and not history.owner.is_alive():
        return f"its owner, process {history.owner.pid}, died"
    return None


def labs() -> list[Condition]:
    if not DIRECTORY.is_dir():
        return []
    names = sorted(entry.name for entry in DIRECTORY.iterdir())
    return [condition for name in names if (condition := examine(name)) is not None]


def existing(name: str) -> Path:
    """The directory of the lab called `name`.

    UserError, which lists the known ones; LabError if it cannot be read.
    """
    known = {condition.name: condition.unreadable for condition in labs()}
    if name not in known:
        hint = f"there are: {', '.join(known)}" if known else "no lab is up"
        raise UserError(f"there is no lab called {name}", hint=hint)
    problem = known[name]
    if problem is not None:
        raise problem
    return DIRECTORY / name


def only() -> str:
    """The name of the only lab that can be read; UserError if there are none or several."""
    match [condition.name for condition in labs() if condition.unreadable is None]:
        case [name]:
            return name
        case []:
            raise UserError("there is no lab")
        case names:
            raise UserError(f"several labs: {', '.join(names)}", hint="say which one, or --all")


def down(name: str, say: removal.Say, on_step: Callable[[], None] = ledger.no_step) -> None:
    """Take the lab called `name` down, whatever state it is in; only its ledger is needed.

    An interrupt waits until that is done. UserError, LabBusyError.
    """
    directory = existing(name)
    with interrupts.held(), needing_root(), needing_room(directory):
        if _has_ledger(directory):
            removal.remove(Ledger.resume(directory, on_step=on_step), say)
        else:
            ledger.remove_empty(directory)


def _has_ledger(directory: Path) -> bool:
    return (directory / ledger.FILE).exists()


def down_all(say: removal.Say) -> Iterator[str]:
    """Take down every lab, yielding its name; LabError in the end for those that stayed."""
    failures: list[LabError] = []
    for condition in labs():
        try:
            down(condition.name, say)
            yield condition.name
        except LabError as error:
            failures.append(error)
    raise_all(failures)


def raise_all(failures: Sequence[LabError]) -> None:
    if failures:
        raise LabError("; ".join(error.what for error in failures), hint=failures[0].hint)


def claim(name: str, *, ephemeral: bool, say: removal.Say, on_step: Callable[[], None]) -> Ledger:
    """A new ledger for the lab `name`, after removing what an interrupted one of it left.

    UserError if a lab of that name is there.
    """
    condition = examine(name)
    if condition is not None and condition.remains:
        say(f"removing what is left of the lab {name}: {condition.remains}")
        sweep(condition, say)
    try:
        return Ledger.begin(DIRECTORY / name, ephemeral=ephemeral, on_step=on_step)
    except FileExistsError as error:
        raise _taken(name, condition) from error


def _taken(name: str, condition: Condition | None) -> LabError:
    if condition is not None and condition.unreadable is not None:
        return condition.unreadable
    another = "choose another name: --name NAME"
    if condition is None or condition.busy:
        user = "another process" if condition is None else _user(condition.history)
        return UserError(
            f"the lab {name} is being used by {user}", hint=f"wait for it, or {another}"
        )
    return UserError(f"the lab {name} is up already", hint=f"lab down {name}, or {another}")


def _user(history: History) -> str:
    owner = history.owner if history.header else None
    return f"process {owner.pid}" if owner else "another process"


def sweep(
    condition: Condition, say: removal.Say, on_step: Callable[[], None] = ledger.no_step
) -> None:
    """Remove the remains of a lab; nothing happens if it became a lab, or was swept, meanwhile."""
    directory = DIRECTORY / condition.name
    try:
        if not _has_ledger(directory):
            ledger.remove_empty(directory)
            return
        remains = Ledger.resume(directory, on_step=on_step)
    except (FileNotFoundError, LabBusyError):
        return
    if _why_remains(remains.history):
        removal.remove(remains, say)
    remains.close()


# --- Removing what dead `up`s, dead `down`s and dead owners left; nothing else ----------------


@dataclasses.dataclass(frozen=True, slots=True)
class Collection:
    removed: list[Condition] = dataclasses.field(default_factory=list)
    failures: list[LabError] = dataclasses.field(default_factory=list)  # why others stayed


def remains() -> list[Condition]:
    return [condition for condition in labs() if condition.remains]


def collect(say: removal.Say) -> Collection:
    """Remove the remains of all labs. What cannot be read is left unchanged, and reported."""
    collection = Collection()
    for condition in labs():
        if condition.unreadable is not None:
            say(f"left alone: {condition.unreadable.what}")
        elif condition.remains:
            try:
                with needing_room(DIRECTORY):
                    sweep(condition, say)
                collection.removed.append(condition)
            except LabError as error:
                collection.failures.append(error)
    return collection
