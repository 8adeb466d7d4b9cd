# SPDX-License-Identifier: GPL-2.0-or-later
"""How the file writes open-loop traffic."""

from fractions import Fraction

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.workloads.open_loop import IncastMix
from softroce_lab.workloads.sizes import Sizes
from tests.experiment.kinds.examples import assert_refused, of, with_workload

LOAD = "kind: open-loop, load: 60%, duration: 20ms"


def built(more):
    return with_workload(f"{{{LOAD}, {more}}}").workload(1)


def test_the_file_s_words_are_the_workload():
    work = built("sizes: web-search, incast: {degree: 4, share: 5%}")
    assert (work.load, work.duration_ns) == (Fraction(60, 100), 20_000_000)
    assert work.sizes == Sizes.published("web-search")
    assert work.incast == IncastMix(4, Fraction(5, 100), 64_000)
    assert work.rates_bps == (100 * 10**9,) * 6
    assert work.ranks == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("written", "sizes"),
    [
        ("hadoop", Sizes.published("hadoop")),
        ("[4kB, 1MB]", Sizes.of_list([4000, 1_000_000])),
        ("{from: 1kB, to: 2kB}", Sizes.of_range(1000, 2000)),
        (
            "{points: [[0B, 0%], [10kB, 15%], [20kB, 100%]]}",
            Sizes.of_points([(0, Fraction(0)), (10_000, Fraction(15, 100)), (20_000, Fraction(1))]),
        ),
    ],
)
def test_sizes_have_four_forms(written, sizes):
    assert built(f"sizes: {written}").sizes == sizes


@pytest.mark.parametrize(
    ("more", "at", "what"),
    [
        ("load: 0%, sizes: hadoop, duration: 1ms", "0%", "nothing at all"),
        ("load: 120%, sizes: hadoop, duration: 1ms", "120%", r"above 100%"),
        ("load: 60, sizes: hadoop, duration: 1ms", "60", "no unit"),
        ("load: 60%, sizes: [], duration: 1ms", "[]", "no sizes"),
        ("load: 60%, sizes: [1kB, 0B], duration: 1ms", "0B", "between 1 B and"),
        ("load: 60%, sizes: hadop, duration: 1ms", "hadop", "no distribution"),
        ("load: 60%, sizes: {points: []}, duration: 1ms", "[]", "no points"),
        ("load: 60%, sizes: {points: [[0B, 0%], [1B]]}, duration: 1ms", "[1B]", "a point is"),
        (
            "load: 60%, sizes: {points: [[0B, 0%], [2kB, 9%], [3kB, 9%], [4kB, 100%]]}, "
            "duration: 1ms",
            "[[0B",
            "do not rise",
        ),
        ("load: 60%, sizes: {from: 2kB, to: 1kB}, duration: 1ms", "{from", "rising"),
        ("load: 60%, sizes: hadoop, duration: 0s", "0s", "nothing at all"),
        ("load: 60%, sizes: hadoop", "{kind", "'duration' is missing"),
        ("load: 60%, sizes: [1MB], duration: 10us", "10us", "too few flows"),
        (
            "load: 60%, sizes: hadoop, duration: 1ms, incast: {degree: 6, share: 5%}",
            "6, share",
            "6 senders to one host, and there are 6 hosts",
        ),
        (
            "load: 60%, sizes: hadoop, duration: 1ms, incast: {degree: 0, share: 5%}",
            "0, share",
            "below 1",
        ),
        (
            "load: 60%, sizes: hadoop, duration: 1ms, incast: {degree: 2, share: 100%}",
            "{degree",
            "all of the load",
        ),
        ("load: 60%, sizes: hadoop, duration: 1ms, message: 1MiB", "message", "one message"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(more, at, what):
    assert_refused(f"{{kind: open-loop, {more}}}", at, what)


def test_a_load_is_of_links_with_a_rate():
    star = "{generator: {kind: star, hosts: 4, access: {delay: 1us}}}"
    text = f"name: x\ntopology: {star}\ntransports: [rc]\nworkload: {{{LOAD}, sizes: hadoop}}\n"
    with pytest.raises(UserError, match="the link of h1 has no rate") as refused:
        of(text)
    assert refused.value.line == 2


def test_of_a_link_with_unequal_ways_the_slower_one_counts():
    links = ", ".join(
        f"{{endpoints: ['h{n}:a', 's:p{n}'], "
        f"forward: {{rate: {there}Gbit}}, backward: {{rate: {back}Gbit}}}}"
        for n, (there, back) in enumerate([(100, 100), (10, 100), (100, 25)])
    )
    hosts = ", ".join(f"h{n}: {{kind: host}}" for n in range(3))
    topology = f"{{nodes: {{{hosts}, s: {{kind: switch}}}}, links: [{links}]}}"
    work = of(
        f"name: x\ntopology: {topology}\ntransports: [rc]\nworkload: {{{LOAD}, sizes: hadoop}}\n"
    ).workload(1)
    assert work.rates_bps == (100 * 10**9, 10 * 10**9, 25 * 10**9)
    assert float(work.offered_load) == pytest.approx(0.6, rel=0.01)
    sent = np.bincount(work.flows["source"], weights=work.flows["bytes"])
    assert sent / sent.sum() == pytest.approx(np.array([100, 10, 25]) / 135, rel=0.1)
