# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys and values of the XDP programs' maps: the layouts of xdp/lab_maps.h, in native order."""

from __future__ import annotations

import dataclasses
import ipaddress
import struct
from collections.abc import Sequence

GROUP_PORTS = 64  # LAB_GROUP_PORTS: equal-cost ports of one route

FATE_AT_INGRESS = 1  # enum lab_port_flags
SPRAY = 2
ADAPTIVE = 4

_ARMED_SLOT = 1
_ARMED_RULES = 2
_ARMED_SHAPED = 4
_GENERATION = 8
_WORD = 1 << 32

_PORT = struct.Struct("=QIIIII6s6s")
_GROUP = struct.Struct(f"={1 + GROUP_PORTS}I")
_TAP = struct.Struct("=I4xQ")
_TIMELINE = struct.Struct("=QII")


def u32(number: int) -> bytes:
    """Key of an array; value of a device map."""
    return struct.pack("=I", number)


def u64(number: int) -> bytes:
    """Value of the arrays of counts and tokens."""
    return struct.pack("=Q", number)


def mac_bytes(mac: str) -> bytes:
    """Six bytes of "02:00:00:00:00:01"."""
    return bytes.fromhex(mac.replace(":", ""))


@dataclasses.dataclass(frozen=True, slots=True)
class PortConfig:
    """struct lab_port."""

    salt: int
    node: int
    address: str | None
    rx_link: int
    tx_link: int
    flags: int
    mac: str
    peer_mac: str

    def pack(self) -> bytes:
        """The map's value."""
        address = int(ipaddress.IPv4Address(self.address)) if self.address else 0
        return _PORT.pack(
            self.salt,
            self.node,
            address,
            self.rx_link,
            self.tx_link,
            self.flags,
            mac_bytes(self.mac),
            mac_bytes(self.peer_mac),
        )


def exact_key(node: int, prefix: ipaddress.IPv4Network) -> bytes:
    """struct lab_exact_key."""
    return struct.pack("=II", node, int(prefix.network_address))


def prefix_key(node: int, prefix: ipaddress.IPv4Network) -> bytes:
    """struct lab_prefix_key."""
    return (
        struct.pack("=I", 32 + prefix.prefixlen)
        + struct.pack("!I", node)
        + prefix.network_address.packed
    )


def group(ifindexes: Sequence[int]) -> bytes:
    """struct lab_group, of the first 64 ports if there are more."""
    taken = ifindexes[:GROUP_PORTS]
    return _GROUP.pack(len(taken), *taken, *(0,) * (GROUP_PORTS - len(taken)))


def missed_of(tap: bytes) -> int:
    """The missed packets of a struct lab_tap."""
    missed: int = _TAP.unpack(tap)[1]
    return missed


@dataclasses.dataclass(frozen=True, slots=True)
class LinkState:
    """struct lab_link: the generation word of the faults."""

    armed: int

    @classmethod
    def unpack(cls, value: bytes) -> LinkState:
        """From the map's value."""
        return cls(*struct.unpack("=I", value))

    def pack(self) -> bytes:
        """The map's value."""
        return u32(self.armed)

    @property
    def slot(self) -> int:
        """The slot in use."""
        return self.armed & _ARMED_SLOT

    @property
    def shaped(self) -> bool:
        """Whether frames go through the wire stage."""
        return bool(self.armed & _ARMED_SHAPED)

    def flipped(self, *, has_rules: bool, shaped: bool) -> LinkState:
        """With the other slot in use, one generation on."""
        generation = (self.armed & -_GENERATION) + _GENERATION
        flags = (_ARMED_RULES if has_rules else 0) | (_ARMED_SHAPED if shaped else 0)
        word = generation | flags | (self.slot ^ _ARMED_SLOT)
        return LinkState(word % _WORD)


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """struct lab_timeline."""

    epoch_ns: int  # CLOCK_MONOTONIC of moment 0 of all windows
    learn: bool  # whether switches number connections
    round: int  # what was learnt in another round is forgotten

    @classmethod
    def unpack(cls, value: bytes) -> Timeline:
        """From the map's value."""
        epoch_ns, learn, round_ = _TIMELINE.unpack(value)
        return cls(epoch_ns, bool(learn), round_)

    def pack(self) -> bytes:
        """The map's value."""
        return _TIMELINE.pack(self.epoch_ns % _WORD**2, self.learn, self.round % _WORD)


@dataclasses.dataclass(frozen=True, slots=True)
class PortCounters:
    """struct lab_counters, summed over the CPUs. Packets, unless the name contains bytes.

    The counts of RoCE are of UDP datagrams to port 4791.
    """

    rx_packets: int
    rx_bytes: int
    rx_roce: int
    tx_packets: int  # handed to the link, after its fate
    tx_bytes: int
    tx_roce: int
    to_xsk: int  # handed to the host's AF_XDP socket
    answered: int  # ARP and probes sent back
    injected_rx: int  # dropped by a rule of the link that ends here
    injected_tx: int  # dropped by a rule of the link that begins here
    injected_rx_roce: int
    injected_tx_roce: int
    no_route: int
    ttl_exceeded: int
    malformed: int
    unsupported: int  # neither IP nor ARP or ND for the gateway nor a probe
    stray_probe: int  # a probe with another lab's token, or of another port
    spoofed: int  # from a host, with a source that is not its address
    unwired: int  # the chosen port has no entry in the device map
    drop_log_lost: int  # dropped by a rule, but the drop record was lost
    capture_lost: int
    to_wire: int  # handed to the wire stage, which counts from there on
    wire_gone: int  # lost: no socket of the wire stage on the port it arrived on
    link_down: int  # of the injected ones: the link was down
    corrupted: int  # a bit was flipped on a link whose fate this port decides
    duplicated: int  # will be, by the wire stage
    reordered: int
    no_route_roce: int

    def __sub__(self, before: PortCounters) -> PortCounters:
        """What was counted since `before`."""
        names = self.__slots__
        return PortCounters(*(getattr(self, name) - getattr(before, name) for name in names))

    @classmethod
    def unpack(cls, value: bytes) -> PortCounters:
        """From the copies of all CPUs."""
        kinds = len(cls.__slots__)
        counts = struct.unpack(f"={len(value) // 8}Q", value)
        return cls(*(sum(counts[kind::kinds]) for kind in range(kinds)))
