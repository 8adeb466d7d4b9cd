# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of `sdr_ec`'s fallback: closed forms, and draws of the same random variables."""

import dataclasses
import math

import numpy as np
import pytest

from softroce_lab.transports.model import sdr
from softroce_lab.transports.model.sdr import Scenario
from tests.transports.model import partial_repeat

SCHEMES = ("mds", "xor")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("loss", [0, 1e-8, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("kept", [1, 16])
def test_at_first_it_is_the_papers(scheme, loss, kept):
    """Before any repetition a submessage cannot be decoded as often as the paper states."""
    scenario = Scenario(loss=loss, kept_packets=kept)
    for k, m in ((32, 8), (5, 2), (7, 3), (1, 1)):
        found = partial_repeat.undecodable(scheme, k, m, scenario, 0)
        assert found == pytest.approx(sdr.undecodable(scheme, k, m, loss), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("loss", [1e-4, 1e-2, 0.1])
def test_it_is_no_slower_than_the_paper_s_and_no_faster_than_a_decoded_message(scheme, loss):
    for size in (128 << 10, 8 << 20, 128 << 20):
        scenario = Scenario(message_bytes=size, loss=loss)
        found = partial_repeat.completion(scenario, scheme)
        paper = scenario.coded(scheme)
        assert found.least_ns == pytest.approx(paper.least_ns)
        assert found.mean_ns <= paper.mean_ns * 1.001
        assert math.isclose(1 - found.exceeds(found.least_ns), 1 - scenario.fallback(scheme))


def test_without_loss_all_is_decoded():
    scenario = Scenario(loss=0)
    found = partial_repeat.completion(scenario, "mds")
    assert found.exceeds(found.least_ns) == 0
    sent_ns = (scenario.chunks + scenario.parity) * scenario.inject_ns
    assert found.mean_ns == pytest.approx(sent_ns + scenario.rtt_ns)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("loss", "kept"), [(0.05, 1), (0.1, 4), (0.3, 1), (0.3, 16)])
def test_rounds_are_those_of_draws(scheme, loss, kept):
    """Chunks, packets and repetitions drawn one by one: how many rounds a submessage takes."""
    k, m, runs = 8, 2, 20_000
    scenario = Scenario(
        message_bytes=k << 16, loss=loss, data_chunks=k, parity_chunks=m, kept_packets=kept
    )
    stream = np.random.default_rng(7)
    of_packet = sdr.packet_loss(loss, kept)
    data = stream.random((runs, k, kept)) < of_packet  # packets that are missing
    parity = (stream.random((runs, m, kept)) < of_packet).any(axis=2)
    for repeats in range(3):
        failing = ~decodable(scheme, data.any(axis=2), parity)
        expected = partial_repeat.undecodable(scheme, k, m, scenario, repeats)
        error = math.sqrt(expected * (1 - expected) / runs)
        assert abs(failing.mean() - expected) <= 4 * error + 1e-4
        again = stream.random(data.shape) < of_packet
        data[failing] &= again[failing]


def decodable(scheme, data, parity):
    """By run, of lost chunks."""
    lost = data.any(axis=1)
    if scheme == "mds":
        return ~lost | (data.sum(axis=1) + parity.sum(axis=1) <= parity.shape[1])
    m = parity.shape[1]
    groups = [data[:, group::m].sum(axis=1) for group in range(m)]
    return np.all(
        [(of == 0) | (of + parity[:, group] <= 1) for group, of in enumerate(groups)], axis=0
    )


def test_a_round_is_a_round_trip_and_the_wait_for_a_sack():
    scenario = Scenario(message_bytes=8 << 20, loss=0.3, beta=0.5)
    found = partial_repeat.completion(scenario, "mds")
    decoded_ns = (scenario.chunks + scenario.parity) * scenario.inject_ns + scenario.rtt_ns
    first_ns = decoded_ns + 1.5 * scenario.rtt_ns
    times = found._times_ns
    assert times[1] == pytest.approx(first_ns, rel=0.01)
    assert times[2] - times[1] == pytest.approx(partial_repeat.ROUND * scenario.rtt_ns)


def test_a_last_submessage_is_shorter():
    """33 chunks with (32, 8) are as good as a submessage of 32, and one of one with one."""
    scenario = Scenario(message_bytes=33 << 16, loss=0.1)
    found = partial_repeat.completion(scenario, "mds")
    one = dataclasses.replace(scenario, message_bytes=32 << 16)
    whole = 1 - partial_repeat.undecodable("mds", 32, 8, one, 0)
    rest = 1 - partial_repeat.undecodable("mds", 1, 1, one, 0)
    assert 1 - found.exceeds(found.least_ns) == pytest.approx(whole * rest)
