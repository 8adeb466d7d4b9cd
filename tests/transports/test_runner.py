# SPDX-License-Identifier: GPL-2.0-or-later
"""When a policy's actions are applied."""

import numpy as np

from softroce_lab.transports.policy import MessagePolicy, Retransmit, SetTimer
from tests.transports.pair_rig import MILLISECOND_NS, PairRig


class Observer(MessagePolicy):
    """Hooks that look at the state of their send between two actions."""

    name = "observer"

    def __init__(self, view, timing, options=None):
        super().__init__(view, timing, options)
        self.pending, self.timeouts, self.out = [], [], []

    def on_sent(self, send, now_ns):
        self.out.append(send.out)
        yield SetTimer(send, now_ns + 100_000)

    def on_send_timer(self, send, now_ns):
        self.timeouts.append(send.timeouts_without_progress)
        for _ in range(3):
            self.pending.append(self.view.send_state(send.handle).retransmit_pending)
            yield Retransmit(send, np.arange(send.count))


def observed():
    rig = PairRig(Observer)
    rig.cables[0].down = True
    rig.sides[0].send((1, 2, 3), np.zeros(64, np.uint8))
    rig.step_until(2 * MILLISECOND_NS)
    return rig.sides[0].policy


def test_a_generator_sees_none_of_its_own_actions_applied():
    policy = observed()
    assert len(policy.pending) > 6
    assert set(policy.pending) == {0}


def test_a_timeout_counts_once_its_hook_has_run():
    policy = observed()
    assert policy.timeouts == list(range(len(policy.timeouts)))
    assert all(policy.out)
