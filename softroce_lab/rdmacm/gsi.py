# SPDX-License-Identifier: GPL-2.0-or-later
"""The port's general services interface: queue pair 1, through which MADs come and go."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from softroce_lab.rdmacm.messages import GSI_QKEY, GSI_QPN, MAD_BYTES
from softroce_lab.rdmacm.service import gid_of
from softroce_lab.rnic.addr import AH, GID, GRH_BYTES, AHAttr, GlobalRoute
from softroce_lab.rnic.cq import CQ
from softroce_lab.rnic.device import Context
from softroce_lab.rnic.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_GSI
from softroce_lab.rnic.errors import PyverbsRDMAError
from softroce_lab.rnic.mr import MR
from softroce_lab.rnic.pd import PD
from softroce_lab.rnic.qp import QP, QPAttr, QPCap, QPInitAttr
from softroce_lab.rnic.wr import SGE, RecvWR, SendWR

RECEIVES = 256
SENDS = 64
MOST_ROUTES = 1024
"""Address handles kept; the one not used for the longest goes first."""

_SLOT_BYTES = GRH_BYTES + MAD_BYTES
_SENDS_AT = RECEIVES * _SLOT_BYTES
_MEMORY_BYTES = _SENDS_AT + SENDS * MAD_BYTES
_HOP_LIMIT = 64


class MadPort(Protocol):
    """What carries MADs between QP 1 of this port and QP 1 of others, unreliably."""

    def send(self, gid: IPv6Address, mad: bytes) -> None:
        """Send a MAD, or lose it."""

    def poll(self) -> list[tuple[IPv6Address, bytes]]:
        """(source, octets) of what has come; does not wait."""

    def close(self) -> None:
        """Send and receive no more."""


class GsiPort:
    """MADs through a queue pair of type IBV_QPT_GSI."""

    def __init__(self, context: Context) -> None:
        entries = context.query_gid_table()
        self._gids = tuple(IPv6Address(entry.gid.gid) for entry in entries)
        with contextlib.ExitStack() as made:
            self._pd = made.enter_context(PD(context))
            self._mr = made.enter_context(MR(self._pd, _MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE))
            self._rcq = made.enter_context(CQ(context, RECEIVES))
            self._scq = made.enter_context(CQ(context, SENDS))
            cap = QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES)
            init = QPInitAttr(qp_type=IBV_QPT_GSI, scq=self._scq, rcq=self._rcq, cap=cap)
            attr = QPAttr()
            attr.qkey = GSI_QKEY
            self._qp = made.enter_context(QP(self._pd, init, attr))
            self._owned = made.pop_all()
        self._routes: collections.OrderedDict[IPv6Address, AH] = collections.OrderedDict()
        self._free = list(range(SENDS))
        self._idle: list[int] = []  # slots to receive into, which the RNIC does not have
        for slot in range(RECEIVES):
            self._post(slot)

    def send(self, gid: IPv6Address, mad: bytes) -> None:
        """Send a MAD; it is lost where all slots are under way, or there is no route."""
        self._reclaim()
        if not self._free:
            return
        try:
            route = self._route(gid)
        except PyverbsRDMAError:  # of the other IP version
            return
        slot = self._free.pop()
        offset = _SENDS_AT + slot * MAD_BYTES
        self._mr.write(mad, MAD_BYTES, offset)
        element = SGE(self._mr.buf + offset, MAD_BYTES, self._mr.lkey)
        request = SendWR(wr_id=slot, num_sge=1, sg=[element])
        request.set_wr_ud(route, GSI_QPN, GSI_QKEY)
        self._qp.post_send(request)

    def poll(self) -> list[tuple[IPv6Address, bytes]]:
        """(source, octets) of what has come; does not wait."""
        _, completions = self._rcq.poll(RECEIVES)
        received = []
        for wc in completions:
            area = self._mr.read(_SLOT_BYTES, wc.wr_id * _SLOT_BYTES)
            self._idle.append(wc.wr_id)
            received.append((source_gid(area), area[GRH_BYTES : wc.byte_len]))
        while self._idle:  # one that the RNIC is late with is posted all the same
            self._post(self._idle.pop())
        return received

    def close(self) -> None:
        """Give back queue pair 1."""
        for route in self._routes.values():
            route.close()
        self._routes.clear()
        self._owned.close()

    def _post(self, slot: int) -> None:
        element = SGE(self._mr.buf + slot * _SLOT_BYTES, _SLOT_BYTES, self._mr.lkey)
        self._qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[element]))

    def _reclaim(self) -> None:
        _, completions = self._scq.poll(SENDS)
        self._free += [wc.wr_id for wc in completions]

    def _route(self, gid: IPv6Address) -> AH:
        route = self._routes.get(gid)
        if route is None:
            index = source_index(self._gids, gid)
            way = GlobalRoute(dgid=GID(str(gid)), sgid_index=index, hop_limit=_HOP_LIMIT)
            route = AH(self._pd, attr=AHAttr(is_global=1, gr=way))
            self._routes[gid] = route
            if len(self._routes) > MOST_ROUTES:
                self._routes.popitem(last=False)[1].close()
        self._routes.move_to_end(gid)
        return route


def source_gid(area: bytes) -> IPv6Address:
    """Who sent a datagram, by its GRH area; an IPv4 header is its second half (A17.4.5.2)."""
    if area[0] >> 4 == 6:
        return IPv6Address(area[8:24])
    return gid_of(IPv4Address(area[32:36]))


def source_index(gids: Sequence[IPv6Address], gid: IPv6Address) -> int:
    """Index of the first of our GIDs that is of the other's IP version; 0 if none is."""
    mapped = gid.ipv4_mapped is None
    same = [index for index, own in enumerate(gids) if (own.ipv4_mapped is None) == mapped]
    return same[0] if same else 0
