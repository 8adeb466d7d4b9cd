# SPDX-License-Identifier: GPL-2.0-or-later
"""Where Wireshark and tshark look for Lua dissectors, and ours there: installed, renewed, removed.

Under sudo the personal folder is that of the user behind it, and is written with that user's
rights: a link in it leads no further than the user may go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from softroce_lab import __version__
from softroce_lab.dissect import lua
from softroce_lab.errors import EnvironmentLackError, UserError

FILE_NAME = "softroce.lua"
_PERSONAL = Path(".local/lib/wireshark/plugins")
_READERS = ("tshark", "wireshark")
_TIMEOUT_S = 20


@dataclasses.dataclass(frozen=True)
class User:
    """Whose folder it is, and with whose rights it is written."""

    uid: int
    gid: int
    home: Path

    @property
    def drops_rights(self) -> bool:
        """Whether this process is root and the user is not."""
        return os.geteuid() == 0 != self.uid


@dataclasses.dataclass(frozen=True)
class Place:
    folder: Path
    owner: User


class State(enum.StrEnum):
    """What lies where our file belongs."""

    ABSENT = "absent"
    CURRENT = "current"  # what this version would write
    OUTDATED = "outdated"
    FOREIGN = "foreign"


@dataclasses.dataclass(frozen=True)
class Installation:
    path: Path
    state: State


def _user(uid: int) -> User:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise UserError(f"there is no user {uid}", hint="name the folder with --output") from error
    home = os.environ.get("HOME") if uid == os.geteuid() else None
    return User(uid, entry.pw_gid, Path(home or entry.pw_dir))


def _this_user() -> User:
    """The one that this process runs as; it need not be in the list of users."""
    return User(os.geteuid(), os.getegid(), Path(os.environ.get("HOME", "/")))


def personal() -> Place:
    """The own folder of the user behind sudo, else of the one that this process runs as."""
    uid = os.environ.get("SUDO_UID", "")
    user = _user(int(uid)) if os.geteuid() == 0 and uid.isdigit() else _this_user()
    listed = _folders(user).get("Personal Lua Plugins")
    return Place(Path(listed) if listed else user.home / _PERSONAL, user)


def everyones() -> Place:
    """The folder for all users; EnvironmentLackError where Wireshark is not there to name it."""
    listed = _folders(_this_user()).get("Global Lua Plugins")
    if listed is None:
        raise EnvironmentLackError(
            "tshark or wireshark", hint="install one, or name the folder with --output"
        )
    return Place(Path(listed), _this_user())


def named(folder: Path) -> Place:
    return Place(folder, _this_user())


def _folders(user: User) -> dict[str, str]:
    """What Wireshark prints of its folders when that user runs it; nothing without Wireshark."""
    program = next(filter(None, map(shutil.which, _READERS)), None)
    if program is None:
        return {}
    drops = user.drops_rights
    environment = {"PATH": os.defpath, "HOME": str(user.home), "LC_ALL": "C.UTF-8"}
    try:
        listed = subprocess.run(
            [program, "-G", "folders"],
            env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            user=user.uid if drops else None, group=user.gid if drops else None,
            extra_groups=[] if drops else None,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition(":") for line in listed.stdout.splitlines())
    return {name.strip(): folder.strip() for name, _, folder in lines if folder.strip()}


# ---------------------------------------------------------------- our file


def program() -> str:
    return lua.dissector(__version__)


def inspect(place: Place) -> Installation:
    """What lies in the folder under our file's name."""
    path = place.folder / FILE_NAME
    try:
        with _acting_as(place.owner):
            text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return Installation(path, State.ABSENT)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not text.startswith(lua.MARK):
        return Installation(path, State.FOREIGN)
    return Installation(path, State.CURRENT if text == program() else State.OUTDATED)


def install(place: Place) -> None:
    """Write our file, in place of an older one of ours; UserError if it is somebody else's."""
    found = _ours_or_absent(place, "overwrite")
    written = program()  # with our rights: the checkout may be closed to that user
    try:
        with _acting_as(place.owner):
            place.folder.mkdir(parents=True, exist_ok=True)
            _replace(found.path, written)
    except OSError as error:
        raise UserError(
            f"cannot write {found.path}: {error.strerror}",
            hint="name a folder that you may write to with --output",
        ) from error


def uninstall(place: Place) -> bool:
    """Remove our file; whether there was one. UserError if it is somebody else's."""
    found = _ours_or_absent(place, "remove")
    try:
        with _acting_as(place.owner):
            found.path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot remove {found.path}: {error.strerror}") from error
    return found.state is not State.ABSENT


def _ours_or_absent(place: Place, verb: str) -> Installation:
    found = inspect(place)
    if found.state is State.FOREIGN:
        raise UserError(
            f"{found.path} is not of softroce_lab: not going to {verb} it",
            hint="move it away, or name another folder with --output",
        )
    return found


def _replace(path: Path, text: str) -> None:
    """Write the file in one step: a Wireshark that starts meanwhile reads a whole one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        written = Path(file.name)
        file.write(text)
    try:
        written.chmod(0o644)
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _acting_as(user: User) -> Iterator[None]:
    """With the rights of `user` alone, where this process has all."""
    if not user.drops_rights:
        yield
        return
    own_group, own_groups = os.getegid(), os.getgroups()
    os.setgroups([user.gid])
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(own_group)
        os.setgroups(own_groups)
