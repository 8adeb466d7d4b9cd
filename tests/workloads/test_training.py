# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps of a training: who computes and sends what, when; all bytes, in any legal order."""

import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.workloads.collectives.collective import ALGORITHMS
from softroce_lab.workloads.schedule import Compute
from softroce_lab.workloads.training import (
    Model,
    Parallel,
    Traffic,
    Training,
    one_forward_one_backward,
)
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import Network, carry_out

MIXES = [  # data, tensor, pipeline, expert
    (2, 1, 1, 1),
    (3, 1, 1, 1),
    (1, 2, 1, 1),
    (1, 1, 3, 1),
    (4, 1, 1, 2),
    (2, 2, 1, 2),
    (2, 1, 2, 1),
    (2, 2, 2, 2),
]
MODEL = Model(
    layers=6, forward_ns=1000, backward_ns=2000, gradient_bytes=200, activation_bytes=60,
    bucket_bytes=300, microbatches=2,
)  # fmt: skip


def training(mix=(2, 1, 1, 1), *, model=MODEL, **more):
    parallel = Parallel(*mix)
    ranks = tuple(reversed(range(10, 10 + parallel.hosts)))
    return Training(ranks, parallel, model, 64, **more)


def messages(work, traffic):
    return [each for each in work.schedule().messages if each.key[1] == traffic]


@pytest.mark.parametrize("mix", MIXES)
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 1 << 64))
def test_all_bytes_arrive_in_any_order(mix, steps, depth, order):
    work = training(mix, steps=steps)
    buffers = carry_out(work, seed=3, order=order, depth=depth)
    assert mismatches(work, list(buffers.items()), 3) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS["all-reduce"])
def test_gradients_are_summed_up_by_any_algorithm(algorithm):
    work = training((5, 1, 1, 1), algorithm=algorithm)
    buffers = carry_out(work, seed=1)
    assert mismatches(work, list(buffers.items()), 1) == []
    first, *others = (buffers[host] for host in work.ranks)
    assert all(np.array_equal(first, other) for other in others)  # all have the same gradients
    total = sum(work.initial(host, 1).astype(np.float64) for host in work.ranks)
    assert np.allclose(first, total, atol=1e-5)


def test_one_forward_one_backward():
    def passes(stage, microbatches):
        order = one_forward_one_backward(stage, 4, microbatches)
        return " ".join("FB"[each.backward] + str(each.microbatch) for each in order)

    assert passes(0, 5) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4"
    assert passes(2, 5) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4"
    assert passes(3, 3) == "F0 B0 F1 B1 F2 B2"
    assert passes(0, 2) == "F0 F1 B0 B1"


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 3), (4, 8), (3, 1)])
def test_a_pipeline_takes_as_long_as_its_bubble_says(stages, microbatches):
    """Narayanan et al.: (M + P - 1) passes forward and backward, if messages take no time."""
    model = dataclasses.replace(
        MODEL, layers=stages, microbatches=microbatches, gradient_bytes=0, activation_bytes=4
    )
    work = training((1, 1, stages, 1), model=model)
    network = TimedNetwork(work)
    network.carry_out()
    assert network.now_ns == (microbatches + stages - 1) * 3000
    assert work.busiest_ns(0) == microbatches * 3000


def test_ranks_are_those_of_megatron():
    parallel = Parallel(data=4, tensor=2, pipeline=2, expert=2)
    assert [*map(list, parallel.tensor_groups(1))] == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert [*map(list, parallel.data_groups(0))] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [*map(list, parallel.expert_groups(0))] == [[0, 2], [4, 6], [1, 3], [5, 7]]


def test_sizes_of_traffic():
    work = training((2, 2, 2, 2))
    sent = collections.Counter()
    for each in work.schedule().messages:
        sent[each.key[1], each.source] += each.length_bytes
    layers, microbatches, host = 3, 2, work.ranks[0]
    assert sent[Traffic.PIPELINE, host] == microbatches * 60
    assert sent[Traffic.GRADIENT, host] == layers * 200  # 2 (N - 1) / N of them
    assert sent[Traffic.TENSOR, host] == layers * microbatches * 4 * 60
    assert sent[Traffic.EXPERT, host] == layers * microbatches * 4 * 30
    assert sent[Traffic.BARRIER, host] == 0


