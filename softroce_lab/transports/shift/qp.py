# SPDX-License-Identifier: GPL-2.0-or-later
"""`ShiftQP`: a reliable connection with a backup on another NIC, behind the same verbs."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import time
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports.shift.backup import Backup, first_psn
from softroce_lab.transports.shift.control import Control
from softroce_lab.transports.shift.machine import RETRY_EXC, Machine, RefusedError
from softroce_lab.transports.shift.protocol import (
    SEND_ONCE,
    Event,
    Message,
    Path,
    ProtocolError,
    Sender,
    Whose,
)
from softroce_lab.transports.shift.shadows import (
    FENCE_ID,
    PROBE_ID,
    ShadowedQueue,
    UnknownKeyError,
    moved_receive,
    moved_send,
)
from softroce_lab.transports.shift.store import StoreUnreachableError
from softroce_lab.verbs import (
    PD,
    QP,
    WC,
    AHAttr,
    GlobalRoute,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.base import ask, expect
from softroce_lab.verbs.device import GID
from softroce_lab.verbs.enums import (
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_RESET,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_WR_SEND_WITH_INV,
    ibv_qp_state,
    ibv_wc_opcode,
)
from softroce_lab.verbs.wr import chain_of, refuse

_OWN_REQUESTS = 8  # of the lab's own, that the backup QP has room for besides
_INLINE, _SIGNALED = 8, 2
_WC_OPCODES = {0: 1, 1: 1, 2: 0, 3: 0, 4: 2, 5: 3, 6: 4}  # ibv_wr_opcode -> ibv_wc_opcode
_RECV = 128


class ShiftQP(QP):
    """A QP of RC that goes on over `backup` when its NIC, port or path fails.

    PyverbsUserError, if it shares receives or is not of RC, or if the backup is another context's.
    A request with the flag SEND_ONCE is never executed twice: in flight at a failure, it surfaces.
    """

    # How all begin; of the class, as a program may make thousands that never move.
    _queues: tuple[ShadowedQueue, ...] = ()
    _twin: QP | None = None
    _control: Control | None = None
    _peer: dict[str, Any] | None = None
    _peer_gid = ""
    _attrs: Sequence[QPAttr] = ()
    _lack = "the backup is not ready"
    _is_connecting = False

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
        self._backup, self._lock = backup, backup.lock
        self._signal_all = bool(init_attr.sq_sig_all)
        face: Any = weakref.proxy(self)  # so that a forgotten QP is closed at once
        self.machine = Machine(face, self.qp_num, backup.settings, signal_all=self._signal_all)
        self._notices: list[tuple[int, bool]] = []
        self._posting: list[None] = []  # an entry for each thread that posts without the lock
        rc = ask("Failed to create QP", self._endpoint.keep_unfinished, self.qp_num,
                 backup.failures.native)  # fmt: skip
        if rc:
            raise PyverbsRDMAError("Failed to create QP", rc)
        with self._lock:
            backup.add(self, Path.DEFAULT, self.qp_num)
            send = backup.queue(self.scq)
            receive = send if self.rcq is self.scq else backup.queue(self.rcq)
        self._queues = (send, receive)
        backup.do(self._make_twin)
        if qp_attr is not None:
            self.to_init(qp_attr)

    @property
    def queues(self) -> tuple[ShadowedQueue, ...]:
        """Where its sends and its receives complete."""
        return self._queues

    @property
    def backup_ready(self) -> bool:
        """Whether a failure now would be survived."""
        return self._peer is not None and self._control is not None and self._control.connected

    @property
    def twin_qp_num(self) -> int | None:
        """The number of its data QP at the backup NIC; None: not made yet."""
        return None if self._twin is None else self._twin.qp_num

    @property
    def control_qp_num(self) -> int | None:
        """The number of its control QP at the backup NIC; None: not made yet."""
        return None if self._control is None else self._control.qp.qp_num

    # ---------------------------------------------------------------- setting up

    def _make_twin(self) -> bool:
        if self.closed:
            return True
        domain = self._backup.domain(self.pd)
        send, receive = self._queues
        cap = dataclasses.replace(self._cap, max_send_wr=self._cap.max_send_wr + _OWN_REQUESTS)
        init = QPInitAttr(IBV_QPT_RC, None, send.behind, receive.behind, None, cap,
                          int(self._signal_all))  # fmt: skip
        twin = self._twin = QP(domain.pd, init)
        rc = ask("Failed to create QP", twin._endpoint.keep_unfinished, twin.qp_num,
                 self._backup.twin_failures.native)  # fmt: skip
        if rc:
            raise PyverbsRDMAError("Failed to create QP", rc)
        self._backup.add(self, Path.BACKUP, twin.qp_num)
        self._control = Control(
            self._backup.control_pd,
            self._backup.control_cq,
            first_psn(self.qp_num + 1),
            Whose(self.qp_num, twin.qp_num, ipaddress.IPv6Address(self._backup.gid).packed),
        )
        self._backup.add_control(self, self._control.qp.qp_num)
        self._backup.publish(
            f"qp/{self._backup.gid}/{self.qp_num}",
            {
                "gid": self._backup.other.query_gid(1, 0).gid,
                "qp": twin.qp_num,
                "psn": first_psn(twin.qp_num),
                "control": self._control.record(),
            },
        )
        return True

    def _bring(self, qp_attr: QPAttr, steps: int) -> None:
        super()._bring(qp_attr, steps)
        if steps == 3:
            self._connect()

    def _modify(self, qp_attr: QPAttr, comp_mask: int, failure: str) -> None:
        state = qp_attr.qp_state if comp_mask & IBV_QP_STATE else None
        if state == IBV_QPS_RESET and self.machine.epoch:
            raise PyverbsRDMAError(
                failure, errno.EOPNOTSUPP, hint="a ShiftQP that has moved is closed, not reset"
            )
        if state == IBV_QPS_ERR and self.backup_ready:
            with self._lock:
                self.machine.abandon(self._backup.now_ns)
                self._settle()
            return
        super()._modify(qp_attr, comp_mask, failure)
        if state == IBV_QPS_RTS:
            self._connect()

    def _connect(self) -> None:
        if self._is_connecting:
            return  # RTS again, from SQD
        self._is_connecting = True
        self._backup.do(self._connect_twin)

    def _connect_twin(self) -> bool:
        """False: the peer has not published its backup yet."""
        if self.closed:
            return True
        attr, _ = QP.query(self, 0)
        gid = attr.ah_attr.gr
        self._peer_gid = "" if gid is None else gid.dgid.gid
        try:
            key = f"qp/{self._peer_gid}/{attr.dest_qp_num}"
            found = self._backup.store.scan(key).get(key)
            self._backup.fetch_rkeys(self._peer_gid)
        except StoreUnreachableError as error:
            if not self._backup.in_background:
                raise
            self._lack = str(error)
            return False
        if found is None or self._twin is None or self._control is None:
            self._lack = "the peer's QP has no backup in the key-value service"
            return False
        # Probes and fences are WRITEs; regions keep the rights that they have.
        rights = int(attr.qp_access_flags) | IBV_ACCESS_REMOTE_WRITE
        attr = dataclasses.replace(attr, qp_access_flags=rights)
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(found["gid"])))
        psn = first_psn(self._twin.qp_num)
        twin = dataclasses.replace(
            attr, ah_attr=route, dest_qp_num=found["qp"], sq_psn=psn, rq_psn=found["psn"]
        )
        self._attrs = (attr, twin)
        self._twin.to_rts(dataclasses.replace(twin))
        self._control.connect(found["gid"], found["control"], attr)
        self._peer = found
        return True

    # ---------------------------------------------------------------- posting

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """As of a QP; EINVAL: a request with SEND_ONCE that is inline, too."""
        chain = chain_of(wr, SendWR, bad_wr)
        posting = self._posting
        posting.append(None)
        try:
            if self.machine.plain:  # as QP.post_send, without a call of it, or of `ask`
                rc, index = self._endpoint.post_sends(self.qp_num, chain)
                if rc:
                    self._explain(rc, chain[index], bad_wr)
                return
        except OSError as error:
            raise PyverbsRDMAError(_SEND, error.errno or errno.EIO) from error
        finally:
            posting.pop()
        with self._lock:
            room = self._cap.max_send_wr - self.machine.waiting_requests
            ready: list[Any] = []
            rc, why = 0, None
            for each in chain:
                rc, why, copy = self._taken(each, room - len(ready))
                if rc:
                    break
                ready.append(copy)
            self.machine.post_sends(ready, self._backup.now_ns)
            self._settle()
            if rc:
                refuse(_SEND, rc, chain[len(ready)], bad_wr, why)

    def _explain(self, rc: int, wr: SendWR, bad_wr: SendWR | None) -> NoReturn:
        """Refuse what the engine refused."""
        refused = _refused(wr)
        if refused is not None and refused[0] == rc:
            refuse(_SEND, rc, wr, bad_wr, refused[1])
        self._refuse_send(rc, wr, bad_wr)

    def _taken(self, wr: SendWR, room: int) -> tuple[int, str | None, Any]:
        """(errno, why, a copy that is independent of what the application does now)."""
        if room <= 0:
            return errno.ENOMEM, "the ShiftQP is moving, and holds as many requests as it may", None
        if (refused := _refused(wr)) is not None:
            return *refused, None
        rc, copy = self._endpoint.detached(wr)
        return rc, None, copy

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """As of a QP."""
        chain = chain_of(wr, RecvWR, bad_wr)
        posting = self._posting
        posting.append(None)
        try:
            if self.machine.plain:  # as QP.post_recv, likewise
                rc, index = self._endpoint.post_receives(self.qp_num, chain)
                if rc:
                    self._refuse_recv(rc, chain[index], bad_wr)
                return
        except OSError as error:
            raise PyverbsRDMAError(_RECEIVE, error.errno or errno.EIO) from error
        finally:
            posting.pop()
        with self._lock:
            for each in chain:
                copy = _native.ReceiveRequest()
                copy.assign(each)
                try:
                    self.machine.post_receives([copy])
                except PyverbsRDMAError as error:
                    refuse(_RECEIVE, error.error_code, each, bad_wr)
            self._settle()

    @property
    def qp_state(self) -> ibv_qp_state:
        """Of the QP that carries the requests; ERR, when an error has surfaced."""
        if self.machine.sender is Sender.FAILED:
            return ibv_qp_state.IBV_QPS_ERR
        return super().qp_state if self.machine.plain else ibv_qp_state.IBV_QPS_RTS

    # ---------------------------------------------------------------- the machine's face

    def _qp(self, path: Path) -> QP:
        qp = self if path is Path.DEFAULT else self._twin
        if qp is None:
            raise RefusedError(self._lack)
        return qp

    def leave(self, path: Path) -> Any:
        """Out of RTR, then all of its completions to the application."""
        while self._posting:  # `plain` is off: nobody begins
            time.sleep(0)
        for queue in dict.fromkeys(self._queues):
            queue.attach()
        qp = self if path is Path.DEFAULT else self._twin
        left = _NOTHING if qp is None else qp._endpoint.leave_qp(qp.qp_num)
        self._backup.purge_failures(self, path)
        for queue in dict.fromkeys(self._queues):
            queue.collect()
        if path is Path.DEFAULT:  # what came of an earlier probe is over
            self._notices = [each for each in self._notices if each[0] != PROBE_ID]
        return _Left(left, self._home(path))

    def _home(self, path: Path) -> dict[str, Any] | None:
        """How keys of the backup become the application's again."""
        if path is Path.DEFAULT:
            return None
        rkeys = self._backup.rkeys(self._peer_gid)
        return {
            "lkeys": self._backup.domain(self.pd).back,
            "rkeys": {value: key for key, value in rkeys.items()},
        }

    def prepare(self, path: Path, own_psn: int, peer_psn: int) -> None:
        """Through RESET to RTS."""
        qp = self._qp(path)
        QP._modify(qp, QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE, "Failed to reset QP")
        attr = dataclasses.replace(self._attrs[path], sq_psn=own_psn, rq_psn=peer_psn)
        QP._bring(qp, attr, 3)

    def post_receives(self, path: Path, receives: Sequence[Any]) -> None:
        """With the keys of the path."""
        if path is Path.BACKUP:
            lkeys = self._backup.domain(self.pd).lkeys
            receives = [moved_receive(each, lkeys) for each in receives]
        qp = self._qp(path)
        rc, _ = ask("post recv", qp._endpoint.post_receives, qp.qp_num, list(receives))
        if rc:
            raise PyverbsRDMAError("Failed to post recv", rc)

    def post_sends(self, path: Path, requests: Sequence[Any]) -> None:
        """With the keys of the path; KeyError: the peer's key has no counterpart."""
        if path is Path.BACKUP:
            requests = [self._moved(each) for each in requests]
        qp = self._qp(path)
        rc, index = ask("post send", qp._endpoint.post_again, qp.qp_num, list(requests))
        if rc:
            raise RefusedError(f"request {requests[index].wr_id} is refused, errno {rc}", index)

    def _moved(self, request: Any) -> Any:
        lkeys = self._backup.domain(self.pd).lkeys
        try:
            return moved_send(request, lkeys, self._backup.rkeys(self._peer_gid))
        except UnknownKeyError:
            try:
                return moved_send(request, lkeys, self._backup.fetch_rkeys(self._peer_gid))
            except (StoreUnreachableError, UnknownKeyError) as error:
                raise RefusedError(str(error)) from error

    def complete_send(self, request: Any, status: int) -> None:
        """A completion that no NIC makes."""
        self._queues[0].add(
            WC(
                request.wr_id,
                ibv_wc_status(status),
                ibv_wc_opcode(_WC_OPCODES[request.opcode]),
                byte_len=sum(each.length for each in request.sources),
                qp_num=self.qp_num,
            )
        )

    def complete_receive(self, receive: Any, status: int) -> None:
        """A completion that no NIC makes."""
        self._queues[1].add(
            WC(receive.wr_id, ibv_wc_status(status), ibv_wc_opcode(_RECV), qp_num=self.qp_num)
        )

    def tell(self, message: Message) -> None:
        """To the peer's mailbox."""
        if self._control is None or not self._control.tell(message):
            self._notices.append((_CONTROL_BROKEN, False))

    def probe(self) -> None:
        """A WRITE of no bytes on the default path."""
        self._post_own(self, PROBE_ID)

    def fence(self) -> None:
        """A WRITE of no bytes behind all else on the backup path."""
        self._post_own(self._qp(Path.BACKUP), FENCE_ID)

    def _post_own(self, qp: QP, wr_id: int) -> None:
        request = _native.SendRequest()
        request.wr_id, request.opcode, request.send_flags = wr_id, 0, _SIGNALED
        ask("post send", qp._endpoint.post_again, qp.qp_num, [request])

    def note(self, event: Event) -> None:
        """Record a transition."""
        number = self._attrs[0].dest_qp_num if self._attrs else 0
        event = dataclasses.replace(event, peer_gid=self._peer_gid, peer_qp_num=number)
        self._backup.note(event)

    # ---------------------------------------------------------------- what happens to it

    def finished(self, wr_id: int) -> None:
        """A WRITE of the lab's own succeeded."""
        self._notices.append((wr_id, True))

    def failed_on(self, path: Path, native: Any) -> None:
        """A request failed, and its QP is in error."""
        now_ns = self._backup.now_ns
        if native.wr_id == PROBE_ID and path is not self.machine.path:
            self._notices.append((PROBE_ID, False))
        elif path is Path.DEFAULT and path is self.machine.path and not self.backup_ready:
            self.machine.lacks_backup(self._lack, now_ns, native.status)
        else:
            self.machine.failed(path, native.status, now_ns)
        self._settle()

    def fail(self, why: str) -> None:
        """Surface an error: nothing goes on."""
        self.machine.lacks_backup(why, self._backup.now_ns, RETRY_EXC)
        self._settle()

    def handle_control(self, native: Any) -> None:
        """A completion of the control QP."""
        if (control := self._control) is None:
            return
        try:
            message = control.completed(native)
        except ProtocolError:
            control.broken, message = True, None
        if message is not None:
            self.machine.handle_message(message, self._backup.now_ns)
        elif control.broken:
            self._notices.append((_CONTROL_BROKEN, False))
        self._settle()

    def advance(self) -> bool:
        """Whether anything happened: what is due, and what its own WRITEs came to."""
        for queue in dict.fromkeys(self._queues):
            queue.collect()
        now_ns = self._backup.now_ns
        due = self.machine.next_time_ns()
        happened = bool(self._notices) or (due is not None and due <= now_ns)
        while self._notices:
            kind, ok = self._notices.pop(0)
            if kind == PROBE_ID:
                self.machine.probed(ok, now_ns)
            elif kind == FENCE_ID:
                self.machine.fenced(now_ns)
            else:
                self.machine.control_failed(now_ns)
        self.machine.advance(now_ns)
        self._settle()
        return happened

    def _settle(self) -> None:
        """Polls and posts go the short way, while nothing is to be done."""
        active = not self.machine.plain and not (
            self.machine.sender is Sender.FAILED and not self._notices
        )
        self._backup.set_active(self, active)
        for queue in dict.fromkeys(self._queues):
            queue.set_busy(self, active)

    # ---------------------------------------------------------------- ends

    def close(self) -> None:
        """Close the backup's part, then the QP."""
        if self.closed:
            return
        with self._lock:
            self.machine.plain = True
            self._backup.remove(self)
            for queue in self._queues:
                queue.forget(self)
            if self._twin is not None and not self._twin.closed:
                self._twin.close()
            if self._control is not None:
                self._control.close()
            super().close()


