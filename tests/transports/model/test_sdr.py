# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's model of erasure codes and of a ring: closed forms, draws, and the published shape."""

import itertools
import math

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.transports.model import ring, sdr
from softroce_lab.transports.model.completion import Completion
from softroce_lab.transports.model.sdr import Scenario, predict, undecodable
from tests.transports.model.reference import coded_ns, decoded, within

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
LOSSES = (0, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.3)


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize("loss", LOSSES)
def test_the_published_probabilities(loss):
    """P_MDS and P_XOR as the paper writes them; small complements are compared apart."""
    p, k, m = loss, 32, 8
    p_mds = sum(math.comb(k + m, i) * p**i * (1 - p) ** (k + m - i) for i in range(m + 1))
    n = k // m + 1
    p_xor = ((1 - p) ** n + n * p * (1 - p) ** (n - 1)) ** m
    assert 1 - undecodable("mds", k, m, loss) == pytest.approx(p_mds, abs=1e-12)
    assert 1 - undecodable("xor", k, m, loss) == pytest.approx(p_xor, abs=1e-12)


def test_small_probabilities_keep_their_digits():
    """The first term of the tail: C(40, 9) p^9, and 8 C(5, 2) p^2."""
    p = 1e-8
    assert undecodable("mds", 32, 8, p) == pytest.approx(math.comb(40, 9) * p**9, rel=1e-6)
    assert undecodable("xor", 32, 8, p) == pytest.approx(8 * 10 * p**2, rel=1e-6)


@pytest.mark.parametrize(
    ("scheme", "k", "m", "loss"),
    [("mds", 5, 2, 0.2), ("xor", 7, 3, 0.1), ("xor", 4, 4, 0.2), ("mds", 1, 1, 0.3)],
)
def test_drawn_losses_are_decoded_as_often(scheme, k, m, loss):
    stream = np.random.default_rng(k)
    failed = sum(not decoded(stream, scheme, k, m, loss) for _ in range(20_000))
    expected = 20_000 * undecodable(scheme, k, m, loss)
    assert abs(failed - expected) < 4.5 * expected**0.5


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("message_bytes", "loss", "scheme", "options"),
    [
        (128 * KIB, 0.1, "mds", {}),
        (64 * KIB * 71, 0.05, "xor", {}),  # two whole submessages and a short one
        (64 * KIB * 71, 0.2, "mds", {"beta": 0, "alpha": 0}),
        (8 * MIB, 0.02, "xor", {"data_chunks": 10, "parity_chunks": 3}),
        (64 * MIB, 1e-2, "xor", {"rtt_ns": 5e5}),  # 75 km
        (32 * MIB, 0.1, "mds", {"chunk_bytes": 16 * KIB}),
    ],
)
def test_draws_of_coded_messages_agree(message_bytes, loss, scheme, options):
    scenario = Scenario(message_bytes, loss, **options)
    drawn = coded_ns(np.random.default_rng(5), 1500, scenario, scheme)
    assert within(drawn, scenario.coded(scheme))
    assert not within(drawn * 1.2, scenario.coded(scheme))


def test_without_loss_a_code_costs_its_parity():
    scenario = Scenario(128 * MIB, 0)
    predicted = predict(scenario)
    assert scenario.parity == 512
    assert predicted["sr_rto"].mean_ns == scenario.lossless_ns
    for scheme in ("mds", "xor"):
        extra_ns = predicted[scheme].quantile_ns(0.999) - scenario.lossless_ns
        assert extra_ns == pytest.approx(512 * scenario.inject_ns)
        assert scenario.fallback(scheme) == 0


