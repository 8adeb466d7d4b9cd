# SPDX-License-Identifier: GPL-2.0-or-later
"""Proof that every link carries frames both ways, through the XDP programs at both of its ends.

A frame of the local experimental EtherType leaves each port. The program at the far end sends it
back (XDP_TX) as hop 1; the program of the port it came from records that port in a map. A port is
proven when its own frame has come back: out, in at the far end, out there, and in here.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping

from softroce_lab.errors import RunError
from softroce_lab.fabric.bpf.layout import mac_bytes
from softroce_lab.fabric.net import netns
from softroce_lab.plan.plan import Plan, Port

ETHERTYPE = 0x88B5  # IEEE 802 local experimental 1

_ROUNDS = 6  # a frame may fall victim to an interface that is just coming up
_ROUND_S = 0.25
_POLL_S = 0.001
_FRAME_BYTES = 60  # the least an Ethernet frame has, without its FCS

Seen = Callable[[], set[int]]


def prove(
    plan: Plan, namespaces: Mapping[str, int], token: int, seen: Seen, check: Callable[[], None]
) -> None:
    """RunError that names the links over which no probe came back.

    `seen` returns the ifindexes of the ports whose probes came back; `check` is called while
    waiting and may raise.
    """
    far = {near.ifindex: other for _, near, other in plan.halves}
    missing = set(far)
    with _senders(plan, namespaces) as senders:
        for _ in range(_ROUNDS):
            for port in (port for node in plan.nodes for port in node.ports):
                if port.ifindex in missing:
                    probe = frame(port, far[port.ifindex], token)
                    senders[port.node].sendto(probe, (port.name, 0))
            missing = _await(missing, seen, check)
            if not missing:
                return
    raise RunError(
        f"no probe came back over: {_named(plan, missing)}",
        hint="lab doctor tells whether XDP works here; another mode: lab up --xdp generic",
    )


@contextlib.contextmanager
def _senders(plan: Plan, namespaces: Mapping[str, int]) -> Iterator[dict[str, socket.socket]]:
    senders: dict[str, socket.socket] = {}
    try:
        for node in plan.nodes:
            with netns.entered(namespaces[node.name]):
                # Protocol 0: it only sends, so it slows down no one who receives.
                senders[node.name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        yield senders
    finally:
        # Each close waits for the kernel's readers, about 12 ms; all at once wait no longer.
        with concurrent.futures.ThreadPoolExecutor(max(1, len(senders))) as pool:
            list(pool.map(socket.socket.close, senders.values()))


def frame(port: Port, peer: Port, token: int) -> bytes:
    header = mac_bytes(peer.mac) + mac_bytes(port.mac) + struct.pack("!H", ETHERTYPE)
    return (header + struct.pack("!QIB", token, port.ifindex, 0)).ljust(_FRAME_BYTES, b"\0")


def _await(missing: set[int], seen: Seen, check: Callable[[], None]) -> set[int]:
    """Those of `missing` that stay unseen for a round's time."""
    deadline = time.monotonic() + _ROUND_S
    while missing and time.monotonic() < deadline:
        check()
        missing = missing - seen()
        if missing:
            time.sleep(_POLL_S)
    return missing


def _named(plan: Plan, missing: set[int]) -> str:
    failed = [link for link in plan.links if {link.a.ifindex, link.b.ifindex} & missing]
    return ", ".join(f"{link.a} - {link.b}" for link in failed)
