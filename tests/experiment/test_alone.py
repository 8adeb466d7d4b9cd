# SPDX-License-Identifier: GPL-2.0-or-later
"""Times of flows alone on the empty fabric: computed ones are the simulated ones."""

import numpy as np
import pytest

from softroce_lab.experiment import virtual
from tests.experiment.kinds.examples import of

STAR = "{generator: {kind: star, hosts: 4, access: {rate: 100Gbit, delay: 1us}}}"
TREE = (
    "{generator: {kind: fat-tree, k: 4, access: {rate: 100Gbit, delay: 1us}, "
    "core: {rate: 40Gbit, delay: 700ns}}}"
)
SIZES = np.array([1, 3, 4, 1000, 2008, 2009, 2048, 2049, 9999, 65_536, 1_234_567])


class Counted:
    """Times of a transport alone, and how many simulations they took."""

    def __init__(self, topology, transport, more=""):
        experiment = of(
            f"name: alone\ntopology: {topology}\ntransports: [{transport}]\nlb: flow\n"
            f"workload: {{kind: point-to-point, bytes: 1B}}\n{more}"
        )
        self.count = 0
        self.alone = virtual.alone(experiment, experiment.transports[0], 1)
        self._simulate = self.alone._simulate
        self.alone._simulate = self.counting

    def counting(self, *arguments):
        self.count += 1
        return self._simulate(*arguments)

    def times_ns(self, source, destination, sizes=SIZES):
        ends = (np.full(len(sizes), end) for end in (source, destination))
        return self.alone.times_ns(*ends, sizes)

    def simulated_ns(self, source, destination):
        cut = self.alone._cut(source, destination)
        return [self._simulate(cut.plan, cut.source, size) for size in SIZES.tolist()]


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "sdr_ec"])
def test_on_a_star_few_simulations_yield_all_times(transport):
    found = Counted(STAR, transport)
    times = found.times_ns(0, 3)
    assert found.count == 3
    assert times.tolist() == found.simulated_ns(0, 3)
    assert (np.diff(times) >= 0).all()


def test_where_the_link_is_not_kept_busy_each_size_is_simulated():
    """Four links of 40 Gbit/s in the core carry more than one, but not at once from the start."""
    found = Counted(TREE, "csa_ud")
    times = found.times_ns(0, 15)
    assert found.count > len(SIZES)
    assert times.tolist() == found.simulated_ns(0, 15)


def test_pairs_at_the_same_distance_take_the_same_time():
    found = Counted(TREE, "rc")
    sources, destinations = np.array([0, 2, 9, 0, 4]), np.array([1, 3, 8, 15, 11])
    near = found.alone.times_ns(sources, destinations, np.full(5, 5000))
    assert near[0] == near[1] == near[2] < near[3] == near[4]
    assert found.count == 2 * 3


@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
def test_pairs_over_uneven_paths_are_measured_each(transport):
    """Hop by hop a-b and a-c have the same rates: 100 and 10 Gbit/s. But a-c has no fast path."""
    rates = {"a1": 100, "a2": 10, "b1": 100, "b2": 10, "c1": 10, "c2": 100}
    links = [
        f"{{endpoints: ['{at[0]}:up{at[1]}', 's{at[1]}:{at[0]}'], rate: {rate}Gbit, delay: 1us}}"
        for at, rate in rates.items()
    ]
    links += [f"{{endpoints: ['h{n}:e', '{n}:h'], rate: 100Gbit, delay: 1us}}" for n in "abc"]
    nodes = [f"h{n}: {{kind: host}}" for n in "abc"]
    nodes += [f"{name}: {{kind: switch}}" for name in ("a", "b", "c", "s1", "s2")]
    topology = f"{{nodes: {{{', '.join(nodes)}}}, links: [{', '.join(links)}]}}"
    found = Counted(topology, transport)
    assert found.alone.hops(0, 1) == found.alone.hops(0, 2)
    sizes = np.tile(SIZES, 2)
    ends = np.zeros(len(sizes), dtype=np.int64), np.repeat([1, 2], len(SIZES))
    times = found.alone.times_ns(*ends, sizes).tolist()
    each = [found.simulated_ns(0, destination) for destination in (1, 2)]
    assert times == each[0] + each[1]
    assert each[0] != each[1]


@pytest.mark.parametrize(
    ("workload", "made"),
    [
        ("{kind: collective, op: all-reduce, bytes: 4kB}", 0),
        ("{kind: open-loop, load: 50%, sizes: [10kB], duration: 100us}", 1),
        (
            "{kind: jobs, jobs: [{name: a, workload: {kind: permutation, hosts: [h1, h2], "
            "bytes: 1kB}}, {name: b, transport: rc, workload: {kind: open-loop, load: 50%, "
            "sizes: [10kB], duration: 100us, hosts: [h3, h4]}}]}",
            1,
        ),
    ],
    ids=["collective", "open-loop", "jobs"],
)
def test_they_are_prepared_for_those_alone_who_need_them(workload, made, monkeypatch):
    plans = []
    prepared = virtual.Alone
    monkeypatch.setattr(
        virtual, "Alone", lambda plan, *rest: plans.append(plan) or prepared(plan, *rest)
    )
    experiment = of(f"name: asked\ntopology: {STAR}\ntransports: [csa_ud]\nworkload: {workload}\n")
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.reasons == []
    assert len(plans) == made
