# SPDX-License-Identifier: GPL-2.0-or-later
"""Bare AF_XDP sockets at two hosts of a lab, and the data frames that they exchange.

Sender and receiver have a core each.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable
from typing import Any

import numpy as np

from softroce_lab import _native
from softroce_lab.experiment.hosts.processes import gateway, mac_number
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Node

SENDER_CPU, RECEIVER_CPU = 0, 1
ACK_TIMEOUT = 17
"""Of RC queue pairs, as IBA codes it: 0.5 s. A peer whose CPU others hold that long is not lost."""
PAYLOAD_BYTES = 2048  # of a frame, whose headers of 62 bytes and ICRC make it 2114 long
HEADERS_BYTES = 62 + 40  # Ethernet to DETH, and struct lab_hdr
INDEX_OFFSET = 62 + 16  # of lab_hdr.index, so that each frame has a fate of its own
QKEY = 0x0BE7C4


class BareTraffic:
    """From the lab's first host to its last."""

    def __init__(self, lab: Lab, seconds: float, *, moderate: bool = False) -> None:
        """Each `run` lasts `seconds`. `moderate`: the receiver sleeps and wakes as our hosts do."""
        self._lab = lab
        self._moderate = moderate
        self._duration_ns = int(seconds * 1e9)
        self.source, self.destination = lab.plan.hosts[0], lab.plan.hosts[-1]
        self._frame = data_frame(lab, self.source, self.destination, PAYLOAD_BYTES)

    def run(self, xsks_map: str = "xsks") -> tuple[int, int, int]:
        """Frames sent, frames received, nanoseconds; `xsks_map` leads to the receiver's socket."""
        sender, receiver = (open_port(self._lab, end) for end in (self.source, self.destination))
        receiver.insert_into(str(self._lab.bpffs / xsks_map))
        result: tuple[int, int, int] = _native.raw_traffic(
            sender,
            receiver,
            self._frame,
            payload_offset=HEADERS_BYTES,
            index_offset=INDEX_OFFSET,
            duration_ns=self._duration_ns,
            moderate=self._moderate,
            sender_cpu=SENDER_CPU,
            receiver_cpu=RECEIVER_CPU,
        )
        return result

    def run_past(self, ifindex: int) -> tuple[int, int, int]:
        """Frames that met the faults of the link behind port `ifindex`, dropped ones, ns."""
        before = self._lab.xdp.counters()[ifindex]
        _, _, ns = self.run()
        after = self._lab.xdp.counters()[ifindex]
        dropped = after.injected_tx_roce - before.injected_tx_roce
        return after.tx_roce - before.tx_roce + dropped, dropped, ns


def set_faults(lab: Lab, faults: Iterable[Fault] = ()) -> None:
    """Let these be the lab's faults."""
    lab.set_faults(dataclasses.replace(lab.plan, faults=tuple(faults)))


def open_port(lab: Lab, node: Node) -> Any:
    """An AF_XDP socket at a host's first port, in the lab's mode."""
    config = _native.PortConfig()
    config.interface = node.ports[0].name
    config.ifindex = node.ports[0].ifindex
    config.generic = lab.mode == "generic"
    with lab.enter(node.name):
        return _native.RawPort(config)


def data_frame(lab: Lab, source: Node, destination: Node, payload_bytes: int) -> bytes:
    """A data packet of a striped message, as the engine makes it; nobody checks its ICRC here.

    `payload_bytes`, a path MTU of InfiniBand's, counts our header and the data.
    """
    config = _native.MessageConfig()
    config.address = int(ipaddress.IPv4Address(str(source.address)))
    config.path_mtu = payload_bytes
    endpoint = _native.FrameEndpoint(config, mac_number(source.ports[0].mac))
    peer = endpoint.connect(
        ip=int(ipaddress.IPv4Address(str(destination.address))),
        mac=mac_number(gateway(lab, source).mac),
        data_qp=endpoint.data_qp,
        recovery_qp=endpoint.recovery_qp,
        qkey=QKEY,
    )
    payload = np.zeros(endpoint.chunk_bytes, dtype=np.uint8)
    key = endpoint.register_memory(payload.ctypes.data, payload.nbytes, 0)
    endpoint.post_send(peer, (0, 0, 0), key, 0, payload.nbytes, 0)
    frame: bytes = endpoint.poll_frame(0)
    return frame
