# SPDX-License-Identifier: GPL-2.0-or-later
"""Addresses and parameters of connections, as pyverbs has them."""

from __future__ import annotations

import dataclasses
import enum
import errno
import ipaddress
import socket

from softroce_lab.rdmacm.events import ConnParams
from softroce_lab.rdmacm.service import Address, rdma_port_space
from softroce_lab.rnic.base import expect, expect_unsigned, table
from softroce_lab.rnic.errors import PyverbsRDMAError


class rdma_addrinfo_flags(enum.IntFlag):  # noqa: N801
    """Flags of rdma_getaddrinfo()."""

    RAI_PASSIVE = 1
    RAI_NUMERICHOST = 2
    RAI_NOROUTE = 4
    RAI_FAMILY = 8


class AddrInfo:
    """Source and destination; names and services are resolved at once.

    With RAI_PASSIVE the source is where to listen, else the destination where to connect.
    """

    def __init__(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | None = None,
        dst_service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        failure = "Failed to get Address Info"
        self.flags = rdma_addrinfo_flags(expect_unsigned("flags", flags, 32))
        space = expect_unsigned("port_space", port_space, 32) or rdma_port_space.RDMA_PS_TCP
        if space not in set(rdma_port_space):
            raise PyverbsRDMAError(failure, errno.EINVAL, hint=f"no port space {space:#x}")
        self.port_space = rdma_port_space(space)
        numeric = bool(self.flags & rdma_addrinfo_flags.RAI_NUMERICHOST)
        self.src, self.src_port = _look_up(src, src_service, numeric)
        self.dst, self.dst_port = _look_up(dst, dst_service, numeric)
        if not self.is_passive and self.dst is None:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="neither RAI_PASSIVE nor dst")

    @property
    def is_passive(self) -> bool:
        """Whether this is to listen."""
        return bool(self.flags & rdma_addrinfo_flags.RAI_PASSIVE)

    def close(self) -> None:
        """Nothing is held."""

    def __str__(self) -> str:
        rows = [("src", self.src), ("src port", self.src_port), ("dst", self.dst)]
        return table([*rows, ("dst port", self.dst_port), ("port space", self.port_space.name)])


def _look_up(
    node: str | bytes | None, service: str | bytes | None, numeric: bool
) -> tuple[Address | None, int]:
    if node is None and service is None:
        return None, 0
    host, port = _text(node), _text(service)
    flags = socket.AI_PASSIVE | (socket.AI_NUMERICHOST if numeric else 0)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, ValueError) as error:  # names with zeros or of odd letters among them
        raise PyverbsRDMAError(
            "Failed to get Address Info", errno.EINVAL, hint=f"{host}:{port}: {error}"
        ) from error
    address, number = found[0][4][:2]
    resolved = ipaddress.ip_address(str(address).partition("%")[0])
    return (None if node is None else resolved), int(number)


def _text(name: str | bytes | None) -> str | None:
    if name is None or isinstance(name, str):
        return name
    expect("name", name, bytes)
    return name.decode("utf-8", "replace")


class ConnParam:
    """`struct rdma_conn_param`: what a side requests of, or grants to, a connection."""

    def __init__(
        self,
        resources: int = 1,
        depth: int = 1,
        flow_control: int = 0,
        retry: int = 5,
        rnr_retry: int = 5,
        srq: int = 0,
        qp_num: int = 0,
    ) -> None:
        self.params = ConnParams(
            responder_resources=expect_unsigned("resources", resources, 8),
            initiator_depth=expect_unsigned("depth", depth, 8),
            flow_control=expect_unsigned("flow_control", flow_control, 8),
            retry_count=expect_unsigned("retry", retry, 8),
            rnr_retry_count=expect_unsigned("rnr_retry", rnr_retry, 8),
            srq=expect_unsigned("srq", srq, 8),
            qp_num=expect_unsigned("qp_num", qp_num, 32),
        )

    @property
    def qpn(self) -> int:
        """Number of a queue pair that the CMID did not make."""
        return self.params.qp_num

    @qpn.setter
    def qpn(self, val: int) -> None:
        self.params = dataclasses.replace(self.params, qp_num=expect_unsigned("qpn", val, 32))

    @property
    def private_data(self) -> bytes:
        """What the peer's user gets to see."""
        return self.params.private_data

    def set_private_data(self, data: bytes) -> None:
        """Private data for the peer's user: 56 bytes of a connect, 196 of an accept."""
        expect("data", data, bytes)
        self.params = dataclasses.replace(self.params, private_data=data)

    def __str__(self) -> str:
        params = self.params
        rows = [
            ("responder resources", params.responder_resources),
            ("initiator depth", params.initiator_depth),
            ("flow control", params.flow_control),
            ("retry count", params.retry_count),
            ("rnr retry count", params.rnr_retry_count),
            ("srq", params.srq),
            ("qp number", params.qp_num),
        ]
        return "Connection parameters\n" + table(rows)