def test_buckets_are_equal_parts_that_hold_no_more_than_they_may():
    assert training().buckets == [(300, 2), (300, 3), (300, 5), (300, 6)]
    uneven = dataclasses.replace(MODEL, layers=1, gradient_bytes=1004)
    assert training(model=uneven).buckets == [(248, 1), (252, 1), (252, 1), (252, 1)]


class TimedNetwork(Network):
    """Messages take no time; only computations do."""

    def __init__(self, work):
        super().__init__(work, seed=1, depth=4, order=0)
        self.times_ns = collections.defaultdict(set)  # by traffic, of deliveries

    def _deliver(self):
        super()._deliver()
        self.times_ns[self.delivered[-1].key[1]].add(self.now_ns)


def test_gradients_are_sent_while_the_backward_pass_goes_on():
    network = TimedNetwork(training((2, 1, 1, 1)))
    network.carry_out()
    last_backward_ns = 2 * (6000 + 12_000) - 12_000
    awaited = (2, 3, 5, 6)  # layers
    expected = {last_backward_ns + layers * 2000 for layers in awaited}
    assert network.times_ns[Traffic.GRADIENT] == expected
    assert network.times_ns[Traffic.BARRIER] == {max(expected)}


def test_experts_exchange_around_the_second_half_of_a_layer_which_comes_first_on_the_way_back():
    """Halves of 500 and 501 ns, and in the backward pass of 1000 and 1001 ns, of two layers."""
    model = dataclasses.replace(
        MODEL, layers=2, forward_ns=1001, backward_ns=2001, gradient_bytes=0, microbatches=1
    )
    network = TimedNetwork(training((2, 1, 1, 2), model=model))
    network.carry_out()
    forward_ns = {500, 1001, 1501, 2002}
    backward_ns = {2002, 2002 + 1000, 2002 + 2001, 2002 + 3001}
    assert network.times_ns[Traffic.EXPERT] == forward_ns | backward_ns
    assert network.now_ns == 2002 + 2 * 2001


@pytest.mark.parametrize("order", range(3))
def test_no_host_enters_the_barrier_before_it_has_its_gradients(order):
    """Those of its last bucket arrive when all is computed: nothing else would keep it."""
    work = training((4, 1, 1, 1), steps=2)
    network = Network(work, seed=1, depth=4, order=order)
    network.carry_out()
    lacks = collections.Counter(
        (each.destination, each.key[0]) for each in messages(work, Traffic.GRADIENT)
    )
    for each in network.delivered:
        if each.key[1] == Traffic.GRADIENT:
            lacks[each.destination, each.key[0]] -= 1
        elif each.key[1] == Traffic.BARRIER:
            assert lacks[each.source, each.key[0]] == 0


def test_jitter_is_drawn_from_seed_host_and_step():
    def durations(work, host):
        found = [each for each in work.schedule().of[host] if isinstance(each, Compute)]
        return [each.duration_ns for each in found if each.duration_ns]

    jittered = dataclasses.replace(MODEL, jitter_ppm=50_000)
    work, again, other = (training(model=jittered, steps=2, seed=seed) for seed in (1, 1, 2))
    one, two = work.ranks
    assert durations(work, one) == durations(again, one)
    assert durations(work, one) != durations(work, two)
    assert durations(work, one) != durations(other, one)
    count = len(durations(work, one)) // 2
    assert durations(work, one)[:count] != durations(work, one)[count:]
    assert all(475 <= each <= 525 or 950 <= each <= 1050 for each in durations(work, one))
    assert set(durations(training(), one)) == {500, 1000}
    wider = training((3, 1, 1, 1), model=jittered, steps=2, seed=1)
    assert durations(wider, one) == durations(work, one)  # whoever else takes part


@pytest.mark.parametrize("hosts", [3, 4, 5])
@pytest.mark.parametrize("seed", range(2))
def test_no_step_begins_before_all_hosts_have_ended_the_one_before(hosts, seed):
    slow = dataclasses.replace(MODEL, jitter_ppm=900_000, gradient_bytes=0)
    work = training((hosts, 1, 1, 1), model=slow, steps=2, seed=seed)
    network = TimedNetwork(work)
    network.carry_out()
    assert network.now_ns == work.busiest_ns(0) + work.busiest_ns(1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Parallel(3, expert=2), "divide"),
        (lambda: Training((0, 1, 2), Parallel(2), MODEL, 64), "multiplies to the hosts"),
        (lambda: training((1, 1, 4, 1)), "same number of layers"),
    ],
)
def test_what_cannot_be(make, why):
    with pytest.raises(ValueError, match=why):
        make()
