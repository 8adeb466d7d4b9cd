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
    from softroce_lab.topology import loader

    return loader.load(where, name=name, seed=seed, for_lab=for_lab)


def schema() -> dict[str, Any]:
    """Describe the topology file as JSON Schema, for editors."""
    from softroce_lab.topology import model

    return model.json_schema()
