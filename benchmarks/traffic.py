# SPDX-License-Identifier: GPL-2.0-or-later
"""Bare AF_XDP sockets at two hosts of a lab, for several benchmarks.

Sender and receiver have a core each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import _native, topology
from softroce_lab.experiment.hosts.processes import gateway, mac_number
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Node, Plan, Port

SENDER_CPU, RECEIVER_CPU = 0, 1
PAYLOAD_BYTES = 2048  # of a frame, whose headers and ICRC have 66 bytes more
HEADERS_BYTES = 62 + 40  # Ethernet to DETH, and struct lab_hdr
INDEX_OFFSET = 62 + 16  # of lab_hdr.index, so that each frame has a fate of its own
_QKEY = 0x0BE7C4


@contextlib.contextmanager
def lab_of(topology_name: str) -> Iterator[Lab]:
    """A built-in topology as a lab, gone afterwards. EnvironmentLackError without root's rights."""
    with fabric.owned(topology.load(topology_name, name=f"bench-{os.getpid()}")) as lab:
        yield lab


def set_faults(lab: Lab, faults: Iterable[Fault] = ()) -> None:
    """Let these be the lab's faults."""
    lab.set_faults(dataclasses.replace(lab.plan, faults=tuple(faults)))


def first_switch(plan: Plan) -> tuple[int, Port]:
    """The directed link and port by which packets leave the first switch between the hosts."""
    peers = locate.peers(plan)
    switch = peers[plan.hosts[0].ports[0].ifindex][1].node
    ((port, *_),) = [
        route.ports for route in plan.routes
        if (route.node, route.destination) == (switch, f"{plan.hosts[-1].address}/32")
    ]  # fmt: skip
    return peers[port.ifindex][0], port


def cpu_s(lab: Lab, role: str) -> float:
    """CPU time so far of the lab's process with this role."""
    processes = lab.ledger.history.of_kind("process")
    pid = next(each.facts["pid"] for each in processes if each.facts["role"] == role)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


class BareTraffic:
    """Frames as fast as they go, from the lab's first host to its last."""

    def __init__(self, lab: Lab, seconds: float) -> None:
        """Each run lasts `seconds`."""
        self._lab = lab
        self._duration_ns = int(seconds * 1e9)
        self._ends = lab.plan.hosts[0], lab.plan.hosts[-1]
        self._frame = data_frame(lab, PAYLOAD_BYTES)

    def received_per_s(self, *, moderate: bool = True) -> float:
        """Frames a second that arrive; `moderate`: the receiver sleeps and wakes as our hosts do.

        A receiver that is woken by each frame hides most of what faults cost.
        """
        _, received, ns = self._run(moderate)
        return received * 1e9 / ns

    def met_per_s(self, port: Port) -> float:
        """Frames a second that come to the faults of the link at a port, dropped ones included."""
        before = self._lab.xdp.counters()[port.ifindex]
        *_, ns = self._run(moderate=True)
        after = self._lab.xdp.counters()[port.ifindex]
        dropped = after.injected_tx_roce - before.injected_tx_roce
        return float((after.tx_roce - before.tx_roce + dropped) * 1e9 / ns)

    def _run(self, moderate: bool) -> tuple[int, int, int]:
        """Frames sent, frames received, nanoseconds."""
        sender, receiver = (open_port(self._lab, end) for end in self._ends)
        receiver.insert_into(str(self._lab.bpffs / "xsks"))
        result: tuple[int, int, int] = _native.raw_traffic(
            sender, receiver, self._frame,
            payload_offset=HEADERS_BYTES, index_offset=INDEX_OFFSET, duration_ns=self._duration_ns,
            moderate=moderate, sender_cpu=SENDER_CPU, receiver_cpu=RECEIVER_CPU,
        )  # fmt: skip
        return result


def send_paced(lab: Lab, frame: bytes, count: int, frames_per_s: float) -> int:
    """Send frames at an even pace from the first host; returns how many the kernel took.

    Each frame has its number and the time at which it left, ns, behind the headers.
    """
    sent, _, _ = _native.paced_traffic(
        open_port(lab, lab.plan.hosts[0]), frame, index_offset=INDEX_OFFSET,
        stamp_offset=HEADERS_BYTES, count=count, frames_per_second=frames_per_s, cpu=SENDER_CPU,
    )  # fmt: skip
    return int(sent)


def open_port(lab: Lab, node: Node) -> Any:
    """An AF_XDP socket at a host's first port."""
    config = _native.PortConfig()
    config.interface = node.ports[0].name
    config.ifindex = node.ports[0].ifindex
    with lab.enter(node.name):
        return _native.RawPort(config)


def data_frame(lab: Lab, payload_bytes: int) -> bytes:
    """A data packet of a striped message from the first host to the last, as the engine makes it.

    `payload_bytes`, a path MTU of InfiniBand's, counts our header and the data.
    """
    source, destination = lab.plan.hosts[0], lab.plan.hosts[-1]
    config = _native.MessageConfig()
    config.address = int(ipaddress.IPv4Address(str(source.address)))
    config.path_mtu = payload_bytes
    endpoint = _native.FrameEndpoint(config, mac_number(source.ports[0].mac))
    peer = endpoint.connect(
        ip=int(ipaddress.IPv4Address(str(destination.address))),
        mac=mac_number(gateway(lab, source).mac),
        data_qp=endpoint.data_qp,
        recovery_qp=endpoint.recovery_qp,
        qkey=_QKEY,
    )
    payload = np.zeros(endpoint.chunk_bytes, dtype=np.uint8)
    key = endpoint.register_memory(payload.ctypes.data, payload.nbytes, 0)
    endpoint.post_send(peer, (0, 0, 0), key, 0, payload.nbytes, 0)
    frame: bytes = endpoint.poll_frame(0)
    return frame
