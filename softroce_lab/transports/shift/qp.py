# SPDX-License-Identifier: GPL-2.0-or-later
"""`ShiftQP`: a reliable connection with a backup on another NIC, behind the same verbs."""

from __future__ import annotations

import errno
import functools

from softroce_lab._native import shift
from softroce_lab.transports.shift.backup import Backup
from softroce_lab.transports.shift.event import SEND_ONCE
from softroce_lab.transports.shift.store import StoreUnreachableError
from softroce_lab.verbs import (
    PD,
    QP,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.base import ask, expect
from softroce_lab.verbs.enums import (
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_RESET,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_SEND_INLINE,
    IBV_WR_SEND_WITH_INV,
    ibv_qp_state,
)
from softroce_lab.verbs.wr import chain_of, refuse

_SEND, _RECEIVE = "Failed to post send", "Failed to post recv"
_LACK = "the peer's QP has no backup in the key-value service"
_RTS_STEPS = 3


class ShiftQP(QP):
    """A QP of RC that goes on over `backup` when its NIC, port or path fails.

    PyverbsUserError, if it shares receives or is not of RC, or if the backup is another context's.
    A request with the flag SEND_ONCE is never executed twice: in flight at a failure, it surfaces.
    """

    def __init__(
        self,
        creator: PD,
        init_attr: QPInitAttr,
        qp_attr: QPAttr | None = None,
        *,
        backup: Backup,
    ) -> None:
        _check(creator, init_attr, backup)
        self.closed = True  # until it is made
        super().__init__(creator, init_attr)
        self._backup = backup
        self.native = ask(
            "Failed to create QP",
            backup.native.add,
            self.qp_num,
            self._cap.native(),
            bool(init_attr.sq_sig_all),
            backup.completions(self.scq),
            backup.completions(self.rcq),
            functools.partial(backup.domain, creator),
        )
        if qp_attr is not None:
            self.to_init(qp_attr)

    @property
    def sender(self) -> shift.Sender:
        """The state of its sending side."""
        return self.native.sender

    @property
    def plain(self) -> bool:
        """Whether it is on its default NIC, and nothing of a move is left."""
        return bool(self.native.plain)

    @property
    def epoch(self) -> int:
        """How often it has moved."""
        return int(self.native.epoch)

    @property
    def backup_ready(self) -> bool:
        """Whether a failure now would be survived."""
        return bool(self.native.backup_ready)

    @property
    def twin_qp_num(self) -> int | None:
        """The number of its data QP at the backup NIC; None: not made yet."""
        number: int | None = self.native.twin_number
        return number

    @property
    def control_qp_num(self) -> int | None:
        """The number of its control QP at the backup NIC; None: not made yet."""
        number: int | None = self.native.control_number
        return number

    # ---------------------------------------------------------------- states

    def _bring(self, qp_attr: QPAttr, steps: int) -> None:
        super()._bring(qp_attr, steps)
        if steps == _RTS_STEPS:
            self._connect()

    def _modify(self, qp_attr: QPAttr, comp_mask: int, failure: str) -> None:
        state = qp_attr.qp_state if comp_mask & IBV_QP_STATE else None
        if state == IBV_QPS_RESET and self.epoch:
            raise PyverbsRDMAError(
                failure, errno.EOPNOTSUPP, hint="a ShiftQP that has moved is closed, not reset"
            )
        if state == IBV_QPS_ERR:
            ask(failure, self.native.abandon)
            return
        super()._modify(qp_attr, comp_mask, failure)
        if state == IBV_QPS_RTS:
            self._connect()

    def _connect(self) -> None:
        try:
            connected = ask("Failed to connect the backup", self.native.connect)
        except shift.Unreachable as error:
            raise StoreUnreachableError(str(error)) from error
        if not connected:
            hint = "both ends are to be ShiftQPs that use the same service"
            raise PyverbsUserError(_LACK, hint=hint)

    @property
    def qp_state(self) -> ibv_qp_state:
        """Of the QP that carries the requests; ERR, when an error has surfaced."""
        if self.sender == shift.Sender.FAILED:
            return ibv_qp_state.IBV_QPS_ERR
        return super().qp_state if self.plain else ibv_qp_state.IBV_QPS_RTS

    # ---------------------------------------------------------------- posting

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """As of a QP; EINVAL: a request with SEND_ONCE that is inline, too."""
        chain = chain_of(wr, SendWR, bad_wr)
        rc, index = ask(_SEND, self.native.post_sends, self._endpoint, chain)
        if not rc:
            return
        refused = chain[index]
        if (why := _why_refused(rc, refused)) is not None:
            refuse(_SEND, rc, refused, bad_wr, why)
        if not self.plain:
            why = "the ShiftQP is moving, and holds as many requests as it may"
            refuse(_SEND, rc, refused, bad_wr, why if rc == errno.ENOMEM else None)
        self._refuse_send(rc, refused, bad_wr)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """As of a QP."""
        chain = chain_of(wr, RecvWR, bad_wr)
        rc, index = ask(_RECEIVE, self.native.post_receives, self._endpoint, chain)
        if rc:
            self._refuse_recv(rc, chain[index], bad_wr)

    def close(self) -> None:
        """Close the backup's part, then the QP."""
        if self.closed:
            return
        ask("Failed to destroy QP", self.native.close)
        super().close()


def _why_refused(rc: int, wr: SendWR) -> str | None:
    """Why a request is for no ShiftQP."""
    if rc == errno.EOPNOTSUPP and wr.opcode == IBV_WR_SEND_WITH_INV:
        return "SEND with invalidate names a key of one NIC"
    if rc == errno.EINVAL and wr.send_flags & SEND_ONCE and wr.send_flags & IBV_SEND_INLINE:
        return "SEND_ONCE is for requests whose bytes stay in memory, not for inline ones"
    return None


def _check(creator: PD, init_attr: QPInitAttr, backup: Backup) -> None:
    expect("backup", backup, Backup)
    if not (isinstance(creator, PD) and isinstance(init_attr, QPInitAttr)):
        return  # QP refuses them in its words
    if creator.ctx is not backup.context:
        raise PyverbsUserError("the backup is of another context than the PD")
    if init_attr.qp_type != IBV_QPT_RC:
        raise PyverbsUserError("only a reliable connection (IBV_QPT_RC) can have a backup")
    if init_attr.srq is not None:
        raise PyverbsUserError("a ShiftQP has receives of its own, not an SRQ")
