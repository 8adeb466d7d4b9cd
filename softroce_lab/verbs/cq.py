# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion queues, what they hold, and how they tell of it."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import select
import time
from typing import TYPE_CHECKING, Any, Self

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.verbs.base import Closable, ask, deadline, expect, expect_unsigned, named, table
from softroce_lab.verbs.device import MAX_CQE, WAIT_S, Context
from softroce_lab.verbs.enums import IBV_CQ_ATTR_MODERATE, ibv_wc_flags, ibv_wc_opcode
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

if TYPE_CHECKING:
    from softroce_lab._native import WorkCompletion
    from softroce_lab._native.shift import Completions


_NO_FLAGS = ibv_wc_flags(0)
_MICROSECOND_NS = 1000

_cookies = itertools.count(1)


@dataclasses.dataclass(slots=True)
class WC:
    """A work completion; the fields after `dlid_path_bits` are the lab's, of striped messages.

    As in C, `imm_data` is in network byte order (`socket.ntohl`); of IBV_WC_WITH_INV it is the key
    that was invalidated.
    """

    wr_id: int = 0
    status: ibv_wc_status = ibv_wc_status.IBV_WC_SUCCESS
    opcode: ibv_wc_opcode = ibv_wc_opcode.IBV_WC_SEND
    vendor_err: int = 0
    byte_len: int = 0
    qp_num: int = 0
    src_qp: int = 0
    imm_data: int = 0
    wc_flags: ibv_wc_flags = _NO_FLAGS
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
    peer: int = 0  # index of the peer
    key: tuple[int, int, int] = (0, 0, 0)  # (operation, step, message)
    packets: int = 0
    retransmitted: int = 0  # sender: packets sent again
    duplicates: int = 0  # receiver: packets that were there already
    posted_ns: int = 0
    first_ns: int = 0  # first packet sent or received
    completed_ns: int = 0  # of all completions

    @classmethod
    def of(cls, native: WorkCompletion) -> Self:
        """What the engine reports, in verbs' types."""
        wc = cls(
            wr_id=native.wr_id,
            status=ibv_wc_status(native.status),
            opcode=ibv_wc_opcode(native.opcode),
            byte_len=native.byte_len,
            qp_num=native.qp_num,
            src_qp=native.src_qp,
            completed_ns=native.completed_ns,
        )
        if native.flags:
            wc.wc_flags = ibv_wc_flags(native.flags)
            wc.imm_data = native.imm_data_or_invalidated_rkey
        if native.packets:
            wc._of_message(native)
        return wc

    def _of_message(self, native: WorkCompletion) -> None:
        self.peer = native.peer
        self.key = native.key
        self.packets = native.packets
        self.retransmitted = native.retransmitted
        self.duplicates = native.duplicates
        self.posted_ns = native.posted_ns
        self.first_ns = native.first_ns

    def __str__(self) -> str:
        rows = [
            ("WR ID", self.wr_id),
            ("status", named(ibv_wc_status, self.status)),
            ("opcode", named(ibv_wc_opcode, self.opcode)),
            ("byte length", self.byte_len),
            ("QP num", self.qp_num),
            ("source QP", self.src_qp),
            ("WC flags", named(ibv_wc_flags, self.wc_flags)),
            ("imm data", self.imm_data),
        ]
        if self.packets:
            rows += [
                ("key", self.key),
                ("packets", self.packets),
                ("retransmitted", self.retransmitted),
                ("duplicates", self.duplicates),
                ("completion ns", self.completed_ns - self.posted_ns),
            ]
        return table(rows)


class CompChannel(Closable):
    """Where completion queues tell that something has completed, if they were asked to.

    `fd` is readable while events wait.
    """

    close_rank = 4

    def __init__(self, context: Context) -> None:
        expect("context", context, Context)
        failure = "Failed to create a completion channel"
        context.check_open(failure)
        self.native = ask(failure, _native.Endpoint.CompletionChannel.create)
        super().__init__(context)
        self.context = context

    @property
    def fd(self) -> int:
        """For select and poll; events are taken by `get_cq_event`."""
        return int(self.native.fd)

    def get_cq_event(self, expected_cq: CQ, timeout_s: float = WAIT_S) -> None:
        """Take the oldest event, which is to be of `expected_cq`; ETIMEDOUT, if none comes."""
        expect("expected_cq", expected_cq, CQ)
        failure = "Failed to get CQ event"
        until = deadline(timeout_s)
        while True:
            self.check_open(failure)
            cookie = self.native.take()
            if cookie is not None:
                break
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise PyverbsRDMAError(failure, errno.ETIMEDOUT)
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            poll.poll(min(left_s, WAIT_S) * 1000)
        if cookie != expected_cq.cookie:
            raise PyverbsRDMAError("Received event on an unexpected CQ", errno.EINVAL)

    def __str__(self) -> str:
        return "Completion channel\n" + table([("FD", self.fd)])


