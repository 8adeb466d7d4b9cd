# SPDX-License-Identifier: GPL-2.0-or-later
"""Selective repeat by the model: closed forms, order, and draws of the same random variables."""

import itertools
import math

import numpy as np
import pytest

from softroce_lab.transports.model.selective_repeat import completion
from tests.transports.model.reference import repeated_ns, within

RTT_NS = 25e6
INJECT_NS = 1310.72  # 64 KiB at 400 Gbit/s
RTO_NS = 3 * RTT_NS
LOSSES = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.3)


@pytest.mark.parametrize("loss", LOSSES)
def test_one_chunk_is_geometric(loss):
    found = completion(1, loss, INJECT_NS, RTO_NS, RTT_NS)
    extra_ns = (RTO_NS + INJECT_NS) * loss / (1 - loss)
    assert found.mean_ns - INJECT_NS - RTT_NS == pytest.approx(extra_ns, rel=1e-7)
    for rounds in range(3):
        late_ns = INJECT_NS + RTT_NS + (rounds + 0.5) * (RTO_NS + INJECT_NS)
        assert found.exceeds(late_ns) == pytest.approx(loss ** (rounds + 1), rel=1e-9)


@pytest.mark.parametrize(("loss", "chunks"), [*itertools.product(LOSSES, (2, 100, 16384, 16385))])
def test_many_chunks_at_once_are_the_largest_of_geometric_numbers(loss, chunks):
    """With chunks that take no time: E max Y = sum over n of 1 - (1 - p^n)^M."""
    rounds = math.fsum(
        -math.expm1(chunks * math.log1p(-(loss**n))) for n in range(1, 200) if loss**n > 1e-30
    )
    found = completion(chunks, loss, 1e-6, RTO_NS, RTT_NS)
    assert found.mean_ns - RTT_NS == pytest.approx(rounds * RTO_NS, rel=1e-5)


@pytest.mark.parametrize(
    ("chunks", "loss", "rto", "inject_ns"),
    [
        (1, 0.3, 3, INJECT_NS),
        (2, 0.3, 1, 9e6),
        (40, 0.1, 3, 4e6),  # a message longer than the timer
        (400, 1e-3, 3, INJECT_NS),
        (400, 1e-2, 1, 333_333.0),
        (2048, 1e-4, 3, INJECT_NS),
        (20_000, 1e-2, 3, INJECT_NS),  # computed on a grid
    ],
)
def test_draws_of_the_same_variables_agree(chunks, loss, rto, inject_ns):
    found = completion(chunks, loss, inject_ns, rto * RTT_NS, RTT_NS)
    stream = np.random.default_rng(chunks)
    drawn = repeated_ns(stream, 4000, chunks, loss, inject_ns, rto * RTT_NS, RTT_NS)
    assert within(drawn, found)
    assert not within(drawn * 1.2, found)
