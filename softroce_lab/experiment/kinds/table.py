# SPDX-License-Identifier: GPL-2.0-or-later
"""All kinds of workloads, by the word in `kind`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from softroce_lab.experiment.kinds.collectives import (
    CollectiveSpec,
    RingAllGatherSpec,
    RingAllReduceSpec,
    RingReduceScatterSpec,
)
from softroce_lab.experiment.kinds.flows import (
    AllToAllSpec,
    FileSpec,
    IncastSpec,
    PermutationSpec,
    PointToPointSpec,
    ScatterSpec,
)
from softroce_lab.experiment.kinds.goal import GoalSpec
from softroce_lab.experiment.kinds.jobs import JobsSpec
from softroce_lab.experiment.kinds.open_loop import OpenLoopSpec
from softroce_lab.experiment.kinds.programs import ProgramSpec
from softroce_lab.experiment.kinds.training import MoeSpec, TrainingSpec

Single: TypeAlias = (
    PointToPointSpec
    | FileSpec
    | PermutationSpec
    | IncastSpec
    | ScatterSpec
    | AllToAllSpec
    | RingAllReduceSpec
    | RingReduceScatterSpec
    | RingAllGatherSpec
    | CollectiveSpec
    | GoalSpec
    | MoeSpec
    | TrainingSpec
    | OpenLoopSpec
)
_Job: TypeAlias = Annotated[Single, Field(discriminator="kind")]
AnyWorkload: TypeAlias = Annotated[
    Single | ProgramSpec | JobsSpec[_Job], Field(discriminator="kind")
]
