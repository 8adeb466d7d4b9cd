# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion time of selective repeat by SDR-RDMA's model (arXiv 2505.05366v2).

[S] Chunk i of M is complete X_i = i T_inj + (RTO + T_inj) (Y_i - 1) after the beginning. Y_i, how
often it is sent, is geometric: P(Y_i > n) = p^n. The message takes T = max X_i + RTT.

With O = RTO + T_inj and x >= M T_inj, chunk i has been sent floor((x - i T_inj) / O) + 1 times by
x, so that ln P(max X_i <= x) is the sum over n of ln(1 - p^n) times the number of chunks that were
sent n times. That number is a difference of two floors: the cost does not grow with M.
"""

from __future__ import annotations

import math

import numpy as np

from softroce_lab.transports.model.completion import Completion, Floats

CELLS = 1 << 14
"""Times within O at which the distribution is computed, if it has more steps than these.

Up to so many chunks the result is exact. Beyond, a time is off by at most O / 2 CELLS.
"""

_NEGLIGIBLE = 1e-18  # probability


def completion(
    chunks: int,
    loss: float,
    inject_ns: float,
    rto_ns: float,
    rtt_ns: float,
    cells: int = CELLS,
    packets: float = 1,
) -> Completion:
    """T of so many chunks, each lost with probability `loss`.

    [D] `packets` of a chunk, each lost with probability `loss`, are kept when they arrive: a chunk
    is complete when each of its packets has arrived in any transmission,
    P(Y_i > n) = 1 - (1 - p^n)^N; their mean, where chunks differ.
    """
    begin_ns = chunks * inject_ns
    if loss == 0:
        return Completion.certain(begin_ns + rtt_ns)
    period_ns = rto_ns + inject_ns
    edges = _edges(chunks, inject_ns, period_ns, cells)
    middles = (edges[:-1] + edges[1:]) / 2
    times: list[Floats] = []
    masses: list[Floats] = []
    above, period = 1.0, 0  # P(T > the beginning of this period); of periods of O
    while above > _NEGLIGIBLE:
        pieces = _log_complete(period, middles, chunks, loss, inject_ns, period_ns)
        later = -np.expm1(packets * pieces)
        times.append(begin_ns + period * period_ns + edges[:-1])
        masses.append(np.concatenate([[above], later[:-1]]) - later)
        above, period = float(later[-1]), period + 1
    return Completion(np.concatenate(times) + rtt_ns, np.concatenate(masses))


def _edges(chunks: int, inject_ns: float, period_ns: float, cells: int) -> Floats:
    """Where in a period the distribution may have steps: 0, ..., O.

    A step is where a chunk's number of transmissions grows. For chunk M - d that is when
    y + d T_inj is a multiple of O.
    """
    if chunks > cells:
        return np.linspace(0, period_ns, cells + 1)
    steps = period_ns - np.fmod(np.arange(1, chunks) * inject_ns, period_ns)
    edges = np.sort(np.concatenate([[0.0, period_ns], steps]))
    # Not np.unique: its first call imports a module for 17 ms, in a host in the middle of a run.
    return edges[np.diff(edges, prepend=-1.0) > 0]


def _log_complete(
    period: int, after_ns: Floats, chunks: int, loss: float, inject_ns: float, period_ns: float
) -> Floats:
    """ln P(max X_i <= x) at x = M T_inj + period O + after."""
    x_ns = chunks * inject_ns + period * period_ns + after_ns
    # All chunks were sent period + 1 times; beyond `last` the chunks' losses are negligible.
    span = math.log(_NEGLIGIBLE / chunks) / math.log(loss)
    last = period + 1 + min(math.ceil(span), math.ceil(chunks * inject_ns / period_ns) + 1)
    total = np.zeros_like(x_ns)
    sent: Floats = np.full_like(x_ns, chunks)  # chunks sent at least n times
    for n in range(period + 1, last + 1):
        again = np.clip(np.floor((x_ns - n * period_ns) / inject_ns), 0, chunks)
        total += (sent - again) * math.log1p(-(loss**n))
        sent = again
    return total
