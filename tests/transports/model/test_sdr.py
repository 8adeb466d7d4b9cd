# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's model of erasure codes and of a ring: closed forms, draws, and the published shape."""

import math

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.transports.model import ring
from softroce_lab.transports.model.sdr import Scenario, predict, undecodable
from softroce_lab.transports.model.selective_repeat import Completion
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


# ---------------------------------------------------------------- ring


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


@pytest.mark.parametrize("sites", [4, 8])
def test_a_ring_over_sites_is_several_times_faster_with_a_code(sites):
    """[S] 3 to 6 times, over 4 to 8 sites."""
    found = predict(Scenario(128 * MIB // sites, 1e-2))
    means = {
        scheme: ring.all_reduce(found[scheme], sites, 500, np.random.default_rng(1)).mean_ns
        for scheme in ("sr_rto", "mds")
    }
    assert 2.5 < means["sr_rto"] / means["mds"] < 6.5
