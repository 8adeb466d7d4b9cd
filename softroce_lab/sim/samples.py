# SPDX-License-Identifier: GPL-2.0-or-later
"""What waited at links and what hosts had in flight over time, as rows: one for each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

QUEUE, IN_FLIGHT, WINDOW = "queue_bytes", "in_flight_packets", "window_packets"
Columns = Mapping[str, npt.NDArray[Any]]


def columns(
    times_ps: npt.NDArray[np.int64],
    values: npt.NDArray[np.uint32],
    links: Sequence[str],
    hosts: Sequence[str],
) -> Columns:
    """`time_ns`, `figure`, `at` (a directed link or a host) and `value`, in the order of time.

    `values`: for each time a row: of each link the bytes that wait, then of each port of `hosts`,
    which stands there once a port, packets in flight and window. What was 0 before the first row
    and does not change has no row.
    """
    of_links, of_ports = values[:, : len(links)], values[:, len(links) :].astype(np.int64)
    names = list(dict.fromkeys(hosts))
    place = {name: index for index, name in enumerate(names)}
    of_hosts = np.zeros((2, len(values), len(names)), np.int64)
    for port, host in enumerate(hosts):
        for figure in (0, 1):
            of_hosts[figure, :, place[host]] += of_ports[:, 2 * port + figure]
    whole = np.concatenate([of_links.astype(np.int64), *of_hosts], axis=1)
    changed = np.diff(whole, axis=0, prepend=0) != 0
    row, column = np.nonzero(changed)
    figures = [QUEUE] * len(links) + [IN_FLIGHT] * len(names) + [WINDOW] * len(names)
    return {
        "time_ns": times_ps[row] // 1000,
        "figure": np.array(figures, dtype=object)[column],
        "at": np.array([*links, *names, *names], dtype=object)[column],
        "value": whole[row, column],
    }
