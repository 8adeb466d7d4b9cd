# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters by the names that people grep for: of mlx5, of Linux's rxe, of InfiniBand's ports.

Each is a sum of counters of our engine (native/engine/counters.hpp), whose own names are shown
beside. docs/reference/counters.md is made of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Counter:
    """A counter under a name of another's."""

    name: str
    meaning: str
    made_of: tuple[str, ...] = ()  # else our engine has one of that name
    less: tuple[str, ...] = ()  # and those that are taken away
    per_qp: bool = True  # else of a port only
    divisor: int = 1

    @property
    def of(self) -> tuple[str, ...]:
        """Counters of our engine that are added up."""
        return self.made_of or (self.name,)

    def value(self, counts: Mapping[str, int]) -> int:
        """From the counters of the engine."""
        gained = sum(counts[name] for name in self.of)
        return (gained - sum(counts[name] for name in self.less)) // self.divisor

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((*self.of, *self.less))


MLX5 = (
    Counter("rx_write_requests", "RDMA WRITE messages begun"),
    Counter("rx_read_requests", "RDMA READ requests executed"),
    Counter("rx_atomic_requests", "atomics executed"),
    Counter(
        "out_of_buffer",
        "packets that found no receive posted",
        ("tx_rnr_nak", "rx_ud_no_recv"),
    ),
    Counter("out_of_sequence", "requests with a PSN beyond the one expected"),
    Counter("duplicate_request", "requests with a PSN before the one expected"),
    Counter("rnr_nak_retry_err", "RNR NAKs received"),
    Counter("packet_seq_err", "NAKs for PSN sequence errors received"),
    Counter(
        "implied_nak_seq_err",
        "acknowledgements that showed a READ's or an atomic's response to be lost",
    ),
    Counter("local_ack_timeout_err", "times that a QP's ACK timer ran out"),
    Counter("resp_local_length_error", "receives that were too short"),
    Counter("resp_cqe_error", "receives completed in error"),
    Counter("req_cqe_error", "requests completed in error"),
    Counter("req_remote_invalid_request", "requests ended by a NAK for an invalid request"),
    Counter("req_remote_access_errors", "requests ended by a NAK for a remote access error"),
    Counter(
        "resp_remote_access_errors",
        "requests answered with a NAK for a remote access error",
        ("tx_nak_access",),
    ),
    Counter("resp_cqe_flush_error", "receives flushed"),
    Counter("req_cqe_flush_error", "requests flushed"),
    Counter("req_transport_retries_exceeded", "requests ended by retries used up"),
    Counter("req_rnr_retries_exceeded", "requests ended by RNR retries used up"),
    Counter("rx_icrc_encapsulated", "packets with a wrong ICRC", ("rx_wrong_icrc",), per_qp=False),
    Counter("np_ecn_marked_roce_packets", "packets that arrived with CE", ("rx_ce",), per_qp=False),
    Counter("np_cnp_sent", "CNPs sent", ("tx_cnp",), per_qp=False),
    Counter(
        "rp_cnp_handled", "CNPs that slowed a flow", ("rx_cnp",), ("rx_cnp_ignored",), per_qp=False
    ),
    Counter("rp_cnp_ignored", "CNPs that slowed nothing", ("rx_cnp_ignored",), per_qp=False),
)

_SENT = (
    "tx_ud",
    "tx_connected",
    "tx_data",
    "tx_control",
    "tx_report",
    "tx_probe",
    "tx_clear",
    "tx_cnp",
)

