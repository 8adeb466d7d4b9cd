# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager at work: a port, a clock, and those who wait for its events."""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import Self

from softroce_lab.rdmacm.connection import Connection
from softroce_lab.rdmacm.events import CmEvent, Outputs, Send, rdma_cm_event_type
from softroce_lab.rdmacm.gsi import GsiPort, MadPort, source_index
from softroce_lab.rdmacm.manager import ConnectionManager
from softroce_lab.rdmacm.service import Address, address_of, gid_of
from softroce_lab.rdmacm.settings import CmTiming, PortIdentity, Stream
from softroce_lab.rnic.base import Closable, expect
from softroce_lab.rnic.cq import CQ, WC
from softroce_lab.rnic.device import Context
from softroce_lab.rnic.errors import PyverbsError, PyverbsRDMAError

_BUSY_S, _IDLE_S = 0.0002, 0.002  # between polls of the port
_BUSY_FOR_S = 0.05  # after the last MAD
_TURN_S = 0.0001  # in which other threads get a turn, where those who wait drive the clock
_LONGEST_NAP_S = 1.0  # of a waiting thread, which so handles signals
_MOST_SILENCES = 3  # of the RNIC, one after another, which is busy and not gone
_FIRST_PORT, _PORTS = 32768, 28232  # ephemeral ones, as Linux has them

_agents: dict[IPv6Address, CmAgent] = {}
_changed = threading.Condition()  # guards all agents of the process


class Queue:
    """Events of an event channel, of one agent or several."""

    def __init__(self) -> None:
        self.events: collections.deque[tuple[CmAgent, CmEvent]] = collections.deque()
        self.agents: list[CmAgent] = []

    def take(self, agent: CmAgent, comm_id: int) -> list[tuple[CmAgent, CmEvent]]:
        """Take out the events of one id."""
        taken = [each for each in self.events if each[0] is agent and each[1].id == comm_id]
        self.events = collections.deque(each for each in self.events if each not in taken)
        return taken

    def wait(self, timeout_s: float) -> tuple[CmAgent, CmEvent]:
        """The next event, and whose; ETIMEDOUT if none comes within `timeout_s`."""
        with _changed:
            for _ in turns(self.agents, timeout_s):
                if self.events:
                    return self.events.popleft()
                for agent in self.agents:
                    agent.check_working()
        raise PyverbsRDMAError("Failed to get an event", errno.ETIMEDOUT)


def drive(agents: list[CmAgent]) -> bool:
    """Take a turn of all agents that have no thread; False: all have one."""
    return any([agent.driven() for agent in agents])  # noqa: C419 - all, not the first one


def turns(agents: list[CmAgent], timeout_s: float) -> Iterator[None]:
    """Once each time something may have changed, until time is up; under `_changed`."""
    clock_ns = agents[0].clock_ns if agents else time.monotonic_ns
    until_ns = clock_ns() + int(timeout_s * 1e9)
    yield
    while (left_ns := until_ns - clock_ns()) > 0:
        nap_s = _TURN_S if drive(agents) else min(left_ns / 1e9, _LONGEST_NAP_S)
        _changed.wait(nap_s)
        yield


