# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's end of a transport on one rail: messages posted, completions; on either clock.

A messenger is made of an endpoint, whoever drives that: the engine's thread over AF_XDP, a
simulated fabric, or a pair on an imagined cable. Peers are called by their host's index, posts by
a number, which their completion has as `wr_id`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.transports.api import NEVER_NS, Key
from softroce_lab.transports.defaults import rto_high_ns
from softroce_lab.transports.knobs import Knobs, rc_timeout_code
from softroce_lab.transports.runner import PolicyRunner
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_SEND_WITH_IMM,
)
from softroce_lab.verbs.qp import transition_mask
from softroce_lab.workloads.message import Message

if TYPE_CHECKING:
    from softroce_lab._native import CompletionQueue, Endpoint

Memory: TypeAlias = npt.NDArray[np.uint8]

NO_FD = -1
_MANY = 1 << 12  # completions taken at once
_TO_RTS = [
    transition_mask(int(IBV_QPT_RC), state) for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS)
]


class Completion(NamedTuple):
    """A post that is over, as the engine reports it, with times of the engine."""

    wr_id: int  # the number of the post
    status: int  # an ibv_wc_status
    flags: int
    immediate: int
    byte_len: int
    packets: int  # that carry the message; 0: it was never cut into packets
    retransmitted: int  # packets sent again; 0 of a receive
    duplicates: int  # packets that were there already; 0 of a send
    posted_ns: int  # of a send
    first_ns: int  # when the first packet was sent, or had arrived; 0: none was
    completed_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """The address of a messenger, for its peers: what JSON can carry."""

    ip: int  # IPv4 or IPv6, as `ipaddress.ip_address` takes numbers
    qp: int
    recovery_qp: int = 0  # of striped messages
    qkey: int = 0
    psn: int = 0  # of RC, the first that is sent
    backup: dict[str, Any] = dataclasses.field(default_factory=dict)  # of `shift`: keys and values


class RailQueuePairs(NamedTuple):
    """Queue pairs of RC of a host on one of its rails, one a peer.

    `of_peer`: their numbers, and the PSNs that they begin with. A queue pair sends messages in the
    order of posts: those whose numbers, added up, leave `part` when divided by `parts`. `parts` 0:
    its PSNs do not tell messages.
    """

    rail: int  # of those that the host uses, the first is 0
    of_peer: dict[int, tuple[int, int]]
    part: int = 0
    parts: int = 1


class Messenger(Protocol):
    """A host's end of a transport on one rail."""

    fd = NO_FD  # readable while completions may wait; NO_FD on a clock moved by hand
    next_time_ns = NEVER_NS  # when `step` has something to do although nothing happened
    queue_pairs: Sequence[RailQueuePairs] = ()  # of RC, which both ends list alike

    def address(self, peer: int) -> Address:
        """Where this peer reaches us."""

    def connect(self, peer: int, address: Address) -> None:
        """Make a peer known, by the address that it has for us."""

    def post_send(self, number: int, message: Message, offset: int) -> None:
        """Send bytes of the memory. To one peer, in the order in which it posts the receives."""

    def post_receive(self, number: int, message: Message, offset: int) -> None:
        """Receive a message into the memory."""

    def disconnect(self, peer: int) -> None:
        """A post with the peer failed at one end: no post with it stays open at this one.

        Programs tell each other, over a connection of their own beside the fabric, as with CM.
        """

    def completions(self) -> Sequence[Completion]:
        """All completed posts that were not reported yet."""

    def step(self) -> int:
        """Let recovery handle its events. Returns how many there were."""
        return 0

    def summary(self) -> dict[str, Any]:
        """The figures of a transport's own, beside the engine's counters."""
        return {}

    def pause(self) -> None:
        """End what drives it, if that is a thread of its own: nothing moves any more."""

    def transitions(self) -> list[dict[str, Any]]:
        """Of queue pairs with a backup: rows of `telemetry.transitions`, without the host's name.

        Peers are called by the GID of their rail.
        """
        return []


def _registered(endpoint: Endpoint, memory: Memory | None) -> tuple[int, int]:
    """The address and the key of memory that messages come from and go to; 0 where there is none.

    A messenger keeps it: it is the engine's until that ends.
    """
    if memory is None:
        return 0, 0
    address = memory.ctypes.data
    access = int(IBV_ACCESS_LOCAL_WRITE)
    return address, endpoint.register_memory(address, memory.nbytes, access)


