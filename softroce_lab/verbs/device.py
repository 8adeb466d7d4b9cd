# SPDX-License-Identifier: GPL-2.0-or-later
"""The device: an RNIC that somebody drives, as verbs see it; its port, and its GIDs."""

from __future__ import annotations

import collections
import dataclasses
import errno
import ipaddress
import itertools
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import softroce_lab
from softroce_lab import _native
from softroce_lab.telemetry.event_log import VARIABLE, EventLog
from softroce_lab.verbs import enums
from softroce_lab.verbs.base import Closable, ask, deadline, expect, expect_unsigned, table
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

WAIT_S = 60.0
"""How long a wait for an event takes by default."""

DEFAULT_PKEY = 0xFFFF
"""Full membership of the default partition (IBA 10.9.2)."""

_PORT = 1
_NAP_S = 0.002  # between polls for asynchronous events

_named: weakref.WeakValueDictionary[str, Context] = weakref.WeakValueDictionary()
_pd_numbers = itertools.count(1)  # 0 is for those who use an endpoint without verbs


class GID:
    """A global identifier: an IPv6 address, for RoCEv2 over IPv4 one of ::ffff:0:0/96."""

    def __init__(self, val: str | None = None) -> None:
        try:
            self._address = ipaddress.IPv6Address("::" if val is None else val)
        except ValueError as error:
            raise PyverbsUserError(f"Invalid GID value ({val}): {error}") from error

    @classmethod
    def of_address(cls, address: int) -> Self:
        """The GID of a RoCEv2 port with this IP address (annex A17.4.5).

        Numbers mean what they mean to `ipaddress.ip_address`: below 2**32 an IPv4 address.
        """
        ip = ipaddress.ip_address(address)
        return cls(f"::ffff:{ip}" if ip.version == 4 else str(ip))

    @property
    def gid(self) -> str:
        """Eight words of four digits."""
        return str(self)

    @property
    def ipv4(self) -> int | None:
        """The IPv4 address that is mapped, if one is."""
        mapped = self._address.ipv4_mapped
        return None if mapped is None else int(mapped)

    @property
    def address(self) -> int:
        """The IP address, as `of_address` takes it."""
        return int(self._address) if self.ipv4 is None else self.ipv4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GID) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __str__(self) -> str:
        return self._address.exploded


@dataclasses.dataclass(frozen=True)
class GIDEntry:
    """A GID in the table of its port."""

    gid: GID
    gid_index: int
    port_num: int
    gid_type: enums.ibv_gid_type = enums.IBV_GID_TYPE_ROCE_V2
    ndev_ifindex: int = 0

    def __str__(self) -> str:
        return table(vars(self).items())


MAX_CQE = 1 << 22
"""Most completions that a completion queue can be asked to hold."""

MAX_RD_ATOMIC = 128
"""Most READs and atomics outstanding on a queue pair, either way."""

_MOST = 2**31 - 1  # bounded by memory alone


@dataclasses.dataclass(frozen=True)
class DeviceAttr:
    """`struct ibv_device_attr`, as far as the RNIC has it."""

    fw_version: str = softroce_lab.__version__
    node_guid: int = 0
    sys_image_guid: int = 0
    max_mr_size: int = (1 << 64) - 1
    page_size_cap: int = 0xFFFFF000
    vendor_id: int = 0
    vendor_part_id: int = 0
    hw_ver: int = 0
    max_qp: int = 0
    max_qp_wr: int = 0
    device_cap_flags: int = 0
    max_sge: int = 0
    max_sge_rd: int = 0
    max_cq: int = _MOST
    max_cqe: int = MAX_CQE
    max_mr: int = _MOST
    max_pd: int = _MOST
    max_qp_rd_atom: int = MAX_RD_ATOMIC
    max_res_rd_atom: int = 0
    max_qp_init_rd_atom: int = MAX_RD_ATOMIC
    atomic_caps: enums.ibv_atomic_cap = enums.IBV_ATOMIC_HCA
    max_ah: int = _MOST
    max_srq: int = 0
    max_srq_wr: int = 0
    max_srq_sge: int = 0
    max_pkeys: int = 1
    local_ca_ack_delay: int = 15  # 134 ms, as Linux's rxe reports
    phys_port_cnt: int = 1

    def __str__(self) -> str:
        return table(vars(self).items())


@dataclasses.dataclass(frozen=True)
class PortAttr:
    """`struct ibv_port_attr`."""

    state: enums.ibv_port_state = enums.IBV_PORT_ACTIVE
    max_mtu: enums.ibv_mtu = enums.IBV_MTU_1024
    active_mtu: enums.ibv_mtu = enums.IBV_MTU_1024
    gid_tbl_len: int = 0
    port_cap_flags: int = 1 << 16 | 1 << 26  # IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS
    max_msg_sz: int = 1 << 31  # IBA 9.7.1
    bad_pkey_cntr: int = 0
    qkey_viol_cntr: int = 0
    pkey_tbl_len: int = 1
    lid: int = 0
    sm_lid: int = 0
    lmc: int = 0
    max_vl_num: int = 1
    sm_sl: int = 0
    subnet_timeout: int = 0
    init_type_reply: int = 0
    active_width: int = 1  # 1X
    active_speed: int = 1  # 2.5 Gb/s: nothing is known of the wire; rxe reports it, too
    phys_state: int = 5  # link up
    link_layer: enums.ibv_link_layer = enums.IBV_LINK_LAYER_ETHERNET
    flags: int = 1  # IBV_QPF_GRH_REQUIRED
    port_cap_flags2: int = 0

    def __str__(self) -> str:
        return table(vars(self).items())


