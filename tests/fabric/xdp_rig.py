# SPDX-License-Identifier: GPL-2.0-or-later
"""A small real fabric for the tests of its XDP side: namespaces, veths, programs; no ledger."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from softroce_lab.fabric import mounted
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.bpf.xdp import Mode, XdpFabric
from softroce_lab.fabric.net import links, netns
from softroce_lab.plan.plan import Link, Plan, Port

TOKEN = 0xFEEDFACE12345678
ETH_P_ALL = 3
ROCE_PORT = 4791
BATCH = 20  # frames at once: a small part of what any ring or socket on the way holds
PATIENCE_S = 20.0  # that a batch may be under way, on a machine that is slow
_SO_RCVBUFFORCE = 33  # above net.core.rmem_max, which many machines have at 208 KiB: 98 pages
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # packet(7)


def directed_links(links: Iterable[Link]) -> Iterator[tuple[int, Port, Port]]:
    """(number, near end, far end) of every directed link."""
    return (half for link in links for half in link.halves)


def checksum(data: bytes) -> int:
    """RFC 1071; 0 over a header that holds its right checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")


def lab_header(
    *,
    kind: int = 0,
    operation: int = 0,
    step: int = 0,
    message: int = 0,
    index: int = 0,
    attempt: int = 0,
    count: int = 1,
    code: int = 0,
    verb: int = 0,
) -> bytes:
    """struct lab_hdr of xdp/lab_wire.h; with a verb, struct lab_operation behind it."""
    behind = struct.pack("!IIQII", verb << 24, 0, 0, 0, 0) if verb else b""
    header = struct.pack(
        "!BBHHHIIIIIIIHH",
        (4 if verb else 3) << 4 | kind,
        0,
        attempt,
        operation,
        step,
        message,
        0,
        index,
        code << 24 | count,
        *(0,) * 5,
    )
    return header + behind


def roce(
    src: str,
    dst: str,
    *,
    sport: int = 0xC000,
    psn: int = 0,
    qpn: int = 17,
    lab: bytes = b"",
    size: int = 200,
    ttl: int = 64,
    dport: int = ROCE_PORT,
    opcode: int = 0x64,
) -> bytes:
    """An Ethernet frame as of a UD SEND; its ICRC is zeros, which no switch looks at."""
    payload = lab.ljust(size, b"\x00")
    bth = struct.pack("!BBHII", opcode, 0, 0xFFFF, qpn, psn)
    deth = struct.pack("!II", 0x11111111, 1)
    udp_bytes = 8 + len(bth) + len(deth) + len(payload) + 4
    udp = struct.pack("!HHHH", sport, dport, udp_bytes, 0)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + udp_bytes, 0, 0, ttl, 17, 0)
    head += socket.inet_aton(src) + socket.inet_aton(dst)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    ethernet = b"\xff" * 6 + b"\x02" * 6 + struct.pack("!H", 0x0800)
    return ethernet + head + udp + bth + deth + payload + bytes(4)


