# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results pack`: a run, or a sweep, as a zip that a reviewer can repeat with one command.

It has the directory with what is expected, the code of its commit, and a script that repeats
the run and states whether it came out the same. Equal directories give equal zips.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from softroce_lab import paths
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment import code_version, frozen
from softroce_lab.experiment.sweep import frozen as frozen_sweep
from softroce_lab.results import aside, fabric, listing, rerun, sweeps
from softroce_lab.results.recorded import MANIFEST, Recorded
from softroce_lab.statistics import FEWEST

RUN, CODE, SCRIPT = "run", "code", "reproduce.sh"
_ARCHIVE_S = 60.0  # that git may take
_KEPT = (".json", ".parquet")  # of a run directory; captures and pages are not compared
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can hold

REPRODUCE = """\
#!/bin/sh
# Repeats the run in run/ and prints what is the same and what is different.
# Exit code 0: nothing differs, 1: something differs, other codes: it did not run.
# The code: $LAB_PROGRAM if it is set, else code/, else the `lab` on the PATH.
# If it names policies, programs or files of the run: `sh reproduce.sh --trust` uses them.
set -eu
cd -- "$(dirname -- "$0")"
set -- results rerun run -o again "$@"
if [ -n "${LAB_PROGRAM:-}" ]; then exec "$LAB_PROGRAM" "$@"; fi
if [ -f code/lab ]; then exec sh code/lab "$@"; fi
exec lab "$@"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Artifact:
    """What was written."""

    path: Path
    size_bytes: int
    commit: str | None  # whose code is in it; None: no code is
    note: str  # why no code is in it; ""


def write(recorded: Recorded, path: Path) -> Artifact:
    """Write the zip aside, then rename. UserError for a run that cannot be repeated, RunError."""
    recorded.need_whole()
    if recorded.is_sweep:
        rerun.kept_sweep(recorded.path)
    elif rerun.is_failover(recorded):
        rerun.check_failover_is_whole(recorded)
    else:
        fabric.kept(recorded.path, "lab run it anew, then lab results pack")
    commit, note = _commit(recorded)
    with aside.writing(path) as fresh, zipfile.ZipFile(fresh, "x", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, SCRIPT, REPRODUCE.encode(), executable=True)
        _add(archive, "README.md", _readme(recorded, commit, note).encode())
        for name, file in _packed_files(recorded):
            content = file.read_bytes()
            _add(archive, f"{RUN}/{name}", _unnamed(content) if name == MANIFEST else content)
        if commit is not None:
            _add_code(archive, commit)
    return Artifact(path, path.stat().st_size, commit, note)


def _unnamed(manifest: bytes) -> bytes:
    """Without the folder of the author's file: a reviewer may not know whose it is."""
    document = json.loads(manifest)
    about = document.get("environment") or {}
    if not about.get("file"):
        return manifest
    about["file"] = Path(about["file"]).name
    return json.dumps(document, indent=1).encode()


def _add(archive: zipfile.ZipFile, name: str, content: bytes, *, executable: bool = False) -> None:
    about = zipfile.ZipInfo(name, _EPOCH)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = (0o100755 if executable else 0o100644) << 16
    archive.writestr(about, content)


def _packed_files(recorded: Recorded) -> Iterator[tuple[str, Path]]:
    """Files of the run directory, by their names in it. UserError for one outside of it.

    Whoever owns the directory could otherwise have root pack any file by a symbolic link.
    """
    home = recorded.path.resolve()
    inputs = recorded.path / frozen.INPUTS
    files = [each for each in recorded.path.iterdir() if each.suffix in _KEPT]
    files += inputs.rglob("*") if inputs.is_dir() else ()
    for file in sorted(files):
        if not file.resolve().is_relative_to(home):
            raise UserError(f"{file} is a link to {file.resolve()}", hint="a copy in its place")
        if file.is_file():
            yield file.relative_to(recorded.path).as_posix(), file


def _commit(recorded: Recorded) -> tuple[str | None, str]:
    """The commit whose code goes in; or None, and why none does."""
    about = recorded.manifest.get("environment") or {}
    commit = str(about.get("commit") or "")
    if recorded.is_sweep:
        commits = {str(row.get("commit") or "") for row in sweeps.rows(recorded)} | {commit}
        if len(commits) > 1:
            return None, f"its rows were made by {len(commits)} commits: lab run --fresh"
    if not commit:
        version = about.get("softroce_lab", "unknown")
        return None, f"the run was made by an installed softroce_lab {version}, not by a checkout"
    if commit.endswith("-dirty"):
        return None, f"the run was made by {commit}: its checkout had changes that no commit has"
    if code_version.git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        return None, f"this checkout does not have the commit {commit}"
    return commit, ""


def _add_code(archive: zipfile.ZipFile, commit: str) -> None:
    """The tree of a commit."""
    packed = code_version.git("archive", "--format=zip", "-0", commit, limit_s=_ARCHIVE_S)
    if packed is None:
        raise RunError(f"git cannot read the commit {commit} of {paths.PROJECT_ROOT}")
    files = {}
    with zipfile.ZipFile(io.BytesIO(packed)) as tree:
        for each in tree.infolist():
            if not each.is_dir():
                executable = bool(each.external_attr >> 16 & 0o100)
                files[each.filename] = content = tree.read(each)
                _add(archive, f"{CODE}/{each.filename}", content, executable=executable)
    _add(archive, f"{CODE}/{code_version.PACKED}", code_version.packed(commit, files).encode())


def _readme(recorded: Recorded, commit: str | None, note: str) -> str:
    clock = _clock(recorded)
    facts = "\n".join(f"- {title}: {text}" for title, text in listing.facts_to_share(recorded))
    files = (
        f", `run/{sweeps.TABLE}` the figures, `run/{frozen_sweep.FILE}` the sweep"
        if recorded.is_sweep
        else ""
        if rerun.is_failover(recorded)
        else f", `run/{frozen.FILE}` the experiment"
    )
    code = f"`code/` is the tree of commit {commit}." if commit else f"There is no code: {note}."
    expected = {
        "virtual": "every figure is the same, on any machine"
        + ("" if recorded.is_sweep else ", and every table byte for byte"),
        "real": "the same packets are lost, verdicts are equal, and times lie in the intervals of "
        f"the seeds; it needs root. Times of fewer than {FEWEST} seeds are not "
        "decided, nor are losses of `rc` and of faults with `key: index`",
    }.get(clock, "the results are the same")
    return f"""# {recorded.manifest.get("name")}

    sh reproduce.sh

repeats the run in `run/` and prints what is the same and what is different. The result is in
`again/`. Exit code 0: nothing differs; 1: something differs; other codes: it did not run.

If the run brings policies or programs, or names files outside, the script lists them and ends with
2. `sh reproduce.sh --trust` goes on: it executes them with your rights.

Expected: {expected}.

{code} `LAB_PROGRAM=/path/to/lab sh reproduce.sh` takes another one. It needs Debian or
Ubuntu, and installs what it needs on first use.

## The run

{facts}

`run/{MANIFEST}` has the {"counts" if recorded.is_sweep else "figures"} and the machine{files}.
"""


def _clock(recorded: Recorded) -> str:
    """That of its runs; "": of several."""
    if not recorded.is_sweep:
        return str(recorded.manifest.get("clock"))
    clocks = {str(row["clock"]) for row in sweeps.rows(recorded)}
    return clocks.pop() if len(clocks) == 1 else ""
