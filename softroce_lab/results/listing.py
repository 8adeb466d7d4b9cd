# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results ls`, `lab results show`: what was run, from which file, with which result."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment import bounds, workload_table
from softroce_lab.experiment.workload_table import Line, Spread, least_and_most
from softroce_lab.results.recorded import MANIFEST, Recorded, name_of, read_manifest
from softroce_lab.statistics import footnotes


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A directory, in a line."""

    path: Path
    kind: str  # run, sweep, or damaged
    time: str  # when it began, local
    state: str
    verdict: str
    clock: str
    runs: int  # that there are to be, of a sweep; else those that are over
    done: int  # of them
    transports: tuple[str, ...]
    file: str
    problem: str = ""  # why it cannot be read

    def document(self) -> dict[str, Any]:
        document = dataclasses.asdict(self)
        return document | {"path": str(self.path), "transports": list(self.transports)}


def entries(folders: Sequence[Path]) -> Iterator[Entry]:
    """What is in these folders, the newest first; links, and what is no directory, are left out."""
    found = [
        each
        for folder in folders
        if folder.is_dir()
        for each in folder.iterdir()
        if each.is_dir() and not each.is_symlink() and (each / MANIFEST).exists()
    ]
    listed = [_entry(path) for path in found]
    yield from sorted(listed, key=lambda entry: (entry.time, entry.path.name), reverse=True)


def _entry(path: Path) -> Entry:
    try:
        manifest = read_manifest(path)
    except UserError as error:
        return Entry(path, "damaged", "", "", "", "", 0, 0, (), "", str(error))
    about = manifest.get("environment") or {}
    is_sweep = "axes" in manifest
    runs = manifest.get("runs") or []
    asked = (manifest.get("experiment") or {}).get("transports") or []
    labels = (
        [run["transport"] for run in runs]
        if isinstance(runs, list) and runs
        else [t["label"] for t in asked]
    )
    count = len(runs) if isinstance(runs, list) else int(runs)
    return Entry(
        path=path,
        kind="sweep" if is_sweep else "run",
        time=str(about.get("time", "")),
        state=str(manifest.get("state", "")),
        verdict=str(manifest.get("verdict", "")),
        clock=str(manifest.get("clock", "")),
        runs=count,
        done=int(manifest.get("done") or 0) if is_sweep else count,
        transports=tuple(dict.fromkeys(labels)),
        file=str(about.get("file") or _verb(manifest)),
    )


def _verb(manifest: Mapping[str, Any]) -> str:
    """What ran, where no file did."""
    story = (manifest.get("demo") or {}).get("story")
    return f"lab demo {story}" if story else ""


def facts_to_share(recorded: Recorded) -> list[tuple[str, str]]:
    """`facts` for readers elsewhere: without the folder of the file, which may name its author."""
    return [
        (title, Path(text).name if title == "file" else text) for title, text in facts(recorded)
    ]


def facts(recorded: Recorded) -> list[tuple[str, str]]:
    """What was run, as pairs of a title and a text; without a value none."""
    manifest = recorded.manifest
    about = manifest.get("environment") or {}
    found = [
        ("sweep" if recorded.is_sweep else "experiment", manifest.get("name")),
        ("file", about.get("file")),
        ("began", about.get("time")),
        ("state", recorded.state),
        *(_sweep_facts(manifest) if recorded.is_sweep else _run_facts(manifest)),
    ]
    return [(title, str(value)) for title, value in found if value not in (None, "")]


def _sweep_facts(manifest: Mapping[str, Any]) -> list[tuple[str, Any]]:
    about = manifest.get("environment") or {}
    return [
        ("axes", json.dumps(manifest.get("axes") or {})),
        ("runs", f"{manifest.get('done')} of {manifest.get('runs')}"),
        ("softroce_lab", about.get("commit") or about.get("softroce_lab")),
    ]


def _run_facts(manifest: Mapping[str, Any]) -> list[tuple[str, Any]]:
    about = manifest.get("environment") or {}
    workload = (manifest.get("experiment") or {}).get("workload") or {}
    rules = [each for each in manifest.get("faults") or [] if not each["rule"].startswith("link:")]
    return [
        ("verdict", manifest.get("verdict")),
        ("clock", manifest.get("clock")),
        ("workload", _workload(workload)),
        ("topology", f"{manifest.get('topology')}, {len(manifest.get('hosts') or [])} hosts"),
        ("faults", "; ".join(_rule(each) for each in rules)),
        ("seeds", _seeds(manifest.get("seeds") or [])),
        ("softroce_lab", _code(about)),
    ]


def _workload(workload: dict[str, Any]) -> str:
    parts = [str(workload.get("kind", ""))]
    if workload.get("bytes"):
        parts.append(units.format_bytes(workload["bytes"]))
    if workload.get("message"):
        parts.append(f"in messages of {units.format_bytes(workload['message'])}")
    return ", ".join(parts)


def _rule(rule: dict[str, Any]) -> str:
    return f"{rule['rule']} ({rule['fault']}, {units.format_count(len(rule['links']), 'link')})"


def _seeds(seeds: Sequence[int]) -> str:
    shown = ", ".join(map(str, seeds[:10]))
    return shown + (f" and {len(seeds) - 10} more" if len(seeds) > 10 else "")


def _code(about: dict[str, Any]) -> str:
    version = str(about.get("softroce_lab", ""))
    return f"{version}, commit {about['commit']}" if about.get("commit") else version


def table(
    recorded: Recorded, spread: Spread = least_and_most
) -> tuple[list[str], list[Line], list[str]]:
    """The table of `lab run`: transports, lines, footnotes. UserError without runs."""
    rows = recorded.runs
    try:
        names, lines = workload_table.lines(bounds.added(rows), spread)
    except KeyError as error:
        what = f"its figures are of another schema: no {error}"
        raise UserError(what, file=str(recorded.path / MANIFEST)) from None
    return names, lines, footnotes(cell for line in lines for cell in line.cells)


def problems(recorded: Recorded) -> Iterator[str]:
    """Why runs failed, or are not faithful; notes of the experiment; what is missing."""
    if recorded.warning:
        yield recorded.warning
    for run in () if recorded.is_sweep else recorded.manifest.get("runs") or ():
        yield from (f"{name_of(run)}: {reason}" for reason in run.get("reasons") or ())
        reasons = (run.get("fidelity") or {}).get("reasons") or ()
        yield from (f"{name_of(run)} not faithful: {reason}" for reason in reasons)
    yield from recorded.manifest.get("notes") or ()
