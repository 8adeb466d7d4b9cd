# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's end of the transport `shift`: a ShiftQP to each peer, over two rails.

Messages are what `RcMessenger` sends, over the verbs. What a peer's backup needs to be known by is
part of the address that peers get: the key-value service of the hosts of a run.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.messenger import (
    Address,
    Completion,
    Memory,
    Messenger,
    RailQueuePairs,
    RcSettings,
    first_psn,
    immediate,
)
from softroce_lab.plan.plan import Plan
from softroce_lab.transports.api import NEVER_NS
from softroce_lab.transports.shift import Backup, LocalStore, Pump, Settings, ShiftQP
from softroce_lab.verbs import (
    CQ,
    GID,
    MR,
    PD,
    SGE,
    WC,
    AHAttr,
    CompChannel,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_SEND_WITH_IMM,
)
from softroce_lab.workloads.message import Message

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint, WorkCompletion

_CQE = 1 << 16
_MANY = 1 << 12
_OWN = 64  # requests that a backup's queue pair has room for besides


@dataclasses.dataclass(frozen=True)
class OtherRail:
    endpoint: Endpoint
    next_hop_mac: int
    settings: Settings = dataclasses.field(default_factory=Settings)
    statistics: str = ""  # where the first RNIC publishes its counters, if it does


class _Timed(WC):
    """With all that the engine knows of it; what no RNIC made has `posted_ns` 0."""

    @classmethod
    def of(cls, native: WorkCompletion) -> Self:
        wc = super().of(native)
        wc.retransmitted, wc.duplicates = native.retransmitted, native.duplicates
        wc.posted_ns, wc.first_ns = native.posted_ns, native.first_ns
        return wc


