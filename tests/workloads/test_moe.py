# SPDX-License-Identifier: GPL-2.0-or-later
"""Mixture of experts: whom tokens go to, and that all of them come back."""

import collections

import numpy as np
import pytest

from softroce_lab.workloads.moe import (
    COMBINE,
    DISPATCH,
    Gate,
    MixtureOfExperts,
    UnequalAllToAll,
    popularity,
    tokens_of_experts,
    tokens_of_hosts,
)
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import Network, carry_out

RANKS = (3, 1, 2, 7)


def moe(gate=None, **more):
    return MixtureOfExperts(RANKS, gate or Gate(50, 8, 3, 0.9), 16, 100, **more)


@pytest.mark.parametrize("order", range(3))
def test_all_bytes_arrive_in_any_order(order):
    work = moe(layers=3, token_ns=10, seed=2)
    buffers = carry_out(work, seed=5, order=order, depth=1 + order % 3)
    assert mismatches(work, list(buffers.items()), 5) == []


def sizes(work, step, layer=0):
    found = collections.Counter()
    for each in work.schedule().messages:
        if each.key[:2] == (layer, step):
            found[each.source, each.destination] += each.length_bytes
    return found


def test_the_combine_is_the_dispatch_backwards():
    work = moe(layers=2)
    for layer in (0, 1):
        there, back = (sizes(work, step, layer) for step in (DISPATCH, COMBINE))
        assert there
        assert back == {(to, source): size for (source, to), size in there.items()}


def test_dispatched_bytes_are_the_tokens_of_the_gate():
    work = moe()
    tokens = tokens_of_hosts(work, 0)
    assert all(sum(row) == 50 * 3 for row in tokens)
    expected = {
        (source, to): 16 * tokens[rank][peer]
        for rank, source in enumerate(RANKS)
        for peer, to in enumerate(RANKS)
        if source != to
    }
    assert sizes(work, DISPATCH) == expected


def test_experts_compute_as_long_as_they_have_tokens():
    work = moe(token_ns=10)
    network = Network(work, 1, depth=2, order=0)
    network.carry_out()
    assert network.now_ns == 10 * max(map(sum, zip(*tokens_of_hosts(work, 0), strict=True)))


def test_messages_have_names_of_their_own():
    work = moe(layers=2)
    made = work.schedule().messages
    assert len({(each.source, each.destination, each.key) for each in made}) == len(made)
    assert len(made) == work.message_count
    assert max(each.length_bytes for each in made) <= work.longest_message_bytes <= 100


# ---------------------------------------------------------------- the gate


def test_tokens_go_to_different_experts():
    weights = popularity(16, 2.0, 1)
    for key in range(20):
        assert tokens_of_experts(1, 5, weights, key).max() == 1
    assert list(tokens_of_experts(9, 16, weights, 3)) == [9] * 16


def test_popularity_is_zipf_s_in_an_order_that_the_seed_draws():
    weights = popularity(8, 1.0, 1)
    assert sorted(weights / weights.max(), reverse=True) == pytest.approx(
        [1 / place for place in range(1, 9)], rel=1e-5
    )
    assert list(weights) == list(popularity(8, 1.0, 1))
    assert list(weights) != list(popularity(8, 1.0, 2))
    assert set(popularity(8, 0.0, 1)) == {weights.max()}


def test_tokens_of_many_experts_are_drawn_in_batches_as_if_at_once():
    """16 tokens a batch: each draw takes the next number, and a place among the experts left."""
    weights, top_k, tokens = popularity(1 << 16, 0.5, 3), 2, 40
    drawn, expected = Stream(11), np.zeros(len(weights), dtype=np.int64)
    for _ in range(tokens):
        left = weights.copy()
        for _ in range(top_k):
            ends = left.cumsum()
            chosen = int(np.searchsorted(ends, drawn.next64() % int(ends[-1]), side="right"))
            expected[chosen] += 1
            left[chosen] = 0
    assert np.array_equal(tokens_of_experts(tokens, top_k, weights, 11), expected)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Gate(5, 2, 3), "1 to all"),
        (lambda: moe(Gate(5, 6)), "as many experts each"),
        (lambda: UnequalAllToAll((0, 1), ((1, 0), (0, 0)), 8), "to itself"),
    ],
)
def test_what_cannot_be(make, why):
    with pytest.raises(ValueError, match=why):
        make()
