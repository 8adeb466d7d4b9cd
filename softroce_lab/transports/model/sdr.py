# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's model of reliability over long hauls (arXiv 2505.05366v2, docs/explanation/sdr.md).

[S] is what the paper states, [D] this project's definition where our notes of it are silent.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import numpy as np

from softroce_lab.errors import UserError
from softroce_lab.transports.erasure import code
from softroce_lab.transports.model import selective_repeat
from softroce_lab.transports.model.selective_repeat import Completion

LEAST_LOSS, MOST_LOSS = 1e-8, 0.3
"""Chunk losses that the model is tested for, besides 0."""

MOST_MESSAGE_CHUNKS = 1 << 26

_NS_PER_KM = 1e6 / 150  # [S] the round trip over a km of distance: 3750 km are 25 ms
_MOST_PARTS = 64  # numbers of failed submessages that are computed apart
_PART_CELLS = 1 << 10
_NEGLIGIBLE = 1e-16
_MOST_ROUND_TRIPS = 1_000_000  # that a timer waits: alpha and beta

Predictions: TypeAlias = dict[str, Completion]


def rtt_of_ns(distance_km: float) -> float:
    """[S] The round-trip time over a distance: km / 150 in milliseconds."""
    return distance_km * _NS_PER_KM


def chunk_loss(packet_loss: float, packets: int) -> float:
    """[S] P_chunk = 1 - (1 - p)^N."""
    return -math.expm1(packets * math.log1p(-packet_loss)) if packet_loss < 1 else 1.0


def packet_loss(chunk: float, packets: int) -> float:
    """The loss of packets that gives so many in a chunk this loss; `chunk_loss` reversed."""
    return -math.expm1(math.log1p(-chunk) / packets)


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A message over a long haul. UserError for what the model cannot do."""

    message_bytes: int = 128 << 20
    loss: float = 1e-3  # probability that a chunk is lost
    rtt_ns: float = 25e6
    bandwidth_bps: float = 400e9
    chunk_bytes: int = 64 << 10
    alpha: float = 2.0  # [S] RTO = RTT + alpha RTT; 2 is "SR RTO", 0 "SR NACK"
    beta: float = 1.0  # of FTO; [D] the value
    data_chunks: int = 32  # [S] k and m
    parity_chunks: int = 8
    kept_packets: int = 1  # [D] of a chunk, that stay when others of it are lost

    def __post_init__(self) -> None:
        for name, value in (
            ("message", self.message_bytes),
            ("chunk", self.chunk_bytes),
            ("bandwidth", self.bandwidth_bps),
            ("round-trip time", self.rtt_ns),
        ):
            if not 0 < value < math.inf:
                raise UserError(f"the {name} is {value:g}, not above 0")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= value <= _MOST_ROUND_TRIPS:
                raise UserError(f"{name} is {value:g}, not from 0 to {_MOST_ROUND_TRIPS:,}")
        if self.loss and not LEAST_LOSS <= self.loss <= MOST_LOSS:
            raise UserError(
                f"a chunk loss of {self.loss:.3g} is outside of the model",
                hint=f"0, or {LEAST_LOSS:g} to {MOST_LOSS:g}: {LEAST_LOSS:%} to {MOST_LOSS:.0%}",
            )
        if self.chunk_bytes > self.message_bytes:
            raise UserError(
                f"a chunk of {self.chunk_bytes:,} bytes is larger than the message of "
                f"{self.message_bytes:,} bytes",
                hint="smaller chunks, or a larger message",
            )
        if self.chunks > MOST_MESSAGE_CHUNKS:
            raise UserError(
                f"{self.chunks:,} chunks, not at most {MOST_MESSAGE_CHUNKS:,}",
                hint="larger chunks, or a smaller message",
            )
        code.check("mds", self.data_chunks, self.parity_chunks)

    @property
    def chunks(self) -> int:
        """M."""
        return -(-self.message_bytes // self.chunk_bytes)

    @property
    def parity(self) -> int:
        """[S] Chunks of parity of the whole message: ceil(M / R), R = k / m."""
        return -(-self.chunks * self.parity_chunks // self.data_chunks)

    @property
    def inject_ns(self) -> float:
        """T_inj: the time of a chunk on the link."""
        return self.chunk_bytes * 8e9 / self.bandwidth_bps

    @property
    def kept_loss(self) -> float:
        """[D] Of each of a chunk's `kept_packets`."""
        return packet_loss(self.loss, self.kept_packets) if self.kept_packets > 1 else self.loss

    @property
    def lossless_ns(self) -> float:
        """Without loss and without parity: M T_inj + RTT."""
        return self.chunks * self.inject_ns + self.rtt_ns

    def coded(self, scheme: code.Scheme) -> Completion:
        """Erasure coding, by either code."""
        return _coded(self, scheme)

    def fallback(self, scheme: code.Scheme) -> float:
        """The probability that a submessage of the message cannot be decoded."""
        failing, rest_failing = _undecodable_parts(self, scheme)
        whole = self.chunks // self.data_chunks
        return abs(math.expm1(_log_none(whole, failing) + _log_none(1, rest_failing)))

    def repeated(self, alpha: float) -> Completion:
        """Selective repeat of the whole message."""
        return self._repeated(self.chunks, alpha, selective_repeat.CELLS)

    def _repeated(self, chunks: int, alpha: float, cells: int) -> Completion:
        rto_ns = self.rtt_ns * (1 + alpha)
        return selective_repeat.completion(
            chunks, self.kept_loss, self.inject_ns, rto_ns, self.rtt_ns, cells, self.kept_packets
        )


