# SPDX-License-Identifier: GPL-2.0-or-later
"""Event channels of RDMA CM, and the events that they give, as pyverbs has them."""

from __future__ import annotations

from typing import Protocol

from softroce_lab.rdmacm.agent import Queue
from softroce_lab.rdmacm.events import CmEvent, UdParams
from softroce_lab.rdmacm.qp_setup import address_attr
from softroce_lab.rnic.addr import GID, AHAttr
from softroce_lab.rnic.base import expect
from softroce_lab.rnic.errors import PyverbsUserError

WAIT_S = 120.0
"""Longest wait for an event: more than all retries of Linux's CM take."""


class EventOwner(Protocol):
    """An id whose events come by a channel: a CMID."""

    def finish(self, event: CmEvent) -> CmEvent:
        """The event, applied to the id."""


class CMEventChannel:
    """Where events of asynchronous CMIDs wait."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.ids: dict[tuple[int, int], EventOwner] = {}  # (agent, comm id) -> who has it
        self.timeout_s = WAIT_S

    def close(self) -> None:
        """Forget all events."""
        self.queue.events.clear()


class CMEvent:
    """The next event of a channel; waits for it, `channel.timeout_s` at most."""

    def __init__(self, channel: CMEventChannel) -> None:
        expect("channel", channel, CMEventChannel)
        self.agent, event = channel.queue.wait(channel.timeout_s)
        owner = channel.ids.get((id(self.agent), event.id))
        self.event: CmEvent | None = owner.finish(event) if owner else event
        self.event_type = self.event.event
        self.status = self.event.status

    def ack_cm_event(self) -> None:
        """Free what the event holds."""
        self.event = None

    def close(self) -> None:
        """Free what the event holds."""
        self.ack_cm_event()

    def event_str(self) -> str:
        """The event's name in C; nothing after it was acknowledged."""
        return self.event_type.name if self.event else ""

    @property
    def private_data(self) -> bytes:
        """The peer's private data, with zeros up to the length of the field in its message."""
        held = (self.event.conn or self.event.ud) if self.event else None
        return held.private_data if held else b""


class UDParam:
    """How to reach a datagram queue pair of an event."""

    def __init__(self, cm_event: CMEvent) -> None:
        expect("cm_event", cm_event, CMEvent)
        if cm_event.event is None or cm_event.event.ud is None:
            raise PyverbsUserError("the event tells of no datagram queue pair")
        self._ud: UdParams = cm_event.event.ud

    @property
    def qp_num(self) -> int:
        """Its number."""
        return self._ud.qp_num

    @property
    def qkey(self) -> int:
        """Its Q_Key."""
        return self._ud.qkey

    @property
    def ah_attr(self) -> AHAttr:
        """What an address handle to it is made of."""
        return address_attr(GID(str(self._ud.gid)))
