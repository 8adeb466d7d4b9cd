# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of an algorithm, to the bit: its transfers done one step after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from softroce_lab.workloads.collectives.shape import Transfer
from softroce_lab.workloads.message import ADD, Buffer


def replay(
    transfers: Iterable[Transfer],
    before: Mapping[int, Buffer],
    elements: Callable[[Transfer], slice],
) -> dict[int, Buffer]:
    """Every rank's vector afterwards. `elements`: which of the vector a transfer carries."""
    vectors = {rank: vector.copy() for rank, vector in before.items()}
    ordered = sorted(transfers, key=lambda each: each.step)  # stable: then as listed
    for _, group in itertools.groupby(ordered, key=lambda each: each.step):
        step = list(group)
        read = [vectors[each.source][elements(each)].copy() for each in step]
        for each, data in zip(step, read, strict=True):
            part = elements(each)
            if each.combine is ADD:
                vectors[each.destination][part] += data  # type: ignore[misc]
            else:
                vectors[each.destination][part] = data
    return vectors
