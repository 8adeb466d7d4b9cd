# SPDX-License-Identifier: GPL-2.0-or-later
"""Addresses: routes and address handles, as RoCEv2 has them."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING

from softroce_lab import _native
from softroce_lab.verbs.base import Closable, ask, expect, expect_unsigned, table
from softroce_lab.verbs.device import GID
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

if TYPE_CHECKING:
    from softroce_lab._native import AddressVector
    from softroce_lab.verbs.cq import WC

__all__ = ["AH", "GID", "GRH_BYTES", "AHAttr", "GlobalRoute"]

GRH_BYTES = 40
"""Head of every UD receive buffer (IBA 11.4.1.2)."""

_IPV4_AT = 20  # in the GRH area
_ECN_CAPABLE = 2  # traffic class of those who ask for none, RFC 3168


@dataclasses.dataclass
class GlobalRoute:
    """Where to, by GID.

    The hop limit that packets leave with is 64, whatever this field has: for RoCE the host knows
    the route, as Linux has it too. No traffic class means 2, that of ECN-capable packets.
    """

    dgid: GID
    flow_label: int = 0
    sgid_index: int = 0
    hop_limit: int = 1
    traffic_class: int = 0

    def __str__(self) -> str:
        return table([(field, value) for field, value in vars(self).items()])


@dataclasses.dataclass
class AHAttr:
    """What an address handle is made of; RoCE addresses are global ones."""

    dlid: int = 0
    sl: int = 0
    src_path_bits: int = 0
    static_rate: int = 0
    is_global: int = 0
    port_num: int = 1
    gr: GlobalRoute | None = None

    def __post_init__(self) -> None:
        if self.is_global and self.gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
        if self.gr is not None:
            expect("gr", self.gr, GlobalRoute)

    def __str__(self) -> str:
        rows = [(field, value) for field, value in vars(self).items() if field != "gr"]
        return table(rows, "  ") + (str(self.gr) if self.gr else "")


def address_vector(attr: AHAttr, next_hop_mac: int, failure: str) -> AddressVector:
    """What the RNIC gets; EINVAL, if it is no address of RoCE through port 1."""
    expect("ah_attr", attr, AHAttr)
    route = attr.gr
    if not attr.is_global or route is None or attr.port_num != 1:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="RoCE needs is_global=1, through port 1")
    expect("dgid", route.dgid, GID)
    expect_unsigned("hop_limit", route.hop_limit, 8)
    vector = _native.AddressVector()
    vector.destination = route.dgid.address
    vector.mac = next_hop_mac
    vector.flow_label = expect_unsigned("flow_label", route.flow_label, 32) & 0xFFFFF
    vector.sgid_index = expect_unsigned("sgid_index", route.sgid_index, 8)
    vector.traffic_class = expect_unsigned("traffic_class", route.traffic_class, 8) or _ECN_CAPABLE
    return vector


def ah_attr(vector: AddressVector) -> AHAttr:
    """What the RNIC got."""
    route = GlobalRoute(
        GID.of_address(vector.destination),
        vector.flow_label,
        vector.sgid_index,
        vector.hop_limit,
        vector.traffic_class,
    )
    return AHAttr(is_global=1, gr=route)


class AH(Closable):
    """An address handle: from `attr`, or the way back from `wc` with the GRH at address `grh`."""

    close_rank = 1

    def __init__(
        self,
        pd: PD,
        *,
        attr: AHAttr | None = None,
        wc: WC | None = None,
        grh: int | None = None,
        port_num: int = 1,
    ) -> None:
        failure = "Failed to create AH"
        expect("pd", pd, PD)
        pd.check_open(failure)
        if (wc is None) != (grh is None) or (attr is None) == (wc is None):
            raise PyverbsUserError("an AH is made of attr, or of wc and grh")
        if grh is not None:
            expect("port_num", port_num, int)
            back = AHAttr(is_global=1, port_num=port_num, gr=_way_back(pd, grh))
        self.vector = address_vector(attr or back, pd.ctx.next_hop_mac, failure)
        gids = ask(failure, pd.ctx.endpoint.gids)
        index = self.vector.sgid_index
        if index >= len(gids) or _is_ipv4(gids[index]) != _is_ipv4(self.vector.destination):
            hint = "the GID at sgid_index is of the destination's IP version"
            raise PyverbsRDMAError(failure, errno.EINVAL, hint=hint)
        super().__init__(pd)
        self.pd = pd

    def __str__(self) -> str:
        return "AH\n" + table([("dgid", GID.of_address(self.vector.destination))])


def _is_ipv4(address: int) -> bool:
    return GID.of_address(address).ipv4 is not None


def _way_back(pd: PD, grh: int) -> GlobalRoute:
    """To the source, from the GID it was sent to."""
    area = ask("Failed to create AH", _native.read_memory, expect_unsigned("grh", grh, 64), 40)
    source, destination = grh_gids(area)
    gids = [GID.of_address(gid) for gid in pd.ctx.endpoint.gids()]
    if destination not in gids:
        raise PyverbsRDMAError("Failed to create AH", errno.EINVAL, hint="there is no GRH of ours")
    return GlobalRoute(source, sgid_index=gids.index(destination))


def grh_gids(area: bytes) -> tuple[GID, GID]:
    """Source and destination of a datagram, by the GRH area of its receive buffer.

    The IP header takes the place of the GRH; IPv4's its second half (annex A17.4.5.2).
    """
    if area[0] >> 4 == 6:
        addresses = area[8:24], area[24:40]
    else:
        addresses = area[_IPV4_AT + 12 : _IPV4_AT + 16], area[_IPV4_AT + 16 : _IPV4_AT + 20]
    source, destination = (GID.of_address(int.from_bytes(each, "big")) for each in addresses)
    return source, destination
