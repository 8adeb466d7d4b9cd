# SPDX-License-Identifier: GPL-2.0-or-later
"""What simulated RNICs cannot do at once, by name.

How much state an RNIC keeps is not published. 512 to 10000 contexts and 500 ns a miss, which is
about a PCIe round trip, are inferred from published measurements, in which the throughput of RNICs
of ConnectX's class halves by about 5000 active reliable connections. Here a miss holds up the
packets behind it; how many fetches a real RNIC overlaps is not published either.
A context of 256 bytes is inferred, too: only its ratio to a peer's state matters. The state of a
peer is what packets of `csa_ud` touch with eight paths.
Host latency: 0.5 us, as simulators of data-centre transports have it. PCIe latency: of the 1000 ns
or so that a small packet takes out of a host through a NIC and back in, PCIe has about 900
(Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018, section
2); that half of it is each way's is inferred. Packets a second: 215 million, what ConnectX-6's user
manual states of messages.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from softroce_lab import _native
from softroce_lab.errors import UserError

if TYPE_CHECKING:
    from softroce_lab._native import MessageConfig


RECEIVE_RING_PACKETS = 1 << 20
"""The first credit of simulated hosts: so much that it never limits a sender."""


def engine_config(**fields: Any) -> MessageConfig:
    """`fields`: attributes of `MessageConfig`. None, or not given: the engine's own default.

    AttributeError for a name that is no attribute.
    """
    config = _native.MessageConfig()
    for name, value in fields.items():
        if value is not None:
            setattr(config, name, value)
    return config


def simulated_host(**fields: Any) -> MessageConfig:
    """The engine of a simulated host, whose packets carry no bytes unless a field says so.

    `fields`: as `engine_config` takes them.
    """
    usual = {
        "path_mtu": 4096,
        "receive_ring_packets": RECEIVE_RING_PACKETS,
        "carries_payload": False,
    }
    return engine_config(**{**usual, **fields})


SECOND_PS = 10**12


@dataclasses.dataclass(frozen=True, slots=True)
class RnicModel:
    """Limits of an RNIC; what is 0 is no limit. Latencies are paid by each packet, each way."""

    cached_contexts: int = 0  # of queue pairs, if it holds nothing else; 0: all fit
    peer_bytes: int = 0  # of a peer's state in the RNIC; 0: the host's software has it
    miss_ns: int = 0  # until a state that is not cached is there; both directions wait
    host_latency_ns: int = 0  # of software and doorbells
    pcie_latency_ns: int = 0  # of a packet's transfer over the bus
    packets_per_second: int = 0  # in each direction

    def native(self) -> Any:
        """The same for the simulated fabric."""
        model = _native.RnicModel()
        model.cached_bytes = self.cached_contexts * CONTEXT_BYTES
        model.context_bytes = CONTEXT_BYTES
        model.peer_bytes = self.peer_bytes
        model.miss_ps = self.miss_ns * 1000
        model.host_latency_ps = self.host_latency_ns * 1000
        model.pcie_latency_ps = self.pcie_latency_ns * 1000
        if self.packets_per_second:
            model.packet_time_ps = SECOND_PS // self.packets_per_second
        return model

    @property
    def round_trip_ns(self) -> int:
        """What the latencies at both ends add to a round trip."""
        return 4 * (self.host_latency_ns + self.pcie_latency_ns)


HOST_LATENCY_NS = 500
PCIE_LATENCY_NS = 450
MISS_NS = 500
PACKETS_PER_SECOND = 215_000_000
CONTEXT_BYTES = 256
PEER_BYTES = 320


def _lru(contexts: int, peer_bytes: int = 0) -> RnicModel:
    return RnicModel(
        contexts, peer_bytes, MISS_NS, HOST_LATENCY_NS, PCIE_LATENCY_NS, PACKETS_PER_SECOND
    )


IDEAL = "ideal"

RNICS = {
    IDEAL: RnicModel(),
    "all-contexts": _lru(0),
    "lru-512": _lru(512),
    "lru-1024": _lru(1024),
    "lru-4096": _lru(4096),
    "lru-10000": _lru(10_000),
    "lru-1024-peers": _lru(1024, PEER_BYTES),
}


def rnic(name: str) -> RnicModel:
    """The model of this name, or UserError."""
    try:
        return RNICS[name]
    except KeyError:
        known = ", ".join(RNICS)
        raise UserError(f"no RNIC model is called {name!r}", hint=f"known are {known}") from None