@dataclasses.dataclass
class ModerateCQ:
    """`struct ibv_moderate_cq`: an event waits for so many completions, or microseconds."""

    cq_count: int = 0
    cq_period: int = 0


@dataclasses.dataclass
class ModifyCQAttr:
    """`struct ibv_modify_cq_attr`."""

    attr_mask: int = IBV_CQ_ATTR_MODERATE
    moderate: ModerateCQ = dataclasses.field(default_factory=ModerateCQ)


class CQ(Closable):
    """A completion queue for any number of QPs.

    One that is full when something completes is in error (IBV_EVENT_CQ_ERR), and so are the queue
    pairs that use it.
    """

    close_rank = 3
    completion: type[WC] = WC  # what `poll` makes of what the engine reports

    def __init__(
        self,
        context: Context,
        cqe: int,
        cq_context: Any = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ) -> None:
        failure = "Failed to create a CQ"
        expect("context", context, Context)
        expect("comp_vector", comp_vector, int)
        self.cqe = _capacity(failure, cqe)
        context.check_open(failure)
        if not 0 <= comp_vector < context.num_comp_vectors:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="there is completion vector 0")
        if channel is not None:
            _check_channel(failure, context, channel)
        self.native = ask(failure, context.endpoint.create_cq, self.cqe)
        self.cookie = next(_cookies)
        self.cq_context = cq_context
        self.context = context
        self.channel = channel
        self.merged: Completions | None = None  # of a queue whose QPs have a backup
        if channel is None:
            super().__init__(context)
        else:
            super().__init__(context, channel)
            self.native.ring(channel.native, self.cookie)

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """(count, completions): at most `num_entries` of what has completed, without waiting."""
        self.check_open("Failed to poll CQ")
        expect("num_entries", num_entries, int)
        most = min(max(num_entries, 0), MAX_CQE)
        of = self.completion.of
        completions = [of(each) for each in (self.merged or self.native).poll_completions(most)]
        return len(completions), completions

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event, at the next completion, or the next that is solicited or an error."""
        self.check_open("Request notify CQ failed")
        (self.merged or self.native).arm(bool(solicited_only))

    def ack_events(self, num_events: int) -> None:
        """Acknowledge events; nothing waits for it, a queue can be closed at any time."""
        self.check_open("Failed to ack CQ events")
        expect_unsigned("num_events", num_events, 32)

    def resize(self, cqe: int) -> None:
        """Hold more or fewer; EINVAL, if more completions are there than that."""
        failure = "Failed to resize CQ"
        self.check_open(failure)
        capacity = _capacity(failure, cqe)
        if not self.native.resize(capacity):
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="more completions are there")
        self.cqe = capacity

    def modify(self, attr: ModifyCQAttr) -> None:
        """As `ibv_modify_cq`: moderate events."""
        failure = "Failed to modify CQ"
        self.check_open(failure)
        expect("attr", attr, ModifyCQAttr)
        expect("attr_mask", attr.attr_mask, int)
        if attr.attr_mask != IBV_CQ_ATTR_MODERATE:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="there is IBV_CQ_ATTR_MODERATE")
        expect("moderate", attr.moderate, ModerateCQ)
        count = expect_unsigned("cq_count", attr.moderate.cq_count, 16)
        period_us = expect_unsigned("cq_period", attr.moderate.cq_period, 16)
        self._moderate(failure, count, period_us * _MICROSECOND_NS)

    def _moderate(self, failure: str, count: int, period_ns: int) -> None:
        ask(failure, self.context.endpoint.moderate_cq, self.native, count, period_ns)

    def _release(self) -> None:
        self.native.ring_nobody()
        self._moderate("Failed to close CQ", 0, 0)
        if self.channel is not None:
            self.channel.native.forget(self.cookie)

    def __str__(self) -> str:
        return "CQ\n" + table([("CQEs", self.cqe)])


def _capacity(failure: str, cqe: int) -> int:
    expect("cqe", cqe, int)
    if not 1 <= cqe <= MAX_CQE:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint=f"a CQ has 1 to {MAX_CQE} entries")
    return int(cqe)


def _check_channel(failure: str, context: Context, channel: CompChannel) -> None:
    expect("channel", channel, CompChannel)
    channel.check_open(failure)
    if channel.context is not context:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="CQ and channel are of one context")