class CmAgent(Closable):
    """RDMA CM for a context: afterwards `CMID`s with an address of its port can be made.

    A thread of its own serves the port. Where `drive` is given none is started: whoever waits
    calls it, again and again, and the clock is `clock_ns`.
    """

    close_rank = -1

    def __init__(
        self,
        context: Context,
        *,
        port: MadPort | None = None,
        timing: CmTiming | None = None,
        stream: Stream | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        drive: Callable[[], None] | None = None,
    ) -> None:
        expect("context", context, Context)
        self.context = context
        identity = port_identity(context)
        if taken := [gid for gid in identity.gids if gid in _agents]:
            raise PyverbsRDMAError(
                "Failed to create a CM agent", errno.EBUSY, hint=f"{taken[0]} has one"
            )
        self.manager = ConnectionManager(identity, stream or secrets.SystemRandom(), timing)
        self.clock_ns = clock_ns
        self._drive = drive
        self._queues: dict[int, Queue] = {}
        self._mad_port = port or GsiPort(context)
        self._next_port = 0
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="rdma-cm", daemon=True)
        for gid in identity.gids:
            _agents[gid] = self
        super().__init__(context)
        if drive is None:
            self._thread.start()

    # For CMIDs

    def create(self, queue: Queue) -> int:
        """A new id whose events go to `queue`."""
        with _changed:
            comm_id = self.manager.create()
        self.move(comm_id, queue)
        return comm_id

    def move(self, comm_id: int, queue: Queue) -> None:
        """Move the events of an id to another queue, unread ones included."""
        with _changed:
            old = self._queues.get(comm_id)
            self._queues[comm_id] = queue
            if old is not None and old is not queue:
                queue.events += old.take(self, comm_id)
            if self not in queue.agents:
                queue.agents.append(self)

    def call(self, work: Callable[[ConnectionManager, int], Outputs | None]) -> None:
        """Let the manager do something now, and carry it out."""
        self.check_working()
        with _changed:
            self._take(work(self.manager, self.clock_ns()) or [])

    def destroy(self, comm_id: int) -> None:
        """Forget an id and its events, and of a listener the requests that wait."""
        with _changed:
            ended = (comm_id, *self.manager.waiting(comm_id))
            self._take(self.manager.destroy(comm_id, self.clock_ns()))
            for each in ended:
                queue = self._queues.pop(each, None)
                if queue is not None:
                    queue.take(self, each)

    def connection(self, comm_id: int) -> Connection:
        """The connection of an id; EINVAL if it has none."""
        with _changed:
            return self.manager.connection(comm_id)

    def source_for(self, destination: Address) -> Address:
        """The port's address to reach another from; one of another IP version if it has no other.

        `ConnectionManager.resolve_addr` describes the result.
        """
        gids = self.manager.port.gids
        return address_of(gids[source_index(gids, gid_of(destination))])

    def source_index(self, gid: IPv6Address) -> int:
        """Index of the port's GID to reach another from."""
        return source_index(self.manager.port.gids, gid)

    def poll_until(self, cq: CQ, timeout_s: float) -> WC:
        """The next completion of a queue; ETIMEDOUT if none comes within `timeout_s`."""
        until_ns = self.clock_ns() + int(timeout_s * 1e9)
        while True:
            count, completions = cq.poll(1)
            if count:
                return completions[0]
            if self.clock_ns() >= until_ns:
                raise PyverbsRDMAError("Failed to get a completion", errno.ETIMEDOUT)
            if not self.driven():
                time.sleep(_BUSY_S)

    def source_port(self) -> int:
        """An ephemeral port for an active side."""
        with _changed:
            self._next_port = (self._next_port + 1) % _PORTS
            return _FIRST_PORT + self._next_port

    # At work

    def driven(self) -> bool:
        """Let time go on, and take a turn, where no thread does. False: one does."""
        if self._drive is None:
            return False
        with _changed:
            self._drive()
            self.turn()
        return True

    def turn(self) -> bool:
        """Handle arrivals and due timers. False: there was nothing."""
        with _changed:
            now_ns = self.clock_ns()
            received = self._mad_port.poll()
            for source, octets in received:
                self._take(self.manager.handle_mad(octets, source, now_ns))
            due_ns = self.manager.next_timeout_ns
            if due_ns is not None and due_ns <= now_ns:
                self._take(self.manager.handle_timeout(now_ns))
            return bool(received)

    def _work(self) -> None:
        busy_until_s, silences = 0.0, 0
        while not self._stopping and self._failure is None:
            now_s = time.monotonic()
            try:
                if self.turn():
                    busy_until_s = now_s + _BUSY_FOR_S
                silences = 0
            except Exception as error:  # every waiting thread gets any error
                silences += 1
                if not _is_silence(error) or silences > _MOST_SILENCES:
                    self._fail(error)
            time.sleep(_BUSY_S if now_s < busy_until_s else _IDLE_S)

    def _fail(self, error: Exception) -> None:
        with _changed:
            self._failure = error
            _changed.notify_all()

    def check_working(self) -> None:
        """Raise what ended the agent's thread, if anything did."""
        failure = self._failure
        if failure is not None:
            why = str(failure) if isinstance(failure, PyverbsError) else repr(failure)
            raise PyverbsRDMAError("Failed to reach the CM agent", errno.EIO, hint=why) from failure

    def _take(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._send(output)
            else:
                self._tell(output)

    def _send(self, output: Send) -> None:
        """If the RNIC does not respond, the MAD is lost; all other work continues."""
        try:
            self._mad_port.send(output.gid, output.mad)
        except PyverbsRDMAError as error:
            if not _is_silence(error):
                raise

    def _tell(self, event: CmEvent) -> None:
        if event.event == rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_REQUEST:
            # A new id reports to its listener until it is taken.
            self._queues[event.id] = self._queues[event.listen_id or 0]
        queue = self._queues.get(event.id)
        if queue is not None:
            queue.events.append((self, event))
            _changed.notify_all()

    def _release(self) -> None:
        self._stopping = True
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        for gid in self.manager.port.gids:
            _agents.pop(gid, None)
        self._mad_port.close()

    @classmethod
    def at(cls, address: Address | None) -> Self | CmAgent:
        """The agent of this process that has an address; of the only one if `address` is None."""
        found = list(dict.fromkeys(_agents.values()))
        if address is not None and not address.is_unspecified:
            found = [each for each in found if gid_of(address) in each.manager.port.gids]
        if len(found) != 1:
            raise PyverbsRDMAError(
                "Failed to find the RDMA device",
                errno.ENODEV,
                hint=f"no CmAgent has {address}" if address else "name a source address",
            )
        return found[0]


@atexit.register
def _close_all() -> None:
    """Close the agents that are still open: their threads would hold their devices for ever."""
    for agent in set(_agents.values()):
        with contextlib.suppress(PyverbsError):
            agent.close()


def _is_silence(error: Exception) -> bool:
    """Whether the RNIC did not respond in time. MADs that this lost are sent again."""
    return isinstance(error, PyverbsRDMAError) and error.error_code == errno.ETIMEDOUT


def port_identity(context: Context) -> PortIdentity:
    """Who port 1 of a context is to others."""
    gids = tuple(IPv6Address(entry.gid.gid) for entry in context.query_gid_table())
    device = context.query_device()
    return PortIdentity(
        gids=gids,
        ca_guid=device.node_guid,
        active_mtu=context.query_port(1).active_mtu,
        ack_delay=device.local_ca_ack_delay,
    )