def test_means_grow_with_loss_and_size_and_distance():
    places = [*itertools.product((128 * KIB, 8 * MIB, 64 * MIB), LOSSES, (5e5, 25e6))]
    figures = {place: predict(Scenario(*place)) for place in places}
    for scheme in ("sr_rto", "sr_nack", "mds", "xor"):
        means = {place: found[scheme].mean_ns for place, found in figures.items()}
        for less, more in itertools.product(places, places):
            if all(a <= b for a, b in zip(less, more, strict=True)):
                assert means[less] <= means[more] * (1 + 1e-4), (scheme, less, more)


def test_more_parity_decodes_more_and_costs_more():
    failing = [Scenario(128 * MIB, 0.05, parity_chunks=m).fallback("mds") for m in (2, 4, 8, 16)]
    assert failing == sorted(failing, reverse=True)
    least = [Scenario(128 * MIB, 0.05, parity_chunks=m).coded("mds").least_ns for m in (2, 4, 8)]
    assert least == sorted(least)


def test_many_failed_submessages_are_joined_without_moving_the_mean():
    """2 GiB at 30 %: a thousand submessages, nearly all of which fail."""
    scenario = Scenario(TIB // 512, 0.3)
    found = scenario.coded("xor")
    whole = scenario.chunks // 32
    failed = whole * undecodable("xor", 32, 8, 0.3)
    retransmitted_ns = 32 * failed * scenario.inject_ns
    assert found.mean_ns > 1.25 * scenario.chunks * scenario.inject_ns + retransmitted_ns
    assert found.mean_ns < scenario.coded("xor").quantile_ns(0.999)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"message_bytes": 0}, "message is 0"),
        ({"chunk_bytes": 0}, "chunk is 0"),
        ({"bandwidth_bps": 0}, "bandwidth is 0"),
        ({"rtt_ns": 0}, "round-trip time is 0"),
        ({"alpha": -1}, "alpha is -1"),
        ({"beta": math.nan}, "beta is nan"),
        ({"loss": 0.31}, "0.31 is outside of the model"),
        ({"loss": 1e-9}, "1e-09 is outside"),
        ({"message_bytes": 1 << 50}, "chunks, not at most"),
        ({"data_chunks": 0}, "k is 0"),
        ({"parity_chunks": 250}, r"k \+ m is 282"),
    ],
)
def test_what_the_model_cannot_do_is_refused(changes, problem):
    with pytest.raises(UserError, match=problem):
        Scenario(**changes)


def test_more_parity_than_data_has_no_xor():
    assert set(predict(Scenario(MIB, 1e-3, data_chunks=4, parity_chunks=5))) == {
        "sr_rto", "sr_nack", "mds",
    }  # fmt: skip
    with pytest.raises(UserError, match="more than k"):
        Scenario(MIB, 1e-3, data_chunks=4, parity_chunks=5).coded("xor")


def test_units():
    assert sdr.rtt_of_ns(3750) == pytest.approx(25e6)
    assert sdr.chunk_loss(1e-3, 16) == pytest.approx(1 - (1 - 1e-3) ** 16)
    assert sdr.chunk_loss(1e-12, 2) == pytest.approx(2e-12, rel=1e-9)


# ---------------------------------------------------------------- ring


def test_a_ring_without_chance_takes_its_steps():
    found = ring.all_reduce(Completion.certain(7.0), 4, 3, np.random.default_rng(1))
    assert (
        found.mean_ns == found.quantile_ns(0.5) == found.least_mean_ns == found.most_mean_ns == 42
    )