class ShiftMessenger(Messenger):
    """Over queue pairs with a backup, at the endpoint of one rail and that of another.

    On the real clock a thread drives the backup; else `step` does, at `next_time_ns` at the latest.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        other: OtherRail,
        *,
        memory: Memory | None = None,
        settings: RcSettings | None = None,
        next_hop_mac: int = 0,
        salt: int = 0,
    ) -> None:
        """`next_hop_mac`: of the gateway; `salt`: first PSNs follow from it, one a run."""
        self._settings, self._salt = settings or RcSettings(), salt
        self._context = Context(endpoint, next_hop_mac=next_hop_mac)
        self._context.statistics = other.statistics
        self._other = Context(other.endpoint, next_hop_mac=other.next_hop_mac)
        self._store = LocalStore()
        self.backup = Backup(self._context, self._other, self._store, other.settings)
        self._pd = PD(self._context)
        self._region = (0, 0)  # address and key
        if memory is not None:
            region = MR(self._pd, memory, int(IBV_ACCESS_LOCAL_WRITE))
            self._region = (region.buf, region.lkey)
            self._mr = region  # the memory stays as long as it is there
        channel, self._pump = None, None
        if hasattr(endpoint, "completion_fd"):  # it runs in its own thread, which wakes this one
            channel = CompChannel(self._context)
            self.fd = channel.fd
            self._pump = Pump(self.backup)
        self._channel = channel
        self._cq = CQ(self._context, _CQE, channel=channel)
        self._cq.completion = _Timed
        if channel is not None:
            self._cq.req_notify()
        if self._pump is not None:
            self._pump.__enter__()
        self._qps: dict[int, ShiftQP] = {}
        self._posted_ns: dict[int, int] = {}  # the first time: what is posted again waited for it

    # ---------------------------------------------------------------- setting up

    def address(self, peer: int) -> Address:
        qp = self._qp(peer)
        own = self._store.scan(f"qp/{self.backup.gid}/{qp.qp_num}")
        regions = self._store.scan(f"region/{self.backup.gid}/")
        psn = first_psn(self._salt, qp.qp_num)
        return Address(
            self._context.endpoint.address, qp.qp_num, psn=psn, backup={**own, **regions}
        )

    def _qp(self, peer: int) -> ShiftQP:
        if peer not in self._qps:
            most = int(self._context.endpoint.limits()["max_qp_wr"]) - _OWN
            cap = QPCap(most, most, 1, 1, 0)
            init = QPInitAttr(IBV_QPT_RC, None, self._cq, self._cq, None, cap, 0)
            self._qps[peer] = ShiftQP(self._pd, init, backup=self.backup)
        return self._qps[peer]

    def connect(self, peer: int, address: Address) -> None:
        for key, value in address.backup.items():
            self._store.put(key, value)
        qp, settings = self._qp(peer), self._settings
        qp.to_rts(
            QPAttr(
                path_mtu=self._context.query_port(1).active_mtu,
                ah_attr=AHAttr(is_global=1, gr=GlobalRoute(GID.of_address(address.ip))),
                dest_qp_num=address.qp,
                sq_psn=first_psn(self._salt, qp.qp_num),
                rq_psn=address.psn,
                timeout=settings.timeout,
                retry_cnt=settings.retry_count,
                rnr_retry=settings.rnr_retry,
                min_rnr_timer=settings.min_rnr_timer,
            )
        )

    @property
    def queue_pairs(self) -> list[RailQueuePairs]:
        """Of the default rail, and of the backup's for data and for control messages.

        They begin anew, and what is posted again has other PSNs: the first ones say nothing.
        """
        of_rails = ((0, "qp_num"), (1, "twin_qp_num"), (1, "control_qp_num"))
        return [
            RailQueuePairs(
                rail, {peer: (getattr(qp, name), 0) for peer, qp in self._qps.items()}, parts=0
            )
            for rail, name in of_rails
        ]

    # ---------------------------------------------------------------- posts

    def post_send(self, number: int, message: Message, offset: int) -> None:
        self._posted_ns[number] = self.backup.now_ns
        data = socket.htonl(immediate(message.key))
        place = self._place(offset, message.length_bytes)
        self._qps[message.destination].post_send(
            SendWR(number, IBV_WR_SEND_WITH_IMM, 1, data, place, IBV_SEND_SIGNALED)
        )

    def post_receive(self, number: int, message: Message, offset: int) -> None:
        self._posted_ns[number] = self.backup.now_ns
        place = self._place(offset, message.length_bytes)
        self._qps[message.source].post_recv(RecvWR(number, 1, place))

    def _place(self, offset: int, length: int) -> list[SGE]:
        address, key = self._region
        return [SGE(address + offset, length, key)]

    def disconnect(self, peer: int) -> None:
        error = QPAttr(qp_state=IBV_QPS_ERR)
        self._qps[peer].modify(error, IBV_QP_STATE)

    # ---------------------------------------------------------------- what happens

    @property
    def next_time_ns(self) -> int:
        due_ns = None if self._pump is not None else self.backup.next_time_ns()
        return NEVER_NS if due_ns is None else due_ns

    def step(self) -> int:
        if self._pump is None:
            self.backup.advance()
        return 0

    def completions(self) -> Sequence[Completion]:
        if self._pump is not None and self._pump.error is not None:
            raise RunError(f"the thread that drives the backup ended: {self._pump.error!r}")
        if self._channel is not None:
            while self._channel.native.take() is not None:
                pass
            self._cq.req_notify()  # before polling: what comes from now on wakes us again
        found, more = [], _MANY
        while more == _MANY:
            more, taken = self._cq.poll(_MANY)
            found += taken
        return [self._ended(each) for each in found]

    def _ended(self, wc: WC) -> Completion:
        posted_ns = self._posted_ns.pop(wc.wr_id)
        return Completion(
            wc.wr_id,
            int(wc.status),
            int(wc.wc_flags),
            socket.ntohl(wc.imm_data),
            wc.byte_len,
            wc.packets,
            wc.retransmitted,
            wc.duplicates,
            posted_ns,
            wc.first_ns or posted_ns,
            wc.completed_ns or self.backup.now_ns,
        )

    def transitions(self) -> list[dict[str, Any]]:
        return [each.row() for each in self.backup.events]

    def pause(self) -> None:
        if self._pump is not None:
            self._pump.__exit__()
            self._pump = None


def transitions_of(
    plan: Plan, rows: Mapping[str, Iterable[dict[str, Any]]], begun_ns: int = 0
) -> list[dict[str, Any]]:
    """Rows of shift.parquet, since the run began, from those of hosts' messengers by name."""
    found = [(host, row) for host, transitions in rows.items() for row in transitions]
    if not found:  # most runs have none, and the GIDs of all ports would take a while
        return []
    names = {
        str(GID.of_address(int(ipaddress.ip_address(address)))): node.name
        for node in plan.plain_hosts
        for port in node.ports
        for address in (port.address, port.address6)
        if address is not None
    }
    return [
        {
            "host": host,
            **row,
            "time_ns": row["time_ns"] - begun_ns,
            "peer": names.get(row["peer"], row["peer"]),
        }
        for host, row in found
    ]
