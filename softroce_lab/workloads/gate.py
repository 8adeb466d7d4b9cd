# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate of a mixture of experts: which experts each token goes to.

Shazeer et al.: Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer
(2017). Experts differ in popularity by Zipf's law; a token goes to `top_k` different ones, drawn
one after the other, each by its popularity among those that are left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.streams import Stream, words

_SCALE = 1 << 20  # of weights, which are whole numbers, so that draws are alike on every machine
_BATCH = 1 << 20  # tokens times experts at a time


def popularity(experts: int, skew: float, seed: int) -> npt.NDArray[np.int64]:
    """Weights of experts: the n-th most popular one has n**-skew of the first; the seed has who."""
    order = Stream(stream_key(seed, "experts")).permutation(experts)
    weights = [max(1, round(_SCALE * (place + 1) ** -skew)) for place in range(experts)]
    found = np.zeros(experts, dtype=np.int64)
    found[order] = weights
    return found


def tokens_of_experts(
    tokens: int, top_k: int, weights: npt.NDArray[np.int64], key: int
) -> npt.NDArray[np.int64]:
    """How many of a host's tokens go to each expert; the stream `key` draws them."""
    batch = max(1, _BATCH // len(weights))
    found = np.zeros(len(weights), dtype=np.int64)
    for first in range(0, tokens, batch):
        count = min(batch, tokens - first)
        drawn = words(key, first * top_k, count * top_k).reshape(count, top_k)
        found += _batch(drawn, weights)
    return found


def _batch(drawn: npt.NDArray[np.uint64], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    left = np.tile(weights, (len(drawn), 1))
    rows = np.arange(len(drawn))
    found = np.zeros(len(weights), dtype=np.int64)
    for column in drawn.T:
        ends = left.cumsum(axis=1)
        places = (column % ends[:, -1].astype(np.uint64)).astype(np.int64)
        chosen = (ends <= places[:, None]).sum(axis=1)
        left[rows, chosen] = 0
        found += np.bincount(chosen, minlength=len(weights))
    return found