class Rig:
    """The plan, realised. Hosts have one port each."""

    def __init__(self, plan: Plan, mode: Mode, directory: Path) -> None:
        self.plan = plan
        self.mode = mode
        self.bpffs = directory / "bpf"
        self._source = f"softroce_lab-test-{os.getpid()}"
        self.namespaces = {node.name: netns.create() for node in plan.nodes}
        mounted.mount(self.bpffs, "bpf", self._source)
        for node in plan.nodes:
            with self.enter(node.name):
                links.silence(node)
        links.create(plan.links, plan.mtu, self.namespaces)
        gateways = links.gateways(plan)
        for node in plan.nodes:
            with self.enter(node.name):
                links.configure(node, gateways)
        self.xdp = XdpFabric.attach(plan, self.enter, self.bpffs, TOKEN, mode)
        self._before = self.xdp.counters()

    def refresh(self) -> None:
        """As after `lab up`: no faults, no probes seen, all counts from zero."""
        self.xdp.clear_faults()
        seen = bpf.Map.pinned(self.bpffs / "probe_seen")
        for ifindex in self.xdp.probe_seen():
            seen.put(struct.pack("=I", ifindex), bytes(8))
        seen.close()
        self.settle()
        self._before = self.xdp.counters()

    def close(self) -> None:
        self.xdp.close()
        mounted.unmount(self.bpffs, "bpf", self._source)
        for fd in self.namespaces.values():
            os.close(fd)

    @contextlib.contextmanager
    def enter(self, node: str) -> Iterator[None]:
        with netns.entered(self.namespaces[node]):
            yield

    def tap(self, node: str, port: int = 0) -> Tap:
        """A packet socket on a node's port."""
        return Tap(self, node, self.plan.node(node).ports[port].name)

    def address(self, host: str) -> str:
        address = self.plan.node(host).address
        assert address is not None
        return address

    def settle(self) -> None:
        """Wait until no counter moves: every frame sent so far has arrived or is lost."""
        before, quiet = None, 0
        for _ in range(600):
            now = self.xdp.counters()
            quiet = quiet + 1 if now == before else 0
            if quiet == 3:
                return
            before = now
            time.sleep(0.007)
        raise AssertionError("the fabric does not come to rest")

    def carry(
        self,
        source: str,
        destination: str,
        frames: Sequence[bytes],
        at_rest: Callable[[], bool] = lambda: True,
    ) -> list[bytes]:
        """What arrives of these frames, each batch sent once the one before is through.

        That is: seen by the program at the end of each link, or counted by the switch that took it
        away; and `at_rest` holds, which a wire stage must for that. So a frame that is missing was
        taken by a rule: AssertionError, with the place, if the machine lost one.
        """
        arrived = []
        with self.tap(source) as sender, self.tap(destination) as receiver:
            before = self.counters()
            for begin in range(0, len(frames), BATCH):
                for frame in frames[begin : begin + BATCH]:
                    sender.send(frame)
                self._await(source, min(begin + BATCH, len(frames)), before, at_rest)
                arrived += receiver.received()
            self.settle()
            arrived += receiver.received()
            assert not receiver.dropped(), "the receiver's socket was full"
        return arrived

    def _await(
        self,
        source: str,
        sent: int,
        before: Mapping[int, PortCounters],
        at_rest: Callable[[], bool],
    ) -> None:
        """Wait until no frame that was sent since `before` is on a link."""
        deadline = time.monotonic() + PATIENCE_S
        while (missing := self._on_links(source, sent, before)) or not at_rest():
            late = time.monotonic() > deadline
            assert not late, f"under way for long, or lost by the machine, no rule: {missing}"
            time.sleep(0.001)

    def _on_links(
        self, source: str, sent: int, before: Mapping[int, PortCounters]
    ) -> dict[str, int]:
        """Frames that entered a link and were not seen at its end, by link."""
        now = self.counters()
        found = {}
        for _, near, far in directed_links(self.plan.links):
            at_near, at_far = (now[end.ifindex] - before[end.ifindex] for end in (near, far))
            from_host = self.plan.node(near.node).is_host
            entered = at_near.tx_packets + (sent if near.node == source else 0)
            if entered > at_far.rx_packets and (near.node == source or not from_host):
                found[f"{near}->{far}"] = entered - at_far.rx_packets
        return found

    def counters(self) -> dict[int, PortCounters]:
        """What every port counted since the last refresh."""
        return {i: now - self._before[i] for i, now in self.xdp.counters().items()}

    def total(self, name: str) -> int:
        return sum(getattr(count, name) for count in self.counters().values())


@contextlib.contextmanager
def listening(rig: Rig, host: str) -> Iterator[None]:
    """The host has a socket on RoCE's port, so that its kernel refuses nothing by ICMP."""
    with rig.enter(host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((rig.address(host), ROCE_PORT))
        yield


class Tap:
    """Sends frames out of a port, and sees those that reach the kernel there."""

    def __init__(self, rig: Rig, node: str, interface: str) -> None:
        with rig.enter(node):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
            self._socket.bind((interface, ETH_P_ALL))

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def dropped(self) -> int:
        """Frames that found the socket full, since this was asked last."""
        size = struct.calcsize("=II")
        found = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, size)
        return int(struct.unpack("=II", found)[1])

    def received(self) -> list[bytes]:
        """The frames that came in so far; those that went out are left away."""
        frames = []
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, address = self._socket.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING:
                    frames.append(frame)
        return frames
