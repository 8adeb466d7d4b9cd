# SPDX-License-Identifier: GPL-2.0-or-later
"""Erasure-coded messages in a capture: which of a message's packets are parity.

Our header has the number of all packets and the bytes of the data: what is left when the bytes are
cut into packets is parity. An immediate has neither: there, packets behind the length of the
receive are parity, unless the run's transport has no codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.telemetry.packets import Has

CODED = ("sdr_ec", "sdr_auto")
"""The transports that have codes."""


def packet_sizes(view: Any) -> npt.NDArray[np.int64]:
    """Data bytes of a full packet, by stream of a `Striped`; -1: none was seen."""
    which = view.data[view.column("has", view.data) & Has.TRIMMED == 0]
    bytes_, index, count = (
        view.column(name, which).astype(np.int64)
        for name in ("payload_bytes", "lab_index", "lab_count")
    )
    stream_of, inner = view.stream_of[which], index < count - 1
    size = np.full(len(view.streams), -1, np.int64)
    for stream in np.unique(stream_of[inner]).tolist():
        seen, times = np.unique(bytes_[(stream_of == stream) & inner], return_counts=True)
        size[stream] = seen[times.argmax()]
    return size


def split(view: Any) -> None:
    """Make `count` of each message that of its data, and `parity` the rest."""
    messages = view.messages
    if not len(messages):
        return
    size = packet_sizes(view)[messages["stream"]]
    length, total = messages["length"].astype(np.int64), messages["count"].astype(np.int64)
    data = np.where(size > 0, np.maximum(-(-length // np.maximum(size, 1)), 1), total)
    data = np.minimum(data, total)
    run = view.evidence.run
    protocol = run is not None and run.only is not None and run.only.get("protocol")
    beyond = np.zeros(len(messages), np.int64)
    if not protocol or protocol in CODED:
        highest = np.maximum.reduceat(view.transmissions["index"], messages["begin"])
        uc = [view.counts_attempts(each.number) for each in view.streams]
        is_uc = np.array(uc, dtype=np.bool_)[messages["stream"]]
        beyond[is_uc] = np.maximum(highest.astype(np.int64) + 1 - total, 0)[is_uc]
    messages["packets"] = messages["count"]
    messages["count"], messages["parity"] = data, total - data + beyond
