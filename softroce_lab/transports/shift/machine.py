# SPDX-License-Identifier: GPL-2.0-or-later
"""The state machine of a ShiftQP, without I/O: the time is an argument, `ShiftQP` is its face.

Both directions of a connection move together [D], from epoch to epoch; even epochs are on the
default NIC, odd ones on the backup. Whoever moves takes its QP of the old epoch out of RTR first,
so that nothing of it is executed later, then posts its receives in the new epoch, and only then
sends MOVE, with the count of receives consumed. Sends follow with the MOVE of the peer.
A failure starts a move at once, a failback when both ends have drained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from softroce_lab.transports.shift.protocol import (
    PSN_MASK,
    Classes,
    Event,
    Kind,
    Message,
    Path,
    ProtocolError,
    Receiver,
    Sender,
    Settings,
    classify,
)

PSN_GAP = 1 << 18
"""How far behind its last PSN a QP begins anew: an old packet is a duplicate, and is not executed.

More than a window, so that a reader of captures (`lab verify`) sees another connection begin.
"""

RETRY_EXC, FLUSH, SUCCESS = 12, 5, 0  # enum ibv_wc_status
SIGNALED = 2  # enum ibv_send_flags


class RefusedError(Exception):
    """Requests could not be posted, from number `posted` of them on."""

    def __init__(self, why: str, posted: int = 0) -> None:
        super().__init__(why)
        self.posted = posted


class Machine:
    """One end. `plain`: requests may be posted to the default QP without asking."""

    # How all begin; of the class, as a program may make thousands that never move.
    plain = True
    sender, receiver = Sender.DEFAULT, Receiver.DEFAULT
    epoch = 0
    _left = Path.DEFAULT
    _executed = 0  # notifications that the peer has executed, as far as is known
    _received = 0  # notifications executed here, in earlier epochs
    _own_psn = 0  # of the QP that was left last, when it begins anew
    _waiting = False  # for the peer's MOVE of this epoch
    _peer_drained = _drained = _draining = False
    _deadline_ns: int | None = None
    _probe_at_ns: int | None = None
    _probing = False
    _probe_unsure = False  # whether the peer executed the last probe
    _returning = False  # requests wait until that is known
    _fences = 0
    _returned_ns: int | None = None  # to the default path
    _psns = (0, 0)

    def __init__(
        self, face: Any, qp_num: int, settings: Settings, *, signal_all: bool = False
    ) -> None:
        self._face, self._qp_num, self.settings = face, qp_num, settings
        self._signal_all = signal_all
        self.held: list[Any] = []
        self._unresolved: list[Any] = []
        self._interval_ns = settings.probe_interval_ns

    @property
    def path(self) -> Path:
        """Where the application's requests are, or are to go."""
        return Path.of(self.epoch)

    @property
    def waiting_requests(self) -> int:
        """How many requests are neither posted nor over."""
        return len(self.held) + len(self._unresolved)

    def next_time_ns(self) -> int | None:
        """When `advance` has something to do, if nothing happens before."""
        times = [each for each in (self._deadline_ns, self._probe_at_ns) if each is not None]
        return min(times, default=None)

    # ---------------------------------------------------------------- what the application does

    def post_sends(self, requests: Sequence[Any], now_ns: int) -> None:
        """Post, or hold, what is not `plain`; the fence of a failback is the next signaled one."""
        if self.sender is Sender.FAILED:
            for request in requests:
                self._face.complete_send(request, FLUSH)
            return
        if self._waiting or self._draining or self._returning:
            self.held.extend(requests)
            return
        if self.sender is not Sender.WAIT_SIGNALED:
            self._post(requests, now_ns)
            return
        fence = next((i for i, each in enumerate(requests) if self._is_signaled(each)), None)
        if fence is None:
            self._post(requests, now_ns)
            return
        self._post(requests[: fence + 1], now_ns)
        self.held.extend(requests[fence + 1 :])
        self._drain("the next signaled request is the fence", now_ns)

    def _is_signaled(self, request: Any) -> bool:
        return self._signal_all or bool(request.send_flags & SIGNALED)

    def _post(self, requests: Sequence[Any], now_ns: int) -> None:
        try:
            self._face.post_sends(self.path, requests)
        except RefusedError as error:
            self._surface(str(error), now_ns, requests[error.posted :])

    def post_receives(self, receives: Sequence[Any]) -> None:
        """Post where the peer's messages are going to come."""
        if self.sender is Sender.FAILED:
            for receive in receives:
                self._face.complete_receive(receive, FLUSH)
            return
        self._face.post_receives(self.path, receives)

    # ---------------------------------------------------------------- failures

    def failed(self, path: Path, status: int, now_ns: int) -> None:
        """A request of the application failed there."""
        if self.sender is Sender.FAILED or path is not self.path:
            return
        if status != RETRY_EXC:
            self._surface("a request failed by itself", now_ns, status=status)
        elif path is Path.BACKUP:
            self._surface("the backup failed, too", now_ns)
        else:
            self._move("retries exceeded", now_ns)

    def control_failed(self, now_ns: int) -> None:
        """Messages to the peer do not arrive: without them nothing may be repeated."""
        if self.sender is Sender.FAILED or self.plain:
            return
        self._surface("the peer cannot be reached over the backup", now_ns)

    def lacks_backup(self, why: str, now_ns: int, status: int) -> None:
        """There is nothing to fail over to: fail closed."""
        if self.sender is not Sender.FAILED:
            self._surface(why, now_ns, status=status)

    def abandon(self, now_ns: int) -> None:
        """The application put its QP in error."""
        if self.sender is not Sender.FAILED:
            self._surface("put in error by the application", now_ns, status=FLUSH)

    def _surface(
        self, why: str, now_ns: int, more: Sequence[Any] = (), *, status: int = RETRY_EXC
    ) -> None:
        """As a plain QP: the oldest request ends in error, the others are flushed."""
        self.plain = False
        if not self._waiting:
            left = self._face.leave(self.path)
            self._unresolved = list(left.sends)
            self._received += left.received
            receives = list(left.receives)
        else:
            receives = list(self._face.leave(self.path).receives)
        ends = [each.request for each in self._unresolved] + [*more] + self.held
        self._unresolved, self.held = [], []
        self._fail(ends, receives, status)
        self._face.tell(Message(Kind.FAILED, self.epoch, self._received))
        self._enter(Sender.FAILED, why, now_ns)

    def _fail(self, sends: Sequence[Any], receives: Sequence[Any], status: int) -> None:
        for request in sends:
            self._face.complete_send(request, status)
            status = FLUSH
        for receive in receives:
            self._face.complete_receive(receive, FLUSH)
        self._face.leave(Path.of(self.epoch + 1))
        self._waiting = self._draining = False
        self._deadline_ns = self._probe_at_ns = None

    # ---------------------------------------------------------------- moves

    def _move(self, why: str, now_ns: int) -> None:
        """To the next epoch: receives before the word to the peer, and sends after its answer."""
        old = self.path
        self.plain = False
        left = self._face.leave(old)
        self.epoch += 1
        self._left = old
        self._received += left.received
        self._executed += left.notified
        self._unresolved = list(left.sends)
        self._own_psn = (left.next_psn + PSN_GAP) & PSN_MASK
        self._waiting = True
        if self._probing and self.path is Path.DEFAULT:
            self.reprepare()
        self._drained = self._draining = self._probing = self._returning = False
        self._fences = 0
        self._probe_at_ns = None
        self._deadline_ns = now_ns + self.settings.handshake_timeout_ns
        self._post_moved(left.receives)
        fallen = self.path is Path.BACKUP
        state = Receiver.FALLBACK if fallen else Receiver.DEFAULT
        self._enter_receiver(state, why, now_ns, len(left.receives))
        if fallen:
            self._set_interval(now_ns)
            self._enter(Sender.FALLBACK, why, now_ns)
        self._face.tell(Message(Kind.MOVE, self.epoch, self._received, self._own_psn))

    def _set_interval(self, now_ns: int) -> None:
        """A path that fails soon after a failback is probed less often."""
        most = self.settings.most_probe_interval_ns
        if self._returned_ns is not None and now_ns - self._returned_ns < most:
            self._interval_ns = min(self._interval_ns * 2, most)
        else:
            self._interval_ns = self.settings.probe_interval_ns

    def _post_moved(self, receives: Sequence[Any]) -> None:
        self._face.post_receives(self.path, receives)

    def _resolve(self, move: Message, now_ns: int) -> None:
        """The peer's count is known: what was in flight is done, or repeated, or surfaces."""
        try:
            classes = self._classify(move)
        except ProtocolError as error:
            self._surface(str(error), now_ns)
            return
        culprit = classes.culprit
        if culprit is None or not any(each is culprit for each in classes.consumed):
            for request in classes.consumed:
                self._complete_consumed(request)
            self._unresolved = self._unresolved[len(classes.consumed) :]
        if culprit is not None:
            self._surface(f"request {culprit.wr_id} may not be repeated", now_ns)
            return
        self._executed = move.received
        self._unresolved = []
        self._waiting = False
        self._deadline_ns = None
        self._psns = (self._own_psn, move.next_psn)
        if self._left is Path.DEFAULT:
            self._probe_unsure = False
        self._face.prepare(self._left, *self._psns)
        held, self.held = self.held, []
        self._resume(classes, held, now_ns)

    def _classify(self, move: Message) -> Classes:
        """What is unresolved, by the peer's count."""
        return classify(self._unresolved, move.received - self._executed)

    def _complete_consumed(self, request: Any) -> None:
        if self._is_signaled(request):
            self._face.complete_send(request, SUCCESS)

    def _resume(self, classes: Classes, held: list[Any], now_ns: int) -> None:
        if self.path is Path.DEFAULT:
            self._returned_ns = now_ns
            self._enter(Sender.DEFAULT, "both ends have moved", now_ns)
        else:
            self._probe_at_ns = now_ns + self._interval_ns
        self._note_moved(classes, now_ns)
        if self.path is Path.DEFAULT and self._probe_unsure:
            self._returning = True
            self.held = [*classes.rest, *held]
            self._face.probe()
            return
        self._post([*classes.rest, *held], now_ns)
        # Only now: a request that is posted the short way must come behind these.
        self.plain = self.sender is Sender.DEFAULT

    # ---------------------------------------------------------------- failback

    def probed(self, ok: bool, now_ns: int) -> None:
        """What came of the probe of the default path."""
        if self._returning and ok:
            self._post_returned(now_ns)
        if not self._probing:
            return
        self._probing = False
        if self.path is Path.DEFAULT or self._waiting or self.sender is Sender.FAILED:
            return
        if ok:
            self._psns = ((self._psns[0] + 1) & PSN_MASK, self._psns[1])
            self._probe_unsure = False
            if self.sender is Sender.FALLBACK and not self._draining:
                self._enter(Sender.WAIT_SIGNALED, "a probe succeeded", now_ns)
            return
        self._interval_ns = min(self._interval_ns * 2, self.settings.most_probe_interval_ns)
        self.reprepare()
        self._probe_at_ns = now_ns + self._interval_ns
        if self.sender is Sender.WAIT_SIGNALED:
            self._enter(Sender.FALLBACK, "a probe failed", now_ns)

    def _post_returned(self, now_ns: int) -> None:
        """The PSN of the last probe is used: requests may follow."""
        self._returning = self._probe_unsure = False
        held, self.held = self.held, []
        self._post(held, now_ns)
        self.plain = self.sender is Sender.DEFAULT

    def reprepare(self) -> None:
        """The default QP anew, with the PSN of its last probe, which failed or is in flight.

        Where the peer executed it, that PSN is a duplicate: nothing but a probe may have it. What
        the peer's own probe used stays used.
        """
        left = self._face.leave(Path.DEFAULT)
        self._probe_unsure = True
        self._psns = (self._psns[0], left.expected_psn)
        self._face.prepare(Path.DEFAULT, *self._psns)

    def _drain(self, why: str, now_ns: int) -> None:
        """Nothing more is posted in this epoch; the fence completes behind all that is."""
        self._draining, self._drained = True, False
        self._deadline_ns = now_ns + self.settings.drain_timeout_ns
        self._probe_at_ns = None
        self._enter(Sender.WAIT_DRAINED, why, now_ns)
        self._fences += 1
        self._face.fence()

    def fenced(self, now_ns: int) -> None:
        """A fence is done; with the last one, all that was posted in this epoch is."""
        if self._fences == 0:
            return
        self._fences -= 1
        if self._fences or not self._draining or self._drained:
            return
        self._drained = True
        self._face.tell(Message(Kind.DRAINED, self.epoch))
        self._move_if_drained(now_ns)

    def _move_if_drained(self, now_ns: int) -> None:
        if self._drained and self._peer_drained:
            self._peer_drained = False
            self._move("both ends have drained", now_ns)

    def _give_up_failback(self, why: str, now_ns: int, tell: bool) -> None:
        """Post in this epoch after all."""
        if tell:
            self._face.tell(Message(Kind.RESUME, self.epoch))
        self._draining = self._drained = False
        self._deadline_ns = None
        self._interval_ns = min(self._interval_ns * 2, self.settings.most_probe_interval_ns)
        self._probe_at_ns = now_ns + self._interval_ns
        self._enter(Sender.FALLBACK, why, now_ns)
        held, self.held = self.held, []
        self._post(held, now_ns)

    # ---------------------------------------------------------------- the peer, and time

    def handle_message(self, message: Message, now_ns: int) -> None:
        """A control message of the peer; they come in order, each once."""
        if self.sender is Sender.FAILED:
            return
        if message.kind is Kind.MOVE:
            self._handle_move(message, now_ns)
        elif message.kind is Kind.FAILED:
            self._peer_failed(message, now_ns)
        elif message.epoch != self.epoch or self.path is not Path.BACKUP or self._waiting:
            return  # of an epoch that is over
        elif message.kind is Kind.DRAINED:
            self._peer_drained = True
            if not self._draining:
                self._drain("the peer has drained", now_ns)
            self._move_if_drained(now_ns)
        elif message.kind is Kind.RESUME:
            self._peer_drained = False
            if self._draining:
                self._give_up_failback("the peer gave up the failback", now_ns, tell=True)

    def _handle_move(self, message: Message, now_ns: int) -> None:
        if message.epoch == self.epoch + 1 and not self._waiting:
            self._peer_drained = False
            self._move("the peer has moved", now_ns)
        if message.epoch != self.epoch or not self._waiting:
            self._surface(f"the peer moved to epoch {message.epoch}", now_ns)
            return
        self._resolve(message, now_ns)

    def _peer_failed(self, message: Message, now_ns: int) -> None:
        """What the peer executed is done; the rest surfaces."""
        self.plain = False
        if not self._waiting:
            left = self._face.leave(self.path)
            self._executed += left.notified
            self._unresolved = list(left.sends)
            receives = list(left.receives)
        else:
            receives = list(self._face.leave(self.path).receives)
        try:
            classes = self._classify(message)
        except ProtocolError:
            classes = Classes([], [each.request for each in self._unresolved], None)
        if classes.culprit is None:
            for request in classes.consumed:
                self._complete_consumed(request)
        ends = classes.rest if classes.culprit is None else [*classes.consumed, *classes.rest]
        ends, self.held, self._unresolved = [*ends, *self.held], [], []
        self._fail(ends, receives, RETRY_EXC)
        self._enter(Sender.FAILED, "the peer surfaced an error", now_ns)

    def advance(self, now_ns: int) -> None:
        """What is due."""
        if self._deadline_ns is not None and now_ns >= self._deadline_ns:
            self._deadline_ns = None
            if self._waiting:
                self._surface("the peer did not answer", now_ns)
            elif self._draining:
                self._give_up_failback("the failback took too long", now_ns, tell=True)
        if self._probe_at_ns is not None and now_ns >= self._probe_at_ns:
            self._probe_at_ns = None
            self._probing = True
            self._face.probe()

    # ---------------------------------------------------------------- events

    def _enter(self, state: Sender, why: str, now_ns: int) -> None:
        before, self.sender = self.sender, state
        if before is not state:
            self._face.note(self._event("sender", before.value, state.value, why, now_ns))

    def _enter_receiver(self, state: Receiver, why: str, now_ns: int, receives: int) -> None:
        before, self.receiver = self.receiver, state
        event = self._event("receiver", before.value, state.value, why, now_ns)
        self._face.note(dataclasses.replace(event, receives=receives))

    def _note_moved(self, classes: Classes, now_ns: int) -> None:
        state = self.sender.value
        event = self._event("sender", state, state, "the peer has moved", now_ns)
        consumed, resubmitted = len(classes.consumed), len(classes.rest)
        self._face.note(dataclasses.replace(event, consumed=consumed, resubmitted=resubmitted))

    def _event(self, side: str, before: str, after: str, why: str, now_ns: int) -> Event:
        return Event(now_ns, self._qp_num, self.epoch, side, before, after, why)
