# SPDX-License-Identifier: GPL-2.0-or-later
"""The run directory: `./runs/<time>-<name>`, the same for every experiment.

`run_files` lists its files and the columns of their tables. Times in tables are nanoseconds since
the beginning of their run. `runs/latest` points at the newest. Everything belongs to the user
behind sudo.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from softroce_lab import __version__
from softroce_lab.errors import RunError, UserError

SCHEMA_VERSION = 1
RUNS = Path("runs")
LATEST = "latest"
_RESERVE = ".reserve"
_RESERVE_BYTES = 16 << 10  # for what the last manifest has more than the first

Columns: TypeAlias = Mapping[str, Any]  # of a table, by name


def check_name(folder: Path) -> None:
    """UserError for a folder name that Parquet's library cannot take."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(f"{str(folder)!r} is not in UTF-8", hint="-o DIR: another folder") from None


class RunDirectory:
    """A run directory that is being filled."""

    def __init__(self, path: Path, before: str | None = None) -> None:
        self.path = path
        self._before = before  # what `latest` pointed at
        # Whoever owns the parent folder could put a link in the place of this one: all files are
        # written below the folder that was opened here.
        opened = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        weakref.finalize(self, os.close, opened)
        self.inside = Path(f"/proc/{os.getpid()}/fd/{opened}")
        self._manifest: dict[str, Any] = {}

    @classmethod
    def create(cls, name: str, *, under: Path = RUNS) -> RunDirectory:
        """A new directory, and `latest` pointing at it.

        If it cannot be made, UserError where the folder was chosen, RunError where it was not.
        """
        check_name(under)
        with _writing(under):
            try:
                before = _latest(under)
                return cls(_create(name, under), before)
            except OSError as error:
                if under == RUNS:
                    raise
                is_file = error.errno == errno.EEXIST
                reason = os.strerror(errno.ENOTDIR) if is_file else error.strerror or error
                what = f"no run directory can be made in {under}: {reason}"
                raise UserError(what, hint="-o DIR: a folder, there or not") from error

    def withdraw(self) -> None:
        """Nothing came of it: `latest` points again at what it pointed at before, if at all."""
        under = self.path.parent
        if _latest(under) == self.path.name:  # not at a run that began later
            with _writing(under):
                if self._before is None:
                    (under / LATEST).unlink()
                else:
                    _point_latest(under, self._before)

    def manifest(self, **facts: Any) -> None:
        """Add facts to the manifest and write it, whole, at once; facts without room are forgotten.

        While the state is `running`, room is reserved for a manifest of another state.
        """
        manifest = self._manifest | facts
        text = json.dumps({"schema_version": SCHEMA_VERSION, **manifest}, indent=1) + "\n"
        if facts.get("state", "running") != "running":
            with _writing(self.path / _RESERVE):
                (self.inside / _RESERVE).unlink(missing_ok=True)
        self._write("manifest.json", text)
        if "state" in facts and manifest["state"] == "running":
            self._reserve_room(len(text) + _RESERVE_BYTES)
        self._manifest = manifest

    def links(self, figures: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Figures of every directed link, by transport."""
        document = {"schema_version": SCHEMA_VERSION, "runs": figures}
        self._write("links.json", json.dumps(document, indent=1) + "\n")

    def stats(self, counters: Mapping[str, Mapping[str, Any]]) -> None:
        """All counters in the end, by transport and host (docs/reference/counters.md)."""
        document = {"schema_version": SCHEMA_VERSION, "runs": counters}
        self._write("stats.json", json.dumps(document, indent=1) + "\n")

    def file(self, name: str, content: bytes) -> None:
        """Write a file, whole, at once; `name` may have one folder in it."""
        folder = (self.inside / name).parent
        if folder != self.inside:
            with _writing((self.path / name).parent):
                folder.mkdir(exist_ok=True)
                give_to_user(folder)
        self._write(name, content)

    def table(self, name: str, columns: Columns) -> None:
        """Write `<name>.parquet` from equally long columns; those of objects hold text."""
        with self.growing_table(name) as add:
            add(columns)

    @contextlib.contextmanager
    def growing_table(self, name: str) -> Iterator[Callable[[Columns], None]]:
        """Write `<name>.parquet` part by part, all of the same columns; without any, no file."""
        import pyarrow as pa  # late: it takes a third of a second
        import pyarrow.parquet as pq

        path = self.path / f"{name}.parquet"
        fresh = self.inside / f".{path.name}.tmp"
        writer = None

        def add(columns: Columns) -> None:
            nonlocal writer
            text = {name: pa.string() for name, each in columns.items() if _is_text(each)}
            part = pa.table(
                {name: pa.array(each, text.get(name)) for name, each in columns.items()}
            )
            with _writing(path):
                if writer is None:
                    writer = pq.ParquetWriter(fresh, part.schema)
                    give_to_user(fresh)
                writer.write_table(part)

        try:
            yield add
        finally:
            if writer is not None:
                with _writing(path):
                    try:
                        writer.close()
                        fresh.replace(self.inside / path.name)
                    finally:  # a table without its end cannot be read: the one before stays
                        fresh.unlink(missing_ok=True)

    def _write(self, name: str, content: str | bytes) -> None:
        path = self.inside / name
        fresh = path.with_name(f".{path.name}.tmp")
        with _writing(self.path / name):
            try:
                fresh.write_bytes(content.encode() if isinstance(content, str) else content)
                give_to_user(fresh)
                fresh.replace(path)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise

    def _reserve_room(self, size_bytes: int) -> None:
        reserve = self.inside / _RESERVE
        with _writing(self.path / _RESERVE), reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            give_to_user(file.fileno())


def _is_text(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "O"


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}",
            hint="start it in a folder where there is room and the right to write",
        ) from error


def _create(name: str, under: Path) -> Path:
    under.mkdir(parents=True, exist_ok=True)
    give_to_user(under)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        path = under / (f"{stamp}-{name}" + (f"-{number}" if number else ""))
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            give_to_user(path)
            _point_latest(under, path.name)
            return path
    raise FileExistsError(f"{under} holds a thousand runs of this second")


def environment() -> dict[str, Any]:
    """Of the machine and the software: what may differ between two runs of one seed."""
    return {
        "softroce_lab": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def give_to_user(path: Path | int) -> None:
    """Let a path, or an open file, belong to the user who called sudo, if one did."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (uid.isdecimal() and gid.isdecimal()):
        return
    if isinstance(path, int):
        os.fchown(path, int(uid), int(gid))
    else:
        os.chown(path, int(uid), int(gid), follow_symlinks=False)


def _latest(under: Path) -> str | None:
    try:
        return str((under / LATEST).readlink())
    except OSError:
        return None


def _point_latest(under: Path, name: str) -> None:
    fresh = under / f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(name)
    give_to_user(fresh)
    fresh.replace(under / LATEST)