def _device_attr(endpoint: Endpoint) -> DeviceAttr:
    limits: dict[str, int] = endpoint.limits()
    guid = int(endpoint.address) & (1 << 64) - 1
    names = ("max_qp", "max_qp_wr", "max_sge", "max_srq", "max_srq_wr")
    same: dict[str, Any] = {name: limits[name] for name in names}
    return DeviceAttr(
        node_guid=guid,
        sys_image_guid=guid,
        max_sge_rd=limits["max_sge"],
        max_srq_sge=limits["max_sge"],
        max_res_rd_atom=MAX_RD_ATOMIC * limits["max_qp"],
        **same,
    )


def _port_attr(endpoint: Endpoint) -> PortAttr:
    mtu = enums.ibv_mtu(int(endpoint.path_mtu).bit_length() - 8)  # IBV_MTU_256 is 1
    counters: dict[str, int] = endpoint.counters()
    return PortAttr(
        max_mtu=mtu,
        active_mtu=mtu,
        gid_tbl_len=len(endpoint.gids()),
        bad_pkey_cntr=counters["rx_wrong_pkey"] & 0xFFFF,
        qkey_viol_cntr=counters["rx_wrong_qkey"] & 0xFFFF,
    )


class EventfulQp(Protocol):
    """What a device knows of a QP, whose events it hands out."""

    closed: bool

    @property
    def qp_num(self) -> int:
        """Its number."""

    def overrun_cq(self) -> Closable | None:
        """Which of its completion queues is in error."""


class EventfulSrq(Protocol):
    """What a device knows of an SRQ, whose events it hands out."""

    closed: bool

    @property
    def number(self) -> int:
        """Its number."""


