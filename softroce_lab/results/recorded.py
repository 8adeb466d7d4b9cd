# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run directory, or a sweep's, holds: opened, and refused in clear words where it is cut.

docs/reference/run-directory.md describes the files. A directory is one experiment, with runs: one a
transport and seed.
"""

from __future__ import annotations

import difflib
import functools
import glob
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts.program_words import UNSEEN
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.results.manifest import check
from softroce_lab.telemetry.rundir import LATEST, RUNS, SCHEMA_VERSION

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
Run: TypeAlias = Mapping[str, Any]
"""A run's figures, as the manifest has them."""

SWEEPS = Path("sweeps")
MANIFEST = "manifest.json"
_VIRTUAL = {"repairs": "repair times", "samples": "queues and windows over time"}
"""Tables of the virtual clock alone, by what they have."""
_LIST = "lab results ls shows the runs that are here"


class Recorded:
    """A run directory. UserError where it is none, or what is asked for is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)

    @property
    def name(self) -> str:
        """The name of the directory, through links such as `latest`."""
        return self.path.resolve().name

    @property
    def state(self) -> str:
        """`done`, `failed`, `interrupted`, or `running`, which a killed one has, too."""
        return str(self.manifest.get("state", "unknown"))

    @property
    def is_sweep(self) -> bool:
        """Whether it is a sweep's directory."""
        return "axes" in self.manifest

    @property
    def warning(self) -> str | None:
        """What the reader must know before all figures: that it is not whole."""
        return {
            "running": "not finished: it is still running, or it was killed",
            "interrupted": "interrupted: it has the runs that were done until then",
            "failed": f"broken off: {self.manifest.get('error', 'no reason was recorded')}",
        }.get(self.state)

    def need_whole(self) -> None:
        """UserError for what cannot be repeated, as it did not come to its end."""
        if self.state == "done":
            return
        what = f"{self.path} is no whole result" + (f": {self.warning}" if self.warning else "")
        file = shlex.quote(str((self.manifest.get("environment") or {}).get("file") or "FILE"))
        hint = f"lab run {file} runs it anew, then this command"
        if self.is_sweep:
            hint = f"lab run {file} goes on where it ended, then this command"
        elif "demo" in self.manifest:
            hint = "lab demo failover runs it anew, then this command"
        raise UserError(what, hint=hint)

    @property
    def runs(self) -> Sequence[Run]:
        """The figures of each run; UserError without any."""
        runs: Sequence[Run] = self.manifest.get("runs") or []
        if not runs:
            hint = self.warning or self._inner() or _LIST
            raise UserError(f"{self.path} has no run that is over", hint=hint)
        return [_Figures(run, self.path) for run in runs]

    def _inner(self) -> str | None:
        """The run directories below this one, such as those of a crosscheck; None."""
        found = sorted(self.path.glob("*/*/manifest.json"))
        names = [str(each.parent) for each in found if not each.parent.is_symlink()]
        return f"its runs are {', '.join(names)}" if names else None

    def run(self, name: str) -> Run:
        """The figures of the run `transport/seed`. UserError."""
        for run in self.runs:
            if name_of(run) == name:
                return run
        known = ", ".join(map(name_of, self.runs))
        raise UserError(f"{self.path} has no run {name!r}", hint=f"it has {known}")

    @functools.cached_property
    def links(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Figures of every directed link, by run. UserError."""
        return read_json(self.path / "links.json").get("runs", {})  # type: ignore[no-any-return]

    def has(self, table: str) -> bool:
        """Whether a table is there."""
        return (self.path / f"{table}.parquet").is_file()

    def table(self, name: str, run: Run | None = None) -> Columns:
        """A table's columns, of one run or of all; text is an array of objects. UserError.

        `events` of a run that was interrupted may be missing.
        """
        import pyarrow as pa  # late: it takes a third of a second
        import pyarrow.parquet as pq

        path = self.path / f"{name}.parquet"
        filters = None
        if run is not None:
            seed = pa.scalar(run["seed"], pa.uint64())
            filters = [("transport", "=", run["transport"]), ("seed", "=", seed)]
        try:
            found = pq.read_table(path, filters=filters)
        except FileNotFoundError:
            raise self._missing(path) from None
        except (OSError, pa.ArrowException) as error:
            raise broken_table(path, error) from error
        return {
            column: found.column(column).to_numpy(zero_copy_only=False)
            for column in found.column_names
        }

    def check_tables(self) -> None:
        """UserError for a table that is there and is cut or edited."""
        import pyarrow as pa  # late, as above
        import pyarrow.parquet as pq

        for path in sorted(self.path.glob("*.parquet")):
            try:
                pq.read_metadata(path)
            except (OSError, pa.ArrowException) as error:
                raise broken_table(path, error) from error

    def _missing(self, path: Path) -> UserError:
        """Why this table is not there."""
        if path.stem in _VIRTUAL and self.manifest.get("clock") == "real":
            file = (self.manifest.get("environment") or {}).get("file") or "FILE"
            what = f"the real clock does not record {_VIRTUAL[path.stem]}"
            return UserError(what, hint=f"lab run {shlex.quote(str(file))} --clock virtual")
        hint = self.warning or "it was deleted; lab results rerun makes it again"
        return UserError(f"{path} is missing", hint=hint)


class _Figures(dict[str, Any]):
    """Of a run. UserError for a figure that its schema did not have yet."""

    def __init__(self, run: Run, path: Path) -> None:
        super().__init__(run)
        self._path = path

    def __missing__(self, figure: str) -> Any:
        what = f"{name_of(self)} is of another schema: it has no {figure}"
        raise UserError(what, file=str(self._path / MANIFEST), hint="lab run it anew")


def name_of(run: Run) -> str:
    """`transport/seed`, by which links.json and `--run` name it."""
    return str(run.get("run") or f"{run.get('transport')}/{run.get('seed')}")


def programs_of(run: Run) -> Mapping[str, Mapping[str, Any]]:
    """What became of each host's program; {} for a run of messages."""
    return run.get("programs") or {}


def need_messages(run: Run) -> None:
    """UserError for a run of programs: no figure and no trace can be made of its messages."""
    if programs_of(run):
        hint = "lab results explain has those that met a loss, lab results show the programs' ends"
        raise UserError(f"{name_of(run)} has no messages: {UNSEEN}", hint=hint)


def read_manifest(path: Path) -> dict[str, Any]:
    """Of a run directory, or of a sweep. UserError, also for a value of another type."""
    if not path.is_dir():
        raise UserError(f"there is no directory {path}", hint=_LIST)
    if not (path / MANIFEST).is_file():
        raise UserError(f"{path} is no run directory: it has no {MANIFEST}", hint=_LIST)
    manifest = read_json(path / MANIFEST)
    version = manifest.get("schema_version")
    if not isinstance(version, int):
        raise UserError("has no schema_version: it is none of ours", file=str(path / MANIFEST))
    if version > SCHEMA_VERSION:
        what = f"has schema {version}, and this softroce_lab reads up to {SCHEMA_VERSION}"
        raise UserError(what, hint="a newer softroce_lab reads it", file=str(path / MANIFEST))
    check(manifest, path / MANIFEST)
    return manifest


def broken_table(path: Path, error: Exception) -> UserError:
    """What is wrong with a table that pyarrow cannot read, in words of ours."""
    if isinstance(error, OSError) and error.strerror:
        return UserError(f"cannot be read: {error.strerror}", file=str(path))
    hint = "lab results rerun makes the directory again"
    return UserError("is cut or edited, and no whole table", file=str(path), hint=hint)


def read_json(path: Path) -> dict[str, Any]:
    """A document of a run directory. UserError."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing", hint="lab results rerun makes it again") from None
    except RecursionError:
        raise UserError("is nested too deep", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"is cut or edited: {error}", file=str(path)) from error
    if not isinstance(document, dict):
        raise UserError("is no document of a run directory", file=str(path))
    return document


def _newest(name: str) -> Path | None:
    """The newest run or sweep whose directory is DATE-TIME-NAME."""
    pattern = f"{'[0-9]' * 8}-{'[0-9]' * 6}-{glob.escape(name)}"
    found = [each for folder in (RUNS, SWEEPS) for each in folder.glob(pattern)]
    whole = [each for each in found if (each / MANIFEST).is_file()]
    return max(whole, key=lambda each: each.name, default=None)


def find(where: str) -> Path:
    """A directory by path, or by its name below ./runs or ./sweeps. UserError.

    `latest` is ./runs/latest. Without its date and time a name means the newest of that name.
    """
    path = Path(where)
    for candidate in (path, RUNS / where, SWEEPS / where):
        if (candidate / MANIFEST).is_file():
            return candidate.parent / candidate.readlink() if candidate.is_symlink() else candidate
    if path.is_dir():
        read_manifest(path)  # raises why it is none
    if (named := _newest(where)) is not None:
        return named
    known = sorted({each.parent.name for folder in (RUNS, SWEEPS) for each in _manifests(folder)})
    if path in (Path(LATEST), RUNS / LATEST) and not any(_manifests(RUNS)):
        what = f"no run is in ./{RUNS} of this folder"
        raise UserError(what, hint="lab run ring-all-reduce makes one")
    near = difflib.get_close_matches(path.name, known, n=1)
    hint = did_you_mean(path.name, near) if near else _LIST
    raise UserError(f"no run or sweep is called {where!r}", hint=hint)


def _manifests(folder: Path) -> Iterator[Path]:
    """Those of the directories in it, `latest` among them."""
    return folder.glob(f"*/{MANIFEST}")
