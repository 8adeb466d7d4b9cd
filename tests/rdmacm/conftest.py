# SPDX-License-Identifier: GPL-2.0-or-later
"""CM agents on both sides of the in-memory pair, whose clock goes on while somebody waits."""

import contextlib
import random

import pytest

from softroce_lab.rdmacm import CmAgent, CmTiming
from tests.rdmacm.cm_rig import Wire
from tests.rnic import conftest as rnic

pair, contexts = rnic.pair, rnic.contexts  # fixtures

STEP_NS = 50_000
TIMING = CmTiming(
    response_timeout=12, packet_life_time=8, mra_timeout=12
)  # 17 ms, for a patient clock


class Clock:
    """The pair's clock, which goes on by a step when somebody waits."""

    def __init__(self, pair):
        self.pair = pair
        self.now_ns = pair.now_ns

    def __call__(self):
        return self.now_ns

    def step(self):
        self.now_ns += STEP_NS
        self.pair.run(self.now_ns)


@pytest.fixture
def clock(pair):
    return Clock(pair)


@contextlib.contextmanager
def agents_of(clock, contexts):
    """An agent for each context; they take turns when somebody waits."""
    made = []

    def step():
        clock.step()
        for agent in made:
            agent.turn()

    for n, context in enumerate(contexts):
        stream = random.Random(n)
        made.append(CmAgent(context, timing=TIMING, stream=stream, clock_ns=clock, drive=step))
    yield made
    for agent in made:
        agent.close()


@pytest.fixture
def agents(clock, contexts):
    with agents_of(clock, contexts) as made:
        yield made


@pytest.fixture
def wire():
    return Wire()
