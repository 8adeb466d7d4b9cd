# SPDX-License-Identifier: GPL-2.0-or-later
"""When a policy's actions are applied."""

import numpy as np

from softroce_lab.recovery.api import Pause, Policy
from tests.recovery.pair_rig import PairRig


class Observer(Policy):
    """A generator that looks at the state of its send between two actions."""

    name = "observer"

    def __init__(self, view, timing, options=None):
        super().__init__(view, timing, options)
        self.paused = []

    def on_send_posted(self, event, now_ns):
        for paused in (True, False, True):
            self.paused.append(self.view.send_state(event.handle).paused)
            yield Pause(event.handle, paused)


def test_a_generator_sees_none_of_its_own_actions_applied():
    rig = PairRig(Observer)
    side = rig.sides[0]
    posted = side.send((1, 2, 3), np.zeros(64, np.uint8))
    seen = []
    side.runner._recorder = lambda now_ns, event, action: seen.append((event.handle, action.paused))
    while not seen:
        rig.step(rig.now_ns + 1000)
    assert side.policy.paused == [False, False, False]
    assert [paused for _, paused in seen] == [True, False, True]
    assert rig.sides[0].endpoint.send_state(seen[0][0]).paused
    assert posted.wr_id == 0
