# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries a workload out in memory, in any order that a network might choose."""

import numpy as np

from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.progress import host_works
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import combine


def carry_out(workload, seed, *, order=0, depth=2):
    """The buffers in the end, by host; an assertion where a message finds no receive."""
    works = host_works(workload, depth)
    buffers = {host: workload.initial(host, seed).copy() for host in works}
    receives, flying, drawn = set(), [], Stream(order)
    now_ns = 0

    def post(host, posts):
        receives.update((host, message.source, message.key) for message in posts.receives)
        flying.extend(posts.sends)
        for message in posts.sends:
            assert message.source == host
            assert message.at_ns <= now_ns

    for host, work in works.items():
        post(host, work.begin())
    while not all(work.finished for work in works.values()):
        if not flying:
            now_ns = min(work.next_at_ns for work in works.values())
            assert now_ns < NEVER_NS, "nothing moves"
            for host, work in works.items():
                post(host, work.on_time(now_ns))
            continue
        message = flying.pop(drawn.below(len(flying)))
        receives.remove((message.destination, message.source, message.key))
        at = message.source_offset
        sent = buffers[message.source].view(np.uint8)[at : at + message.length_bytes].copy()
        combine(message, buffers[message.destination], sent)
        # Either end may hear of it first, but a receive is completed before its send.
        post(
            message.destination,
            works[message.destination].on_received(message.source, message.key),
        )
        post(message.source, works[message.source].on_sent(message.destination, message.key))
    assert not receives
    return buffers
