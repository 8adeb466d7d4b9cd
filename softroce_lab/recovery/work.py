# SPDX-License-Identifier: GPL-2.0-or-later
"""What a datagram policy keeps of the work outstanding with a peer. All of it is bounded.

A message id is the sender's: its slot is the id modulo the number of slots. A sender does not use
a slot again before it knows what became of the message in it, so the newest outcome of each slot
is all that a receiver has to remember.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control
from softroce_lab.recovery.api import NEVER_NS, Key

_MOST_REMEMBERED = 4096
_IDS = 1 << 32


def is_newer(id_: int, than: int) -> bool:
    """Whether an id was given later than another; ids wrap (RFC 1982)."""
    return 0 < (id_ - than) % _IDS < _IDS // 2


@dataclasses.dataclass(slots=True)
class Sending:
    """A send that has not been acknowledged."""

    handle: int
    peer: int
    id: int
    key: Key
    count: int
    rnr_naks: int = 0  # times the receiver was not ready
    retry_ns: int = 0  # paused until then because of it
    out: bool = False  # every packet has been sent,
    out_ns: int = 0  # since then nothing of it waits to be sent
    reported: int = 0  # packets that had arrived at the peer when it was last looked at
    known_missing: control.PacketSet | None = None  # of packets or chunks, by the last feedback
    timeouts_without_progress: int = 0  # timeouts, or keepalives, in a row
    memory: Any = None  # of the policy


@dataclasses.dataclass(slots=True)
class Receiving:
    """A posted receive that is not complete."""

    handle: int
    peer: int
    key: Key
    count: int
    id: int | None = None  # None: no packet has arrived
    received: int = 0  # packets, known ones too, when last looked at
    timeouts_without_progress: int = 0  # loss checks in a row
    fed_back: int = 0  # packets that had arrived, known ones too, when feedback was sent last
    timer_at_ns: int = NEVER_NS  # when it ends
    memory: Any = None  # of the policy


@dataclasses.dataclass(slots=True)
class Outcome:
    """What became of a message that came."""

    id: int
    status: ibv_wc_status
    acknowledgements: int = -1  # times acknowledged, a round trip and more apart, behind the first,
    counted_ns: int = 0  # and when it was counted last


@dataclasses.dataclass(slots=True)
class PeerWork:
    """What is outstanding with one peer."""

    index: int
    slots: int
    sends: dict[int, Sending] = dataclasses.field(default_factory=dict)  # by id
    sends_by_key: dict[Key, Sending] = dataclasses.field(default_factory=dict)
    refusals: dict[int, control.Refused] = dataclasses.field(default_factory=dict)  # not acked yet
    newest_id: int | None = None  # that was given to a send
    receives: dict[int, Receiving] = dataclasses.field(default_factory=dict)  # by handle
    opened: dict[int, Receiving] = dataclasses.field(default_factory=dict)  # by id
    begun: dict[Key, Receiving] = dataclasses.field(default_factory=dict)  # opened, by key
    unopened: dict[Key, Receiving] = dataclasses.field(default_factory=dict)
    outcomes: dict[int, Outcome] = dataclasses.field(default_factory=dict)  # by slot
    rnr_sent: OrderedDict[Key, int] = dataclasses.field(default_factory=OrderedDict)
    refused: OrderedDict[int, None] = dataclasses.field(default_factory=OrderedDict)  # by senders
    acks: dict[int, None] = dataclasses.field(default_factory=dict)
    acked_before: tuple[int, ...] = ()  # in the batch before; sent redundantly with the next
    ack_at_ns: int | None = None
    keepalive_at_ns: int | None = None
    began_ns: int = 0
    keepalive_sent_ns: int = 0  # when the last keepalive was sent
    keepalives_unanswered: int = 0

    def busy(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self.sends or self.receives or self.refusals)

    # ---------------------------------------------------------------- sends

    def add_send(self, send: Sending) -> None:
        """A send was posted."""
        self.sends[send.id] = self.sends_by_key[send.key] = send
        self.newest_id = send.id

    def was_sent(self, id_: int) -> bool:
        """Whether a send was ever given this id."""
        return self.newest_id is not None and not is_newer(id_, self.newest_id)

    def forget_send(self, send: Sending) -> None:
        """A send is over."""
        del self.sends[send.id]
        if self.sends_by_key.get(send.key) is send:
            del self.sends_by_key[send.key]

    # ---------------------------------------------------------------- receives

    def add_receive(self, receive: Receiving) -> None:
        """A receive was posted."""
        self.receives[receive.handle] = self.unopened[receive.key] = receive

    def open(self, receive: Receiving, id_: int, count: int) -> None:
        """The first packet carried a receive's id and count."""
        self._forget_name(receive)
        receive.id, receive.count = id_, count
        self.opened[id_] = self.begun[receive.key] = receive

    def receive_of(self, id_: int, key: Key) -> Receiving | None:
        """The receive that the sender's message `id_` fills, or will."""
        opened = self.opened.get(id_)
        if opened is None:
            return self.unopened.get(key)
        return opened if opened.key == key else None

    def has_begun(self, key: Key) -> bool:
        """Whether a message of this key is open; its sender has one of a key at a time."""
        return key in self.begun

    def forget_receive(self, handle: int) -> Receiving | None:
        """A receive is over."""
        receive = self.receives.pop(handle, None)
        if receive is not None:
            self._forget_name(receive)
        return receive

    def _forget_name(self, receive: Receiving) -> None:
        """By key or by id, unless it names another one already."""
        key = receive.key
        if self.unopened.get(key) is receive:
            del self.unopened[key]
        if receive.id is not None:
            if self.begun.get(key) is receive:
                del self.begun[key]
            if self.opened.get(receive.id) is receive:
                del self.opened[receive.id]

    def end(self, id_: int, status: ibv_wc_status) -> None:
        """Remember what became of the sender's message `id_`."""
        newest = self.outcomes.get(id_ % self.slots)
        if newest is None or not is_newer(newest.id, id_):
            self.outcomes[id_ % self.slots] = Outcome(id_, status)

    def outcome(self, id_: int) -> ibv_wc_status | None:
        """What became of it; None: not over. One older than the newest of its slot is over."""
        newest = self.outcomes.get(id_ % self.slots)
        return None if newest is None or is_newer(id_, newest.id) else newest.status

    def count_acknowledgement(self, id_: int, now_ns: int, round_ns: int) -> bool:
        """It is acknowledged; whether that counts as once more, being a round after the last."""
        outcome = self.outcomes[id_ % self.slots]
        if outcome.acknowledgements >= 0 and now_ns - outcome.counted_ns < round_ns:
            return False
        outcome.acknowledgements += 1
        outcome.counted_ns = now_ns
        return True

    def remember_rnr(self, key: Key, id_: int) -> None:
        """A message found no receive; its sender is informed when one is posted."""
        self.rnr_sent[key] = id_
        if len(self.rnr_sent) > _MOST_REMEMBERED:
            self.rnr_sent.popitem(last=False)

    def remember_refused(self, id_: int) -> None:
        """The sender of this message reported its failure, and may repeat the report."""
        self.refused[id_] = None
        if len(self.refused) > _MOST_REMEMBERED:
            self.refused.popitem(last=False)
