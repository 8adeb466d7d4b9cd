# SPDX-License-Identifier: GPL-2.0-or-later
"""Topologies: a YAML file or a generator in, a resolved `plan.Plan` out. No machine is touched.

file --yaml_source--> Source --validation, model--> raw model --generators, resolve--> Plan
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softroce_lab.plan.plan import Plan

# The two functions import late: who wants a module of this room needs no YAML and no models.


def load(
    where: str | os.PathLike[str],
    *,
    name: str | None = None,
    seed: int | None = None,
    for_lab: bool = False,
) -> Plan:
    """Read and resolve a topology file, or a ready one by its bare name.

    `name` and `seed` override the file's. With `for_lab`, what no lab on this machine can be is
    refused, too (limits.py). UserError with file, line and column if it is wrong.
    """
    from softroce_lab import paths
    from softroce_lab.inputs import yaml_source
    from softroce_lab.inputs.ready import find
    from softroce_lab.inputs.validation import validate
    from softroce_lab.topology import limits, resolve
    from softroce_lab.topology.model import TopologyFile

    source = yaml_source.read(find(where, paths.TOPOLOGIES, "topology"))
    if "faults" in source.data and not {"name", "topology"} & source.data.keys():
        hint = "lab up TOPOLOGY --faults FILE; or, while a lab is up, lab fault apply FILE"
        raise source.error((), "this is a fault profile, not a topology", hint=hint)
    plan = resolve.resolve(validate(TopologyFile, source), source, name=name, seed=seed)
    if for_lab:
        limits.check(plan, source)
    return plan


def schema() -> dict[str, Any]:
    from softroce_lab.topology import model

    return model.json_schema()
