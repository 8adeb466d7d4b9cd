# SPDX-License-Identifier: GPL-2.0-or-later
"""How the file writes collectives."""

import pytest

from softroce_lab.experiment.kinds.collectives import algorithms
from softroce_lab.workloads.collectives.collective import ALGORITHMS
from tests.experiment.kinds.examples import assert_refused, with_workload

OPS = [*ALGORITHMS, "all-to-all"]


@pytest.mark.parametrize("op", OPS)
def test_each_algorithm_can_be_named(op):
    for algorithm in algorithms(op):
        hosts = 4 if algorithm.startswith("recursive") else 5
        workload = f"{{kind: collective, op: {op}, algorithm: {algorithm}, bytes: 80kB"
        experiment = with_workload(workload + f", hosts: {hosts}}}")
        assert experiment.workload(1).name == f"{algorithm}-{op}"


@pytest.mark.parametrize("op", OPS)
def test_the_first_algorithm_is_the_default(op):
    experiment = with_workload(f"{{kind: collective, op: {op}, bytes: 6kB, hosts: 4}}")
    assert experiment.workload(1).name == f"{algorithms(op)[0]}-{op}"


def test_ring_collectives_have_kinds_of_their_own():
    for op in ("all-reduce", "reduce-scatter", "all-gather"):
        own = with_workload(f"{{kind: ring-{op}, bytes: 6kB}}").workload(1)
        named = with_workload(f"{{kind: collective, op: {op}, bytes: 6kB}}").workload(1)
        assert own.once == named.once


@pytest.mark.parametrize(
    ("more", "at", "what"),
    [
        ("op: all-reduce, algorithm: tree, bytes: 1MiB", "algorithm", "has no algorithm 'tree'"),
        ("op: sum, bytes: 1MiB", "sum", "all-reduce"),
        ("op: all-gather, algorithm: recursive-doubling, bytes: 1MiB", "rec", "power of two"),
        ("op: all-reduce, bytes: 20B", "20B", "into 6 chunks"),
        ("op: all-reduce, bytes: 1001B", "bytes", "no whole elements"),
        ("op: all-to-all, bytes: 1MiB", "1MiB", "not cut into 6 equal parts"),
        ("op: all-to-all, bytes: 6kB, peers: 2", "peers", "without algorithm: bounded"),
        ("op: all-to-all, algorithm: bounded, bytes: 6kB, peers: 0", "0", "1"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(more, at, what):
    assert_refused(f"{{kind: collective, {more}}}", at, what)