_CONTROL_BROKEN = 0
_SEND, _RECEIVE = "Failed to post send", "Failed to post recv"
_INVALIDATES = "SEND with invalidate names a key of one NIC"
_ONCE_AND_INLINE = "SEND_ONCE is for requests whose bytes stay in memory, not for inline ones"


class _Left:
    """What the engine kept, with the application's keys, without the lab's own requests."""

    def __init__(self, left: Any, home: dict[str, Any] | None) -> None:
        self.notified, self.received = left.notified, left.received
        self.next_psn, self.expected_psn = left.next_psn, left.expected_psn
        sends = [each for each in left.sends if each.request.wr_id not in (PROBE_ID, FENCE_ID)]
        self.receives = list(left.receives)
        self.sends = [_Kept(each.request, each.begun) for each in sends]
        if home is not None:
            self.sends = [
                _Kept(moved_send(each.request, home["lkeys"], home["rkeys"]), each.begun)
                for each in sends
            ]
            self.receives = [moved_receive(each, home["lkeys"]) for each in left.receives]


_NOTHING = _native.Unfinished()


def _refused(wr: SendWR) -> tuple[int, str] | None:
    """Why a request is for no ShiftQP: (errno, hint)."""
    if wr.opcode == IBV_WR_SEND_WITH_INV:
        return errno.EOPNOTSUPP, _INVALIDATES
    if wr.send_flags & SEND_ONCE and wr.send_flags & _INLINE:
        return errno.EINVAL, _ONCE_AND_INLINE
    return None


@dataclasses.dataclass
class _Kept:
    request: Any
    begun: bool


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
