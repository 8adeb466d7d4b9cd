# SPDX-License-Identifier: GPL-2.0-or-later
"""What a packet costs a sender with 10,000 messages waiting, beside one long message.

The messages wait for one peer, or are spread over 100 peers, under each order of sending.
"""

from __future__ import annotations

import time

from benchmarks.memory import config
from softroce_lab import _native

SENDER, QKEY = 0x0A000001, 0x1D2B3A49
CHUNK_BYTES = 1024 - 40
SCHEDULES = ("least-left", "fair", "fifo")


def _cost_ns(schedule: str, messages: int, packets: int, peers: int) -> float:
    """CPU time a packet of so many messages of so many packets; no peer ever answers."""
    ends = [
        _native.FrameEndpoint(
            config(SENDER + n, schedule=schedule, carries_payload=False, path_mtu=1024,
                   receive_ring_packets=1 << 20, window_packets=1 << 20, message_slots=1 << 14),
            n + 1)
        for n in range(peers + 1)
    ]  # fmt: skip
    sender = ends[0]
    sender.set_qkey(QKEY)
    for n, peer in enumerate(ends[1:], 1):
        sender.connect(SENDER + n, n + 1, peer.data_qp, peer.recovery_qp, QKEY)
    for number in range(messages):
        place = (1, 1, number + 1)
        sender.post_send(number % peers, place, 0, 0, packets * CHUNK_BYTES, number + 1)
    sent, began = 0, time.process_time()
    while sender.poll_frame(1000) is not None:
        sent += 1
    return (time.process_time() - began) * 1e9 / sent


def measure(short: bool) -> dict[str, float]:
    """CPU time a packet, ns, and that with one message over that with many."""
    many = 500 if short else 10_000
    found = {}
    for schedule in SCHEDULES:
        name = schedule.replace("-", "_")
        one = _cost_ns(schedule, 1, 4 * many, 1)
        found[f"{name}_one_message_ns"] = one
        for peers in (1, 100):
            cost = _cost_ns(schedule, many, 4, peers)
            found[f"{name}_waiting_for_{peers}_ns"] = cost
            found[f"{name}_one_over_waiting_for_{peers}"] = one / cost
    return found