def predict(scenario: Scenario) -> Predictions:
    """Completion times by scheme. `xor` is missing where m is above k."""
    predictions = {
        "sr_rto": scenario.repeated(scenario.alpha),
        "sr_nack": scenario.repeated(0),
        "mds": scenario.coded("mds"),
    }
    if scenario.parity_chunks <= scenario.data_chunks:
        predictions["xor"] = scenario.coded("xor")
    return predictions


# ---------------------------------------------------------------- erasure coding


def undecodable(scheme: code.Scheme, k: int, m: int, loss: float) -> float:
    """[S] The probability that a submessage of k + m chunks cannot be decoded.

    P_MDS = sum over i <= m of C(k+m, i) p^i (1-p)^(k+m-i); P_XOR = product over the m groups of
    (1-p)^n + n p (1-p)^(n-1), with n = k / m + 1. [D] Where m does not divide k, groups differ by
    one chunk. Computed from the complement, which keeps its digits where it is small.
    """
    if scheme == "mds":
        return _more_losses(k + m, m, loss)
    small, larger = k // m, k % m
    return -math.expm1(
        _log_none(larger, _more_losses(small + 2, 1, loss))
        + _log_none(m - larger, _more_losses(small + 1, 1, loss))
    )


def _log_none(count: int, probability: float) -> float:
    """ln P(none of so many events happens)."""
    if count == 0:
        return 0.0
    return count * math.log1p(-probability) if probability < 1 else -math.inf


def _more_losses(count: int, most: int, loss: float) -> float:
    """P(more than `most` of `count` chunks are lost)."""
    if loss == 0:
        return 0.0
    logs = (
        _log_choose(count, lost) + lost * math.log(loss) + (count - lost) * math.log1p(-loss)
        for lost in range(most + 1, count + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _coded(scenario: Scenario, scheme: code.Scheme) -> Completion:
    """[S] Positive ACK when all submessages are decodable, else FTO, NACK and selective repeat.

    [D] With the last submessage of k' data chunks come ceil(k' m / k) of parity: together
    ceil(M / R). All that was sent arrives (M + ceil(M / R)) T_inj + RTT / 2 after the beginning.
    FTO = (M + ceil(M / R)) T_inj + beta RTT runs from the first bit, RTT / 2; the NACK takes
    another RTT / 2. Then selective repeat, with the RTO of `alpha`, carries all data chunks of the
    failed submessages.
    """
    k = scenario.data_chunks
    whole, rest = divmod(scenario.chunks, k)
    sent_ns = (scenario.chunks + scenario.parity) * scenario.inject_ns
    decoded_ns = sent_ns + scenario.rtt_ns
    nack_ns = sent_ns + scenario.beta * scenario.rtt_ns + scenario.rtt_ns
    failing, rest_failing = _undecodable_parts(scenario, scheme)
    failures = _failed_chunks(whole, k, failing, rest, rest_failing)
    parts = [(failures.pop(0, 0.0), Completion.certain(decoded_ns))]
    parts += [
        (weight, scenario._repeated(chunks, scenario.alpha, _PART_CELLS).later_by(nack_ns))
        for chunks, weight in failures.items()
    ]
    return Completion.mixture(parts)


def _undecodable_parts(scenario: Scenario, scheme: code.Scheme) -> tuple[float, float]:
    """The probabilities of a whole submessage, and of the last one if it is shorter."""
    k, m = scenario.data_chunks, scenario.parity_chunks
    code.check(scheme, k, m)
    rest = scenario.chunks % k
    shorter = undecodable(scheme, rest, -(-rest * m // k), scenario.loss) if rest else 0.0
    return undecodable(scheme, k, m, scenario.loss), shorter


def _failed_chunks(
    whole: int, k: int, failing: float, rest: int, rest_failing: float
) -> dict[int, float]:
    """Data chunks of failed submessages -> probability."""
    result: dict[int, float] = {}
    for failed, weight in _binomial(whole, failing):
        for extra, share in ((0, 1 - rest_failing), (rest, rest_failing)):
            if weight * share > 0:
                chunks = round(failed * k) + extra
                result[chunks] = result.get(chunks, 0.0) + weight * share
    return result


def _binomial(count: int, probability: float) -> list[tuple[float, float]]:
    """Values and weights of a binomial distribution; at most `_MOST_PARTS` values above 0.

    Where it has more, neighbours are joined at their common mean.
    """
    if probability <= 0 or count == 0:
        return [(0, 1.0)]
    if probability >= 1:
        return [(count, 1.0)]
    values = np.arange(count + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(values[1:]))])  # logarithms
    weights = np.exp(
        factorials[count] - factorials - factorials[::-1]
        + values * math.log(probability) + (count - values) * math.log1p(-probability)
    )  # fmt: skip
    kept = np.flatnonzero((weights > _NEGLIGIBLE * weights.max()) & (values > 0))
    parts = [(0.0, math.exp(_log_none(count, probability)))]
    for group in np.array_split(kept, min(_MOST_PARTS, kept.size)) if kept.size else ():
        weight = float(weights[group].sum())
        parts.append((float(weights[group] @ values[group]) / weight, weight))
    return parts
