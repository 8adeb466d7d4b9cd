# SPDX-License-Identifier: GPL-2.0-or-later
"""The yardstick: what a user has without this lab. Kernel routers, and nftables to lose packets.

The namespaces have no names: they, their links and rules live as long as the descriptors here,
and die with this process however it ends.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nftsocket import Cmp, Regs
from pyroute2.nftables.expressions import verdict
from pyroute2.nftables.main import NFTables

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric.net import links, netns
from softroce_lab.plan.plan import Node, Plan, Port

_LOOPBACK = 1  # its index, everywhere
_NUD_PERMANENT = 0x80
_RTNH_F_ONLINK = 4
_NFPROTO_IPV4 = 2
_NF_DROP, _NF_ACCEPT = 0, 1
_NFT_NG_RANDOM = 1  # enum nft_ng_types
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_SOCKET_BUFFER_BYTES = 8 << 20  # as much as an AF_XDP port of ours holds


class KernelRouters:
    """The nodes, links and addresses of a plan, forwarded by the kernel; a context manager.

    Offloads are as the kernel sets them: nothing is redirected behind its back here.
    """

    def __init__(self, plan: Plan) -> None:
        """Make all of it. EnvironmentLackError, NetlinkError, OSError."""
        self._plan = plan
        self._namespaces: dict[str, int] = {}
        try:
            for node in plan.nodes:
                self._namespaces[node.name] = netns.create()
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let all of it vanish."""
        while self._namespaces:
            os.close(self._namespaces.popitem()[1])

    def _connect(self) -> None:
        for node in self._plan.nodes:
            with netns.entered(self._namespaces[node.name]):
                links.silence(node)
        links.create(self._plan.links, self._plan.mtu, self._namespaces)
        gateways = links.gateways(self._plan)
        for node in self._plan.nodes:
            with netns.entered(self._namespaces[node.name]), IPRoute() as netlink:
                self._configure(netlink, node, gateways)

    def _configure(self, netlink: Any, node: Node, gateways: dict[int, str]) -> None:
        """Every next hop is the link-local gateway on the right port, as it is for our hosts."""
        netlink.link("set", index=_LOOPBACK, state="up")  # no table of routes is there without
        for port in node.ports:
            netlink.link("set", index=port.ifindex, state="up")
            if port.address is not None:
                netlink.addr("add", index=port.ifindex, address=port.address, prefixlen=32)
            netlink.neigh(
                "add",
                ifindex=port.ifindex,
                dst=links.GATEWAY,
                lladdr=gateways[port.ifindex],
                state=_NUD_PERMANENT,
            )
        if node.kind == "host":
            _route(netlink, "default", node.ports[0])
            return
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for route in self._plan.routes:
            if route.node == node.name:
                _route(netlink, route.destination, route.ports[0])

    def lose(self, router: str, one_in: int) -> None:
        """Drop one forwarded packet in `one_in` at random: `numgen random mod N 0 drop`.

        EnvironmentLackError if the kernel has no nf_tables.
        """
        try:
            with (
                netns.entered(self._namespaces[router]),
                NFTables(nfgen_family=_NFPROTO_IPV4) as nft,
            ):
                nft.table("add", name="lab")
                nft.chain("add", table="lab", name="forward", hook="forward", policy=_NF_ACCEPT)
                nft.rule("add", table="lab", chain="forward", expressions=_drop_one_in(one_in))
        except (NetlinkError, OSError) as error:
            code = getattr(error, "code", None) or getattr(error, "errno", None)
            if code not in (errno.ENOENT, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT):
                raise
            raise EnvironmentLackError(
                "nf_tables with numgen in this kernel",
                hint="load the modules nf_tables and nft_numgen",
            ) from error

    def udp_pair(self, source: Node, destination: Node) -> tuple[socket.socket, socket.socket]:
        """A socket in the one host, connected to one in the other."""
        receiver = self._udp(destination)
        sender = self._udp(source)
        sender.connect(receiver.getsockname())
        return sender, receiver

    def _udp(self, node: Node) -> socket.socket:
        if node.address is None:
            raise LabError(f"{node.name} has no address")
        with netns.entered(self._namespaces[node.name]):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            made.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        made.bind((node.address, 0))
        return made


def _route(netlink: Any, destination: str, port: Port) -> None:
    netlink.route(
        "add", dst=destination, gateway=links.GATEWAY, oif=port.ifindex, flags=_RTNH_F_ONLINK
    )


def _drop_one_in(count: int) -> list[list[dict[str, Any]]]:
    number = {
        "NFTA_NG_DREG": Regs.NFT_REG_1,
        "NFTA_NG_MODULUS": count,
        "NFTA_NG_TYPE": _NFT_NG_RANDOM,
    }
    zero = {
        "NFTA_CMP_SREG": Regs.NFT_REG_1,
        "NFTA_CMP_OP": Cmp.NFT_CMP_EQ,
        "NFTA_CMP_DATA": {"attrs": [("NFTA_DATA_VALUE", bytes(4))]},
    }
    return [[_expression("numgen", number)], [_expression("cmp", zero)], verdict(_NF_DROP)]


def _expression(name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    data = {"attrs": list(attributes.items())}
    return {"attrs": [("NFTA_EXPR_NAME", name), ("NFTA_EXPR_DATA", data)]}
