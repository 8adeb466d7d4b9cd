# SPDX-License-Identifier: GPL-2.0-or-later
"""What the shell offers for a word: labs, nodes, links, and ready files by their names.

Each function lists candidates; typer drops those that do not begin as the word does. They read
directories and a lab's plan as JSON, and import nothing of the lab: a shell waits for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from softroce_lab import paths

LAB_VARIABLE = "LAB"
_LAB_PARAMETERS = ("lab", "name", "where", "named")  # of verbs, in the order in which they count


def labs() -> list[str]:
    """All labs of this machine."""
    with contextlib.suppress(OSError):
        return sorted(entry.name for entry in paths.LABS.iterdir())
    return []


def topologies() -> list[str]:
    """Ready topologies, and files here."""
    return _files(paths.TOPOLOGIES)


def labs_and_topologies() -> list[str]:
    """What some verbs show, up or not."""
    return [*labs(), *topologies()]


def runnable() -> list[str]:
    """Ready experiments and sweeps, and files here."""
    return _files(paths.WORKLOADS, paths.SWEEPS)


def runs() -> list[str]:
    """Run directories and sweeps below this folder."""
    folders = (folder for folder in (Path("runs"), Path("sweeps")) if folder.is_dir())
    found = (each for folder in folders for each in sorted(folder.iterdir()))
    return [each.name for each in found if (each / "manifest.json").is_file()]


def profiles() -> list[str]:
    """Ready fault profiles, and files here."""
    return _files(paths.FAULTS)


def transports() -> list[str]:
    """All transports."""
    from softroce_lab.transports import registry  # late: policies need numpy

    return registry.known()


def nodes(ctx: typer.Context) -> list[str]:
    """The nodes of the lab that the line names, or of the only one."""
    return [node["name"] for node in _plan(ctx).get("nodes", ())]


def hosts(ctx: typer.Context) -> list[str]:
    """Those of its nodes that send and receive."""
    return [node["name"] for node in _plan(ctx).get("nodes", ()) if node["kind"] != "switch"]


def links(ctx: typer.Context) -> list[str]:
    """A lab's nodes, ports and directed links; these only where the shell does not take `>`."""
    plan = _plan(ctx)
    names = nodes(ctx)
    for near, far in ((link["a"], link["b"]) for link in plan.get("links", ())):
        names += [f"{end['node']}:{end['name']}" for end in (near, far)]
        if _takes_arrows():
            here, there = near["node"], far["node"]
            names += [f"{here}->{there}", f"{there}->{here}", f"{here}<->{there}"]
    return list(dict.fromkeys(names))


def _takes_arrows() -> bool:
    """Not bash, which does not quote what it completes, unless the user has begun to."""
    words = os.environ.get("COMP_WORDS", "")
    of_bash = os.environ.get("_LAB_COMPLETE") == "complete_bash"
    return not of_bash or re.split(r"\s", words)[-1][:1] in ("'", '"')


def _files(*folders: Path) -> list[str]:
    here = (path.name for path in sorted(Path().glob("*.yaml")))
    return [*sorted(path.stem for each in folders for path in each.glob("*.yaml")), *here]


def _plan(ctx: typer.Context) -> dict[str, Any]:
    """The plan of the lab that the line names; {}: unknown, or not readable."""
    known = labs()
    named = [name for name in _named(ctx) if name in known]
    name = named[0] if named else known[0] if len(known) == 1 else None
    if name is not None:
        with contextlib.suppress(OSError, ValueError):
            plan: dict[str, Any] = json.loads((paths.LABS / name / "plan.json").read_text("utf-8"))
            return plan
    return {}


def _named(ctx: typer.Context) -> Iterator[str]:
    for parameter in _LAB_PARAMETERS:
        if isinstance(value := ctx.params.get(parameter), str):
            yield value
    if LAB_VARIABLE in os.environ:
        yield os.environ[LAB_VARIABLE]