class StripedMessenger(Messenger):
    """Over striped messages: datagrams, and recovery by native code or by a user's policy."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        memory: Memory | None = None,
        runner: PolicyRunner | None = None,
        next_hop_mac: int = 0,
        qkey: int = 0,
    ) -> None:
        """`next_hop_mac`: of the gateway; `qkey`: the same at all hosts of a run."""
        self._endpoint = endpoint
        self._runner = runner  # of a user's policy
        self._memory = memory
        _, self._memory_key = _registered(endpoint, memory)
        self._mac = next_hop_mac
        self._qkey = qkey
        self._peers: dict[int, int] = {}  # host's index -> engine's
        self.fd = getattr(endpoint, "completion_fd", NO_FD)
        endpoint.set_qkey(qkey)

    def address(self, peer: int) -> Address:
        endpoint = self._endpoint
        return Address(endpoint.address, endpoint.data_qp, endpoint.recovery_qp, self._qkey)

    def connect(self, peer: int, address: Address) -> None:
        self._peers[peer] = self._endpoint.connect(
            ip=address.ip,
            mac=self._mac,
            data_qp=address.qp,
            recovery_qp=address.recovery_qp,
            qkey=address.qkey,
        )

    def post_send(self, number: int, message: Message, offset: int) -> None:
        self._endpoint.post_send(
            self._peers[message.destination],
            message.key,
            self._memory_key,
            offset,
            message.length_bytes,
            number,
        )

    def post_receive(self, number: int, message: Message, offset: int) -> None:
        self._endpoint.post_receive(
            self._peers[message.source],
            message.key,
            self._memory_key,
            offset,
            message.length_bytes,
            number,
        )

    def disconnect(self, peer: int) -> None:
        """Receives of which no packet came would wait on: they have no keepalive."""
        self._endpoint.flush_messages(self._peers[peer])

    def step(self) -> int:
        return self._runner.step() if self._runner is not None else 0

    def completions(self) -> Sequence[Completion]:
        if self.fd != NO_FD:
            with contextlib.suppress(BlockingIOError):  # what made the eventfd readable
                os.read(self.fd, 8)
        found: Sequence[Completion] = _poll(self._endpoint)
        return found

    def summary(self) -> dict[str, Any]:
        return self._endpoint.figures() if self._runner is None else self._runner.summary()


@dataclasses.dataclass(frozen=True, slots=True)
class RcSettings:
    """Timeouts and retry limits of RC queue pairs, in the encodings of verbs."""

    timeout: int = 14  # of 4.096 us * 2**timeout: 67 ms, which perftest takes too
    retry_count: int = 7  # the most; the peer is dead after eight timeouts in a row
    rnr_retry: int = 7  # without end
    min_rnr_timer: int = 12  # 0.64 ms; a peer is hardly ever not ready: it posts receives ahead

    @classmethod
    def for_rtt(cls, base_rtt_ns: int, buffer_ns: int = 0) -> RcSettings:
        """For a network whose empty round trip lasts that long.

        The least timeout that is no shorter than RTO_high, which the paper of IRN gives RoCE as
        well (`rto_high_ns`), as far as the encoding goes: 2.4 h. A peer that is not ready gets a
        retransmission after 10 us.
        """
        least_ns = rto_high_ns(base_rtt_ns, buffer_ns)
        return cls(timeout=rc_timeout_code(least_ns), min_rnr_timer=1)

    @classmethod
    def on_machine(cls, fabric_rtt_ns: int, buffer_ns: int = 0) -> RcSettings:
        """For an emulator, on a fabric with this base RTT of its own: the longer timeout."""
        own = cls()
        timeout = max(own.timeout, cls.for_rtt(fabric_rtt_ns, buffer_ns).timeout)
        return dataclasses.replace(own, timeout=timeout)

    def with_knobs(self, knobs: Knobs) -> RcSettings:
        timeout, retries = self.timeout, self.retry_count
        if knobs.timeout_ns is not None:
            timeout = rc_timeout_code(knobs.timeout_ns)
        if knobs.retry_count is not None:
            retries = knobs.retry_count
        return dataclasses.replace(self, timeout=timeout, retry_count=retries)


class RcMessenger(Messenger):
    """Over reliable connections: a queue pair to each peer, recovery by its go-back-N.

    A message is one SEND_WITH_IMM. A WRITE would cost the same packets, and a receive at the
    other end as well, to detect its arrival; but its sender needs the receiver's address,
    which may be temporary (a message to be added arrives in separate memory). A queue pair keeps
    the order, which matches sends to receives; the immediate, the low halves of step and message,
    verifies the match.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        memory: Memory | None = None,
        settings: RcSettings | None = None,
        next_hop_mac: int = 0,
        salt: int = 0,
    ) -> None:
        """`next_hop_mac`: of the gateway; `salt`: first PSNs follow from it, one a run."""
        self._endpoint = endpoint
        self._memory = memory
        self._address, self._memory_key = _registered(endpoint, memory)
        self._settings = settings or RcSettings()
        self._mac = next_hop_mac
        self._salt = salt
        self._cq: CompletionQueue = endpoint.create_cq()
        self._qps: dict[int, int] = {}  # host's index -> number
        self._channel = None
        if hasattr(endpoint, "completion_fd"):  # it runs in its own thread, which wakes this one
            self._channel = endpoint.CompletionChannel.create()
            self.fd = self._channel.fd
            self._cq.ring(self._channel, 0)
            self._cq.arm(False)

    def address(self, peer: int) -> Address:
        qp = self._qp(peer)
        return Address(self._endpoint.address, qp, psn=first_psn(self._salt, qp))

    @property
    def queue_pairs(self) -> list[RailQueuePairs]:
        of_peer = {peer: (qp, first_psn(self._salt, qp)) for peer, qp in self._qps.items()}
        return [RailQueuePairs(0, of_peer)]

    def _qp(self, peer: int) -> int:
        if peer not in self._qps:
            most: int = self._endpoint.limits()["max_qp_wr"]
            cap = (most, most, 1, 1, 0)
            error, number, _ = self._endpoint.create_qp(
                int(IBV_QPT_RC), self._cq, self._cq, 0, cap, 0, False
            )
            _check(error, "create a queue pair")
            self._qps[peer] = number
        return self._qps[peer]

    def connect(self, peer: int, address: Address) -> None:
        qp = self._qp(peer)
        attr = _native.QpAttr()
        attr.address = _native.AddressVector()
        attr.address.destination, attr.address.mac = address.ip, self._mac
        attr.dest_qp_num, attr.rq_psn = address.qp, address.psn
        attr.sq_psn = first_psn(self._salt, qp)
        attr.path_mtu_bytes, attr.port_num = self._endpoint.path_mtu, 1
        attr.timeout, attr.retry_cnt = self._settings.timeout, self._settings.retry_count
        attr.rnr_retry = self._settings.rnr_retry
        attr.min_rnr_timer = self._settings.min_rnr_timer
        error, _ = self._endpoint.bring_qp(qp, attr, _TO_RTS)
        _check(error, f"connect a queue pair with host {peer}")

    def post_send(self, number: int, message: Message, offset: int) -> None:
        request = _native.SendRequest()
        request.wr_id = number
        request.opcode, request.send_flags = int(IBV_WR_SEND_WITH_IMM), int(IBV_SEND_SIGNALED)
        request.imm_data = immediate(message.key)
        request.sources = self._place(offset, message.length_bytes)
        error, _ = self._endpoint.post_sends(self._qps[message.destination], [request])
        _check(error, f"post a send to host {message.destination}")

    def post_receive(self, number: int, message: Message, offset: int) -> None:
        request = _native.ReceiveRequest()
        request.wr_id = number
        request.targets = self._place(offset, message.length_bytes)
        error, _ = self._endpoint.post_receives(self._qps[message.source], [request])
        _check(error, f"post a receive from host {message.source}")

    def disconnect(self, peer: int) -> None:
        """To the error state: a responder's queue pair learns of nothing else (IBA 9.7)."""
        attr = _native.QpAttr()
        attr.qp_state = int(IBV_QPS_ERR)
        error = self._endpoint.modify_qp(self._qps[peer], attr, int(IBV_QP_STATE))
        _check(error, f"end the queue pair with host {peer}")

    def _place(self, offset: int, length: int) -> list[Any]:
        return [_native.ScatterGather(self._address + offset, length, self._memory_key)]

    def completions(self) -> Sequence[Completion]:
        if self._channel is not None:
            while self._channel.take() is not None:
                pass
            self._cq.arm(False)  # before polling: what comes from now on wakes us again
        found: Sequence[Completion] = _poll(self._cq)
        return found


