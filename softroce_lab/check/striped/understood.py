# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rules of the lab's own transports are checked on."""

from __future__ import annotations

import dataclasses

from softroce_lab.check.evidence import Evidence
from softroce_lab.check.striped.controls import Controls
from softroce_lab.check.striped.losses import Bounds, Losses
from softroce_lab.check.striped.messages import Stream, Striped


@dataclasses.dataclass(frozen=True)
class Understood:
    """A capture as the checkers of striped messages see it."""

    view: Striped
    controls: Controls
    losses: Losses
    _bounds: dict[int, Bounds] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence) -> Understood:
        """Made once for all of them."""
        kept = evidence.kept.get(__name__)
        if isinstance(kept, cls):
            return kept
        view = Striped(evidence)
        controls = Controls(view)
        understood = cls(view, controls, Losses(view, controls))
        evidence.kept[__name__] = understood
        return understood

    def bounds(self, stream: Stream) -> Bounds:
        """Of the times that its recovery may take."""
        if stream.number not in self._bounds:
            self._bounds[stream.number] = Bounds.of(self.view, stream)
        return self._bounds[stream.number]
