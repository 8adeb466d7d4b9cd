# SPDX-License-Identifier: GPL-2.0-or-later
"""All algorithms: their results are right to the bit, whatever order the network chooses."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.workloads.collectives import algorithms
from softroce_lab.workloads.collectives.collective import ALGORITHMS, Collective
from softroce_lab.workloads.message import ADD, FLOAT32, INT32
from softroce_lab.workloads.schedule import Receive
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import carry_out

ALL = [(op, algorithm) for op, each in ALGORITHMS.items() for algorithm in each]


def collective(op, algorithm, hosts, size=None, message=64, dtype=INT32):
    if ALGORITHMS[op][algorithm].powers_of_two:
        hosts = 1 << hosts.bit_length() - 1
    ranks = tuple(reversed(range(10, 10 + hosts)))
    return Collective(ranks, size or 4 * 37, message, dtype, op, algorithm)


@pytest.mark.parametrize(("op", "algorithm"), ALL)
@pytest.mark.parametrize("dtype", [INT32, FLOAT32])
@settings(max_examples=15, deadline=None)
@given(st.integers(2, 9), st.integers(0, 50), st.integers(4, 90), st.integers(0, 1 << 64))
def test_results_are_right_to_the_bit(op, algorithm, dtype, hosts, more, message, order):
    workload = collective(op, algorithm, hosts, 4 * (9 + more), message, dtype)
    buffers = carry_out(workload, seed=4, order=order)
    assert mismatches(workload, list(buffers.items()), 4) == []


def vectors(workload, seed=1):
    with np.errstate(over="ignore"):
        before = {host: workload.initial(host, seed) for host in workload.ranks}
        return before, sum(before.values())


@pytest.mark.parametrize("hosts", [2, 5, 8, 13, 17])
@pytest.mark.parametrize("algorithm", ALGORITHMS["all-reduce"])
def test_an_all_reduce_is_the_sum_of_all_vectors_everywhere(algorithm, hosts):
    workload = collective("all-reduce", algorithm, hosts)
    _, total = vectors(workload)
    assert all((workload.expected(host, 1) == total).all() for host in workload.ranks)


@pytest.mark.parametrize("hosts", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce-scatter"])
def test_a_reduce_scatter_leaves_each_rank_a_part_of_the_sum(algorithm, hosts):
    workload = collective("reduce-scatter", algorithm, hosts)
    _, total = vectors(workload)
    shift = 1 if algorithm == "ring" else 0
    for rank, host in enumerate(workload.ranks):
        chunk = (rank + shift) % workload.hosts
        part = slice(*(each * 37 // workload.hosts for each in (chunk, chunk + 1)))
        assert (workload.expected(host, 1)[part] == total[part]).all()


@pytest.mark.parametrize("hosts", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("algorithm", ALGORITHMS["all-gather"])
def test_an_all_gather_brings_every_part_everywhere(algorithm, hosts):
    workload = collective("all-gather", algorithm, hosts)
    before, _ = vectors(workload)
    for chunk, host in enumerate(workload.ranks):
        part = slice(*(each * 37 // workload.hosts for each in (chunk, chunk + 1)))
        for other in workload.ranks:
            assert (workload.expected(other, 1)[part] == before[host][part]).all()


@pytest.mark.parametrize("hosts", [2, 5, 8, 13, 17])
@pytest.mark.parametrize("algorithm", ALGORITHMS["broadcast"])
def test_a_broadcast_brings_the_first_rank_s_vector_everywhere(algorithm, hosts):
    workload = collective("broadcast", algorithm, hosts)
    before, _ = vectors(workload)
    root = before[workload.ranks[0]]
    assert all((workload.expected(host, 1) == root).all() for host in workload.ranks)


@pytest.mark.parametrize(
    ("op", "algorithm", "hosts", "per_rank"),
    [
        ("all-reduce", "ring", 8, 2 * 7 / 8),  # of the vector that the busiest rank sends
        ("all-reduce", "recursive-doubling", 8, 3),
        ("all-reduce", "halving-doubling", 8, 2 * 7 / 8),
        ("all-reduce", "binomial-tree", 8, 3),
        ("reduce-scatter", "recursive-halving", 8, 7 / 8),
        ("all-gather", "recursive-doubling", 8, 7 / 8),
        ("broadcast", "binomial-tree", 8, 3),
        ("broadcast", "ring", 8, 1),
    ],
)
def test_the_busiest_rank_sends_as_much_as_the_literature_says(op, algorithm, hosts, per_rank):
    workload = collective(op, algorithm, hosts, size=8000, message=1000)
    sent = collections.Counter()
    for message in workload.messages():
        sent[message.source] += message.length_bytes
    assert max(sent.values()) == per_rank * 8000


@pytest.mark.parametrize("hosts", range(3, 20))
def test_an_inner_vertex_of_one_tree_is_a_leaf_of_the_other_but_for_roots(hosts):
    one, other = algorithms._binary(hosts).parents, algorithms._other(hosts).parents
    roots = {*one.values()} - {*one} | {*other.values()} - {*other}
    assert {*one.values()} & {*other.values()} <= roots
    assert max(collections.Counter(one.values()).values()) <= 2


def test_sums_have_one_order_where_several_are_added():
    """A parent adds its children one after the other, whoever arrives first."""
    schedule = collective("all-reduce", "double-tree", 9).schedule()
    waiting = [
        each
        for vertices in schedule.of.values()
        for each in vertices
        if isinstance(each, Receive) and each.requires
    ]
    assert waiting
    assert all(each.message.combine is ADD for each in waiting)


def test_what_is_added_to_while_it_is_sent_is_sent_from_a_copy():
    exchanged = collective("all-reduce", "recursive-doubling", 8).schedule().messages
    assert all(each.volatile for each in exchanged)
    for algorithm in ("ring", "halving-doubling"):
        messages = collective("all-reduce", algorithm, 8).schedule().messages
        assert not any(each.volatile for each in messages)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Collective((0, 1, 2), 8, 4), "3 elements at least"),
        (
            lambda: Collective((0, 1, 2), 80, 4, INT32, "all-gather", "recursive-doubling"),
            "a power of two",
        ),
    ],
)
def test_what_cannot_be(make, why):
    with pytest.raises(ValueError, match=why):
        make()