def first_psn(salt: int, qp: int) -> int:
    """The PSN that a queue pair begins with; `salt`: one a run."""
    return (salt * 40503 + qp * 2654435761) & 0xFFFFFF  # Knuth's multipliers


def immediate(key: Key) -> int:
    """By which a receiver verifies that sends and receives meet: halves of step and message."""
    return (key[1] & 0xFFFF) << 16 | key[2] & 0xFFFF


def _check(error: int, what: str) -> None:
    if error:
        raise RunError(f"cannot {what}: {os.strerror(error)}")


def _poll(queue: Endpoint | CompletionQueue) -> Any:
    """All completions that wait: native ones, with what `Completion` has."""
    taken = batch = queue.poll_completions(_MANY)
    while len(batch) == _MANY:
        batch = queue.poll_completions(_MANY)
        taken = taken + batch
    return taken


def connect_all(hosts: Mapping[int, Any], pairs: Iterable[tuple[int, int]]) -> None:
    """Connect hosts of one process: every pair (lower, higher) that exchanges messages.

    A host is a `Messenger`, or a driver of several.
    """
    for low, high in sorted(set(pairs)):
        addresses = hosts[low].address(high), hosts[high].address(low)
        hosts[low].connect(high, addresses[1])
        hosts[high].connect(low, addresses[0])
