# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun` of `lab demo failover`: the story again by its manifest's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softroce_lab import paths
from softroce_lab.errors import UserError
from softroce_lab.experiment import trust
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import again as experiments
from softroce_lab.results.again import Comparison
from softroce_lab.results.recorded import MANIFEST, Recorded


def holds(recorded: Recorded) -> bool:
    """Whether it is the directory of this demo."""
    return _demo(recorded).get("story") == "failover"


def again(
    recorded: Recorded,
    say: Callable[[str], None],
    *,
    under: Path,
    origin: Origin = Origin.RUN,
) -> Comparison:
    """Run it once more on its clock, into a directory below `under`, and compare.

    UserError, also for a topology that is not the lab's own where `origin` gives no trust;
    EnvironmentLackError (no lab comes up for the real clock), RunError.
    """
    recorded.need_whole()
    options = options_of(recorded)
    if origin is Origin.RUN and not _is_ready(options.topology):
        what = f"{trust.UNTRUSTED}\n  it reads the topology {options.topology!r}"
        raise UserError(what, hint=trust.HINT, file=str(recorded.path / MANIFEST))
    on_real = recorded.manifest.get("clock") == "real"
    outcomes, clock = failover.run(options, "real" if on_real else "virtual", say)
    made = failover.write(outcomes, options, clock, under)
    return experiments.compare(recorded, Recorded(made))


def check_whole(recorded: Recorded) -> None:
    """UserError if the directory alone does not repeat it: its topology is a file of the user's."""
    named = options_of(recorded).topology
    if not _is_ready(named):
        what = f"the topology {named} is not kept in the directory of this demo"
        raise UserError(what, hint="lab results pack packs the demo on a built-in topology")


def _is_ready(topology: str) -> bool:
    """Whether it is one of the lab's own. UserError if it is nowhere."""
    file = find(topology, paths.TOPOLOGIES, "topology").resolve()
    return file.is_relative_to(paths.TOPOLOGIES.resolve())


def options_of(recorded: Recorded) -> Options:
    """The options of the demo. UserError where the manifest does not have them as they are now."""
    kept = {key: value for key, value in _demo(recorded).items() if key != "story"}
    names = {each.name for each in dataclasses.fields(Options)}
    if set(kept) != names:
        odd = ", ".join(sorted(set(kept) ^ names))
        what = f"demo: its options are of another schema: {odd}"
        raise UserError(what, file=str(recorded.path / MANIFEST), hint="lab demo failover anew")
    return Options(**kept)


def _demo(recorded: Recorded) -> dict[str, Any]:
    found = recorded.manifest.get("demo")
    return found if isinstance(found, dict) else {}
