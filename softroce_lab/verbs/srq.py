# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared receive queues: receives that many queue pairs take from (IBA 10.2.9)."""

from __future__ import annotations

import dataclasses
import errno

from softroce_lab.verbs.base import Closable, ask, expect, expect_unsigned, table
from softroce_lab.verbs.enums import IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError
from softroce_lab.verbs.wr import RecvWR, chain_of, refuse


@dataclasses.dataclass
class SrqAttr:
    """Sizes, and how few receives left are worth an event; 0: none."""

    max_wr: int = 100
    max_sge: int = 1
    srq_limit: int = 0

    def __str__(self) -> str:
        return table([(name.replace("_", " "), value) for name, value in vars(self).items()])


class SrqInitAttr:
    """What a shared receive queue is made of; without `attr`, of nothing."""

    def __init__(self, attr: SrqAttr | None = None) -> None:
        if attr is not None:
            expect("attr", attr, SrqAttr)
        self.max_wr = attr.max_wr if attr else 0
        self.max_sge = attr.max_sge if attr else 0
        self.srq_limit = attr.srq_limit if attr else 0


class SRQ(Closable):
    """A shared receive queue; closing it closes the queue pairs that use it."""

    close_rank = 1

    def __init__(self, creator: PD, attr: SrqInitAttr) -> None:
        expect("creator", creator, PD)
        expect("attr", attr, SrqInitAttr)
        failure = "Failed to create SRQ"
        creator.check_open(failure)
        self._endpoint = creator.ctx.endpoint
        self._max_sge = expect_unsigned("max_sge", attr.max_sge, 32)
        max_wr = expect_unsigned("max_wr", attr.max_wr, 32)
        rc, number = ask(failure, self._endpoint.create_srq, creator.handle, max_wr, self._max_sge)
        if rc:
            raise PyverbsRDMAError(f"{failure} (errno is {rc})", rc)
        self.number = int(number)
        super().__init__(creator)
        self.pd = creator
        creator.ctx.know_srq(self)

    def get_srq_num(self) -> int:
        """What events call it."""
        self.check_open("Failed to retrieve SRQ number")
        return self.number

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """Set `max_wr` (IBV_SRQ_MAX_WR), or arm the limit (IBV_SRQ_LIMIT)."""
        failure = "Failed to modify SRQ"
        self.check_open(failure)
        expect("attr", attr, SrqAttr)
        expect("comp_mask", comp_mask, int)
        if comp_mask & ~int(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT):
            raise PyverbsRDMAError(failure, errno.EINVAL)
        room = expect_unsigned("max_wr", attr.max_wr, 32) if comp_mask & IBV_SRQ_MAX_WR else None
        limit = None
        if comp_mask & IBV_SRQ_LIMIT:
            limit = expect_unsigned("srq_limit", attr.srq_limit, 32)
        if rc := ask(failure, self._endpoint.modify_srq, self.number, room, limit):
            raise PyverbsRDMAError(failure, rc)

    def query(self) -> SrqAttr:
        """Sizes, and the limit; 0, when it was reached."""
        failure = "Failed to query SRQ"
        answer = ask(failure, self._endpoint.query_srq, self.number)
        if answer is None:
            raise PyverbsRDMAError(failure, errno.EINVAL)
        max_wr, limit = answer
        return SrqAttr(max_wr, self._max_sge, limit)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a receive and those chained to it; on failure `bad_wr` becomes the one refused."""
        failure = "Failed to post receive to SRQ."
        chain = chain_of(wr, RecvWR, bad_wr)
        rc, index = ask(failure, self._endpoint.post_srq_receives, self.number, chain)
        if rc:
            refuse(failure, rc, chain[index], bad_wr)

    def _release(self) -> None:
        failure = "Failed to destroy SRQ"
        if rc := ask(failure, self._endpoint.destroy_srq, self.number):
            raise PyverbsRDMAError(failure, rc)

    def __str__(self) -> str:
        return "SRQ\n" + table([("number", self.number)])