def test_the_mean_of_a_ring_lies_between_its_bounds_and_grows_with_sites():
    means = []
    for sites in (2, 4, 8):
        message = Scenario(128 * MIB // sites, 1e-2).repeated(2)
        found = ring.all_reduce(message, sites, 500, np.random.default_rng(sites))
        assert found.least_mean_ns < found.mean_ns < found.most_mean_ns
        assert found.mean_ns < found.quantile_ns(0.99)
        means.append(found.mean_ns)
    assert means == sorted(means)


def test_a_ring_of_two_by_hand():
    """Two steps, two sites: the first step's slower site holds both, so it is max + max."""
    coin = Completion(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    found = ring.all_reduce(coin, 2, 40_000, np.random.default_rng(1))
    assert abs(found.mean_ns - 1.5) < 5 * found.standard_error_ns


@pytest.mark.parametrize(("sites", "runs", "problem"), [(1, 9, "ring of 1"), (65, 9, "2 to 64"),
                                                        (4, 1, "standard error")])  # fmt: skip
def test_an_impossible_ring_is_refused(sites, runs, problem):
    with pytest.raises(UserError, match=problem):
        ring.all_reduce(Completion.certain(1.0), sites, runs, np.random.default_rng(1))


# ---------------------------------------------------------------- what the paper reports


def figures(message_bytes, loss):
    scenario = Scenario(message_bytes, loss)
    return scenario, predict(scenario)


@pytest.mark.parametrize("loss", [1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("message_bytes", [128 * KIB, MIB, 16 * MIB, 128 * MIB])
def test_coding_is_ahead_of_selective_repeat(message_bytes, loss):
    """[S] EC wins from 128 KiB to 1 GiB at 1e-6 to 1e-2."""
    _, found = figures(message_bytes, loss)
    # A message of a few chunks has no loss at all in 99.9 % of cases: the mean shows it.
    assert found["mds"].mean_ns < found["sr_rto"].mean_ns * (1 + 1e-4)


@pytest.mark.parametrize("loss", [1e-4, 1e-3, 1e-2])
def test_at_a_gib_too_from_a_loss_that_it_meets(loss):
    _, found = figures(GIB, loss)
    assert found["mds"].mean_ns < found["sr_rto"].mean_ns


def test_selective_repeat_is_ahead_below_1e_6_and_far_above_a_gib():
    """[S] SR wins below 1e-6 or above 1 GiB."""
    assert (
        figures(128 * MIB, 1e-7)[1]["sr_rto"].mean_ns < figures(128 * MIB, 1e-7)[1]["mds"].mean_ns
    )
    assert figures(16 * GIB, 1e-3)[1]["sr_rto"].mean_ns < figures(16 * GIB, 1e-3)[1]["mds"].mean_ns


def test_xor_falls_back_from_1e_3_and_mds_holds_beyond_1e_2():
    """[S] for 128 MiB."""
    fallback = {loss: [Scenario(128 * MIB, loss).fallback(scheme) for scheme in ("xor", "mds")]
                for loss in (1e-4, 1e-3, 1e-2, 2e-2)}  # fmt: skip
    assert fallback[1e-4][0] < 1e-4
    assert fallback[1e-3][0] > 1e-3
    assert fallback[1e-2][0] > 0.3
    assert fallback[2e-2][1] < 1e-4


def test_selective_repeat_is_several_times_slower():
    """[S] up to 6.5 times in the mean and 12.2 times at p99.9, over the grid."""
    worst_mean = worst_tail = 0.0
    for message_bytes, loss in itertools.product(
        (128 * KIB, 8 * MIB, 128 * MIB), (1e-3, 1e-2, 0.1)
    ):
        scenario, found = figures(message_bytes, loss)
        worst_mean = max(worst_mean, found["sr_rto"].mean_ns / scenario.lossless_ns)
        worst_tail = max(worst_tail, found["sr_rto"].quantile_ns(0.999) / scenario.lossless_ns)
    assert worst_mean > 6
    assert worst_tail > 11


@pytest.mark.parametrize("sites", [4, 8])
def test_a_ring_over_sites_is_several_times_faster_with_a_code(sites):
    """[S] 3 to 6 times, over 4 to 8 sites."""
    found = predict(Scenario(128 * MIB // sites, 1e-2))
    means = {
        scheme: ring.all_reduce(found[scheme], sites, 500, np.random.default_rng(1)).mean_ns
        for scheme in ("sr_rto", "mds")
    }
    assert 2.5 < means["sr_rto"] / means["mds"] < 6.5
