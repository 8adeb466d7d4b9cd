# SPDX-License-Identifier: GPL-2.0-or-later
"""The tutorial's policies: they deliver, they are short, and a session bounds what they do."""

from pathlib import Path

import numpy as np
import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.transports import policy_file
from softroce_lab.transports.policy import (
    Feedback,
    MessagePolicy,
    RequestStatus,
    Retransmit,
    SetTimer,
)
from softroce_lab.transports.runner import PolicyRunner
from tests.transports.pair_rig import SECOND_NS, PairRig, threshold

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = {"sack_timer": "SackTimer", "nack": "Nack", "gap_nack": "GapNack"}


def tutorial(name):
    file = ROOT / "examples" / "transports" / f"{name}.py"
    return policy_file.entry(str(file), TUTORIAL[name], policy_file.digest(file))


@pytest.fixture(params=TUTORIAL)
def policy(request):
    return tutorial(request.param).policy


@pytest.mark.parametrize("loss", [0, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(1))
def test_a_tutorial_policy_delivers_every_byte(policy, loss, seed):
    rig = PairRig(policy, seed=seed)
    for cable in rig.cables:
        cable.delay_ns, cable.loss = 100_000, threshold(loss)
    for number, length in enumerate([0, 1, 2008, 100_000, 500_000]):
        rig.transfer((1, 2, number), length)
        rig.transfer((1, 3, number), length, sender=1)
    rig.finish(within_ns=2 * SECOND_NS)
    rig.check()


class Eager(MessagePolicy):
    """Retransmits all packets, sent or not, whenever anything happens."""

    name = "eager"

    def on_send_posted(self, send, now_ns):
        return [SetTimer(send, now_ns + 1000)]

    def on_send_timer(self, send, now_ns):
        yield Retransmit(send, np.arange(send.count))
        yield SetTimer(send, now_ns + 1_000_000)

    def on_receive_posted(self, receive, now_ns):
        return [Feedback(receive)]  # no packet has arrived: there is no id to name


def test_the_session_bounds_attempts_whatever_the_policy_answers():
    rig = PairRig(Eager)
    rig.cables[0].loss = threshold(1)
    rig.transfer((1, 2, 3), 10_000)
    rig.step_until(rig.now_ns + 60 * SECOND_NS, lambda: bool(rig.sides[0].completions))
    assert rig.sides[0].statuses() == [ibv_wc_status.IBV_WC_RETRY_EXC_ERR]
    assert rig.counters(0)["tx_retransmitted"] <= 200 * 5


class Nostalgic(MessagePolicy):
    """Acts on every message that it ever got, whether it is over or not."""

    name = "nostalgic"

    def __init__(self, view, timing, options=None):
        super().__init__(view, timing, options)
        self.sends, self.receives = [], []

    def on_send_posted(self, send, now_ns):
        self.sends.append(send)
        return [SetTimer(send, now_ns + 1_000_000)]

    def on_receive_posted(self, receive, now_ns):
        self.receives.append(receive)
        return [SetTimer(receive, now_ns + 1_000_000)]

    def on_send_timer(self, send, now_ns):
        for each in self.sends:
            yield from (Retransmit(each, self.missing(each)), RequestStatus(each))
            yield SetTimer(each, now_ns + 5_000_000)

    def on_receive_timer(self, receive, now_ns):
        for each in self.receives:
            yield from (Feedback(each), SetTimer(each, now_ns + 5_000_000))


def test_actions_on_messages_that_are_over_have_no_effect():
    rig = PairRig(Nostalgic, seed=3)
    for cable in rig.cables:
        cable.delay_ns, cable.loss = 100_000, threshold(0.05)
    for number in range(40):
        rig.transfer((1, 2, number), 20_000)
        rig.transfer((1, 3, number), 20_000, sender=1)
        if number % 4 == 3:
            rig.finish(within_ns=2 * SECOND_NS)
    rig.check()
    rig.quiesce()


# ---------------------------------------------------------------- the engine goes on meanwhile


class Running:
    """An endpoint whose engine goes on whenever a receive is read, as on the real clock."""

    def __init__(self, rig, side):
        self._rig, self._endpoint = rig, rig.sides[side].endpoint
        self.vanished = 0

    def __getattr__(self, name):
        return getattr(self._endpoint, name)

    def receive_state(self, handle):
        state = self._endpoint.receive_state(handle)
        end_ns = self._rig.now_ns + 2_000_000
        for _ in range(200):
            self._rig.pair.run(end_ns)
        self.vanished += state is not None and self._endpoint.receive_state(handle) is None
        return state


def test_a_receive_that_completes_while_a_hook_decides_is_no_error(policy):
    rig = PairRig(policy, seed=7)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns, cable.loss = 100_000, 20_000, threshold(0.005)
    running = Running(rig, 1)
    rig.sides[1].runner = PolicyRunner(running, policy, rig.timing)
    for number in range(20):
        rig.transfer((1, 2, number), 200_000)
    rig.finish(within_ns=4 * SECOND_NS)
    rig.check()
    assert running.vanished