class AsyncEvent:
    """What happened while nobody asked, and to which QP, CQ or SRQ."""

    def __init__(
        self, event_type: enums.ibv_event_type, element: EventfulQp | EventfulSrq | Closable
    ) -> None:
        self.event_type = event_type
        self.element = element

    def ack(self) -> None:
        """Nothing waits for it: objects can be closed while events of theirs are not seen."""

    def __str__(self) -> str:
        return table([("Event type", self.event_type.name), ("Element", type(self.element))])


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that is open in this process, as `get_device_list` has it."""

    name: bytes
    node_type: int = 1  # IBV_NODE_CA
    transport_type: int = 0  # IBV_TRANSPORT_IB
    guid: int = 0

    def __str__(self) -> str:
        return f"Device {self.name.decode()}, node type CA, transport type IB"


def get_device_list() -> list[Device]:
    """The devices that `Context(name=...)` finds: those that somebody of this process opened."""
    return [
        Device(name.encode(), guid=context.query_device().node_guid)
        for name, context in sorted(_named.items())
    ]


class Context(Closable):
    """Verbs of an endpoint: a `Host` on the real clock, a side of a `Pair`, a `FrameEndpoint`.

    The endpoint stays its owner's: closing the context closes what was made of it, and leaves the
    endpoint running. The fabric is routed, so that all that leaves goes to one `next_hop_mac`.
    With a `name` and no endpoint it is that of the open context of this name.
    """

    num_comp_vectors = 1

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        *,
        name: str | None = None,
        next_hop_mac: int = 0,
        event_log: Path | str | None = None,
    ) -> None:
        if name is not None:
            expect("name", name, str)
        if endpoint is None:
            endpoint, next_hop_mac = _found(name)
        elif event_log is None:
            event_log = os.environ.get(VARIABLE)  # once an endpoint
        expect("endpoint", endpoint, _native.Endpoint)
        self.next_hop_mac = expect_unsigned("next_hop_mac", next_hop_mac, 48)
        super().__init__()
        self.endpoint = endpoint
        self.name = name
        self.statistics = ""  # the file in which the RNIC publishes its counters, if it does
        self.when_closed: list[Callable[[], object]] = []
        named = {} if name is None else {"host": name}
        self._log = EventLog(endpoint, event_log, **named) if event_log else None
        if name is not None:
            _named.setdefault(name, self)
        self._messages_user: Closable | None = None
        self._qps: weakref.WeakValueDictionary[int, EventfulQp] = weakref.WeakValueDictionary()
        self._srqs: weakref.WeakValueDictionary[int, EventfulSrq] = weakref.WeakValueDictionary()
        self._events: collections.deque[AsyncEvent] = collections.deque()

    def _release(self) -> None:
        if self.name is not None and _named.get(self.name) is self:
            del _named[self.name]
        if self._log is not None:
            self._log.close()
        for each in self.when_closed:
            each()

    @property
    def completion_fd(self) -> int:
        """Readable after completions were pushed (a `Host` only)."""
        return int(self.endpoint.completion_fd)

    # ---------------------------------------------------------------- queries

    def query_device(self) -> DeviceAttr:
        """What the RNIC offers at most."""
        self.check_open("Failed to query device")
        return _device_attr(self.endpoint)

    def query_port(self, port_num: int) -> PortAttr:
        """State and sizes of the port."""
        failure = f"Failed to query port {port_num}"
        self._check_port(failure, port_num)
        return ask(failure, _port_attr, self.endpoint)

    def query_gid(self, port_num: int, index: int) -> GID:
        """A GID of the port: an IP address, if IPv4 a mapped one (annex A17.4.5)."""
        failure = f"Failed to query gid {index} of port {port_num}"
        self._check_port(failure, port_num)
        expect("index", index, int)
        gids = ask(failure, self.endpoint.gids)
        if not 0 <= index < len(gids):
            raise PyverbsRDMAError(failure, errno.EINVAL, hint=f"the port has {len(gids)} GIDs")
        return GID.of_address(gids[index])

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        """A GID with what belongs to it."""
        expect("flags", flags, int)
        return GIDEntry(self.query_gid(port_num, gid_index), gid_index, port_num)

    def query_gid_table(self, max_entries: int = 128, flags: int = 0) -> list[GIDEntry]:
        """All GIDs, at most so many."""
        failure = "Failed to query gid table"
        self.check_open(failure)
        expect_unsigned("max_entries", max_entries, 64)
        expect("flags", flags, int)
        gids = ask(failure, self.endpoint.gids)[:max_entries]
        return [GIDEntry(GID.of_address(gid), index, _PORT) for index, gid in enumerate(gids)]

    def query_pkey(self, port_num: int, index: int) -> int:
        """The port's one P_Key."""
        failure = f"Failed to query pkey {index} of port {port_num}"
        self._check_port(failure, port_num)
        if index != 0:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="the port has P_Key 0 only")
        return DEFAULT_PKEY

    def add_gid(self, gid: GID) -> int:
        """Give the port another address; returns its index in the table. The lab's own verb."""
        failure = "Failed to add gid"
        self.check_open(failure)
        expect("gid", gid, GID)
        return int(ask(failure, self.endpoint.add_gid, gid.address))

    def _check_port(self, failure: str, port_num: int) -> None:
        self.check_open(failure)
        expect("port_num", port_num, int)
        if port_num != _PORT:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="there is port 1")

    # ---------------------------------------------------------------- asynchronous events

    def get_async_event(self, timeout_s: float = WAIT_S) -> AsyncEvent:
        """The oldest event of an object of this context; ETIMEDOUT, if none comes in time.

        Of several contexts of one endpoint, one is to ask for events.
        """
        failure = "Failed to get async event"
        until = deadline(timeout_s)
        while True:
            self.check_open(failure)
            for kind, number in ask(failure, self.endpoint.take_async_events):
                self._take_event(enums.ibv_event_type(kind), number)
            if self._events:
                return self._events.popleft()
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise PyverbsRDMAError(failure, errno.ETIMEDOUT)
            time.sleep(min(_NAP_S, left_s))

    def _take_event(self, kind: enums.ibv_event_type, number: int) -> None:
        """Events of what is closed or not ours are nobody's."""
        element: EventfulQp | EventfulSrq | Closable | None
        if kind == enums.IBV_EVENT_SRQ_LIMIT_REACHED:
            element = self._srqs.get(number)
        else:
            element = qp = self._qps.get(number)
            if qp is not None and kind == enums.IBV_EVENT_CQ_ERR:
                element = qp.overrun_cq()
        if element is not None and not element.closed:
            self._events.append(AsyncEvent(kind, element))

    def know_qp(self, qp: EventfulQp) -> None:
        """Tell events of this queue pair."""
        self._qps[qp.qp_num] = qp

    def know_srq(self, srq: EventfulSrq) -> None:
        """Tell events of this shared receive queue."""
        self._srqs[srq.number] = srq

    # ---------------------------------------------------------------- the lab's own

    def new_pd_number(self) -> int:
        """What distinguishes a protection domain from all others."""
        return next(_pd_numbers)

    def take_messages(self, user: Closable | None) -> None:
        """Reserve the RNIC's message engine for `user`; None gives it back. EBUSY: it is taken."""
        if user is not None and self._messages_user is not None:
            raise PyverbsRDMAError("Failed to create a message endpoint", errno.EBUSY)
        self._messages_user = user

    def __str__(self) -> str:
        return "Context\n" + table([("GID", self.query_gid(_PORT, 0)), ("ports", _PORT)])


def _found(name: str | None) -> tuple[Endpoint, int]:
    """The endpoint of the open context of this name, and its next hop."""
    if name is None:
        raise PyverbsUserError("Device name must be provided")
    if (known := _named.get(name)) is None:
        names = ", ".join(sorted(_named)) or "none"
        raise PyverbsRDMAError(f"Failed to find device {name}", hint=f"open here: {names}")
    return known.endpoint, known.next_hop_mac