RXE = (
    Counter("sent_pkts", "packets sent", _SENT, per_qp=False),
    Counter(
        "rcvd_pkts",
        "packets received with a right ICRC",
        ("frames_received",),
        ("rx_truncated", "rx_not_roce", "rx_wrong_icrc"),
        per_qp=False,
    ),
    Counter("out_of_seq_request", "as out_of_sequence", ("out_of_sequence",)),
    Counter("rcvd_rnr_err", "as rnr_nak_retry_err", ("rnr_nak_retry_err",)),
    Counter("send_rnr_err", "RNR NAKs sent", ("tx_rnr_nak",)),
    Counter("rcvd_seq_err", "as packet_seq_err", ("packet_seq_err",)),
    Counter(
        "retry_exceeded_err",
        "as req_transport_retries_exceeded",
        ("req_transport_retries_exceeded",),
    ),
    Counter("retry_rnr_exceeded_err", "as req_rnr_retries_exceeded", ("req_rnr_retries_exceeded",)),
    Counter(
        "completer_retry_err",
        "times that a requester went back, RNR aside",
        ("req_went_back",),
    ),
    Counter("send_err", "packets lost because the port was down", ("tx_link_down",), per_qp=False),
    Counter("rdma_sends", "SENDs completed", ("sends_completed",)),
    Counter("rdma_recvs", "receives completed", ("receives_completed",)),
)

HARDWARE = MLX5 + RXE
"""What /sys/class/infiniband/*/ports/1/hw_counters holds on such devices."""

PROCESS_PORT = (
    Counter("port_xmit_data", "octets sent / 4", ("octets_sent",), divisor=4),
    Counter("port_rcv_data", "octets received / 4", ("octets_received",), divisor=4),
    Counter("port_xmit_packets", "frames sent", ("frames_sent",)),
    Counter("port_rcv_packets", "frames received", ("frames_received",)),
)
"""Of a port, as the process that owns it saw it."""

NEEDED = frozenset[str]().union(*(each.needs for each in HARDWARE + PROCESS_PORT))
"""Counters of our engine that a port must have for all of these; of a queue pair the next ones."""
NEEDED_OF_QP = frozenset[str]().union(*(each.needs for each in HARDWARE if each.per_qp))

PORT = {
    "port_xmit_data": "octets sent / 4: whole frames, Ethernet header to ICRC",
    "port_rcv_data": "octets received / 4",
    "port_xmit_packets": "frames sent",
    "port_rcv_packets": "frames received",
    "port_xmit_discards": "frames for a link that was down, or whose queue was full",
    "port_rcv_errors": "malformed frames, and those that a switch has no use for",
    "port_rcv_switch_relay_errors": "frames without a route, or out of hops",
    "port_rcv_constraint_errors": "frames of a host in another's name",
}
"""Of every port of the fabric since the lab came up, by the names of IBA 16.1.3.5."""

LINK = {
    "frames": "frames that reached the far end of the directed link",
    "bytes": "their octets",
    "loss": "frames that rules took",
    "down": "frames taken because the link was down",
    "queue": "frames that found its queue full",
    "marked": "frames delivered with CE set by the link",
    "trimmed": "frames delivered without their payload",
    "corrupted": "frames delivered with a bit flipped",
    "no_route": "frames that arrived over it and could go nowhere",
    "refused": "frames that arrived over it malformed, spoofed, out of hops, or not of the lab",
    "emulator": "frames that the machine lost, not a rule",
    "to_stage": "frames that arrived over it and were lost on their way to the wire stage",
}
"""Of every directed link since the lab came up, as `lab top` has them."""


def of_port(counts: Mapping[str, int]) -> dict[str, int]:
    return {counter.name: counter.value(counts) for counter in HARDWARE}


def of_process_port(counts: Mapping[str, int]) -> dict[str, int]:
    return {counter.name: counter.value(counts) for counter in PROCESS_PORT}


def of_qp(counts: Mapping[str, int]) -> dict[str, int]:
    return {counter.name: counter.value(counts) for counter in HARDWARE if counter.per_qp}


def added_up(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The engines' counters of all RNICs of a host."""
    found: dict[str, int] = {}
    for counts in several:
        for name, count in counts.items():
            found[name] = found.get(name, 0) + count
    return found
