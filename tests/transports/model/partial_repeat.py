# SPDX-License-Identifier: GPL-2.0-or-later
"""Erasure coding with the fallback of `sdr_ec`: only what is missing is repeated, until it decodes.

All of it is this project's definition. The paper's model repeats all data chunks of a
failed submessage until each has arrived; it has `Scenario.coded`. Here a round of repetitions
carries the missing data chunks of the failed submessages, and a submessage is over as soon as it
can be decoded. Chunks are lost independently of each other.

The first round comes with the NACK, (beta + 1) RTT later than what is decoded at once. Later ones
are `ROUND` round trips apart: the receiver sends SACKs a quarter of an RTT apart, and the first one
that may miss a repetition is the one after a whole RTT.
"""

from __future__ import annotations

import math

import numpy as np

from softroce_lab.transports.erasure import code
from softroce_lab.transports.model import sdr
from softroce_lab.transports.model.selective_repeat import Completion, Floats

ROUND = 1.25  # RTT
_MOST_ROUNDS = 64
_NEGLIGIBLE = 1e-12


def completion(scenario: sdr.Scenario, scheme: code.Scheme) -> Completion:
    """The time of a message, acknowledgement included, in nanoseconds."""
    k, m = scenario.data_chunks, scenario.parity_chunks
    whole, rest = divmod(scenario.chunks, k)
    codes = [(k, m, whole)] + ([(rest, -(-rest * m // k), 1)] if rest else [])
    sent_ns = (scenario.chunks + scenario.parity) * scenario.inject_ns
    missing = sum(  # data chunks of failed submessages, in the mean
        count * _missing(scheme, data, parity, scenario.loss) for data, parity, count in codes
    )
    times: list[float] = []
    masses: list[float] = []
    done = 0.0
    for repeats in range(_MOST_ROUNDS):
        by_now = math.prod(
            (1 - undecodable(scheme, data, parity, scenario, repeats)) ** count
            for data, parity, count in codes
        )
        later_ns = 0.0
        if repeats:
            rounds = scenario.beta + 1 + ROUND * (repeats - 1)
            failed = max(1 - masses[0], _NEGLIGIBLE)
            later_ns = rounds * scenario.rtt_ns + missing / failed * scenario.inject_ns
        times.append(sent_ns + scenario.rtt_ns + later_ns)
        masses.append(max(by_now - done, 0.0))
        done = by_now
        if done >= 1 - _NEGLIGIBLE:
            break
    return Completion(np.array(times), np.array(masses))


def undecodable(scheme: code.Scheme, k: int, m: int, scenario: sdr.Scenario, repeats: int) -> float:
    """P(a submessage cannot be decoded after so many rounds of repetitions)."""
    loss = scenario.loss
    missing = sdr.chunk_loss(scenario.kept_loss ** (repeats + 1), scenario.kept_packets)
    still = missing / loss if loss else 0.0
    if scheme == "mds":
        return min(float(_failing(k, m, m, loss, still)), 1.0)
    small, larger = divmod(k, m)
    none = (1 - _failing(small + 1, 1, 1, loss, still)) ** larger
    none *= (1 - _failing(small, 1, 1, loss, still)) ** (m - larger)
    return 1 - none


def _failing(data: int, parity: int, most: int, loss: float, still: float) -> float:
    """P(more than `most` lost at first, and still: a chunk of data with probability `still`)."""
    of_data, of_parity = _binomial(data, loss), _binomial(parity, loss)
    total = 0.0
    for lost in range(1, data + 1):
        remaining = _binomial(lost, still)
        for parity_lost in range(max(most + 1 - lost, 0), parity + 1):
            beyond = remaining[max(most + 1 - parity_lost, 1) :].sum()
            total += of_data[lost] * of_parity[parity_lost] * beyond
    return float(total)


def _missing(scheme: code.Scheme, k: int, m: int, loss: float) -> float:
    """Data chunks that are missing in submessages that cannot be decoded, in the mean of all."""
    if scheme == "xor":
        return k * loss * sdr.undecodable("xor", k, m, loss)
    of_data, of_parity = _binomial(k, loss), _binomial(m, loss)
    lost = np.arange(k + 1)
    enough = np.cumsum(of_parity[::-1])[::-1]  # P(at least so many of parity are lost)
    least = np.clip(m + 1 - lost, 0, m + 1)
    return float((of_data * lost * np.append(enough, 0.0)[least]).sum())


def _binomial(count: int, probability: float) -> Floats:
    """P(0), ..., P(count)."""
    values = np.arange(count + 1)
    chosen = np.array([math.comb(count, value) for value in values], float)
    return np.asarray(chosen * probability**values * (1 - probability) ** (count - values))
