# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's part in a workload on the real clock: real bytes, real arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts.buffers import HostBuffer
from softroce_lab.experiment.hosts.messenger import Done, Messenger
from softroce_lab.experiment.hosts.settings import WorkloadSettings, unpacked
from softroce_lab.experiment.hosts.task import Task
from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.progress import HostWork, Posts
from softroce_lab.workloads.work import Message, by_host, mismatches


class Worker(Task):
    """Posts what `HostWork` says, and adds up what arrives to be added."""

    def __init__(self, settings: WorkloadSettings) -> None:
        self._workload = workload = unpacked(settings.workload)
        self._host = host = settings.host
        self._seed, depth = settings.seed, settings.depth
        sends, receives = by_host(workload)[host]
        self._work = HostWork(sends, receives, depth)
        self._receives = {(each.source, each.key): each for each in receives}
        self.peers = peers_of(sends, receives)
        self._buffer = HostBuffer(workload, host, self._seed, receives)
        self._buffer.reserve(2 * depth * len({each.source for each in receives}))
        self.memory = self._buffer.memory
        self._began_ns = 0

    # ---------------------------------------------------------------- how far it is

    @property
    def finished(self) -> bool:
        """Whether everything is over."""
        return self._work.finished

    @property
    def quiet(self) -> bool:
        """Whether it sends nothing more, unless something arrives."""
        return self._work.quiet

    @property
    def failed(self) -> bool:
        """Whether a message failed."""
        return self._work.failed

    @property
    def next_at_ns(self) -> int:
        """When the next send that waits for its time may go."""
        at_ns = self._work.next_at_ns
        return at_ns if at_ns == NEVER_NS else self._began_ns + at_ns

    # ---------------------------------------------------------------- what happens

    def prepare(self, messenger: Messenger) -> None:
        """Post the first receives."""
        self._messenger = messenger
        receives, self._first_sends = self._work.begin()
        self._post(Posts(receives, []))

    def begin(self, now_ns: int) -> None:
        """Post the first sends; the workload's times count from now."""
        self._began_ns = now_ns
        self._post(Posts([], self._first_sends))

    def on_time(self, now_ns: int) -> None:
        """Post what waited for its time."""
        self._post(self._work.on_time(now_ns - self._began_ns))

    def complete(self, done: Done) -> None:
        """A post is over, well or not."""
        if done.status != ibv_wc_status.IBV_WC_SUCCESS:
            self._fail(done)
        elif done.kind == "send":
            self.done_bytes += done.bytes
            self._post(self._work.on_sent(done.peer, done.key))
        else:
            self._take(done)
            self._post(self._work.on_received(done.peer, done.key))

    def _fail(self, done: Done) -> None:
        if done.kind == "send":
            self._work.on_send_failed(done.peer, done.key)
        else:
            self._work.on_receive_failed(done.peer, done.key)

    def _take(self, done: Done) -> None:
        message = self._receives[done.peer, done.key]
        if done.bytes != message.length_bytes:
            raise RunError(f"message {done.key} of host {done.peer} is {done.bytes} bytes long")
        self._buffer.received(message)
        self.done_bytes += done.bytes
        self.done_messages += 1

    def _post(self, posts: Posts) -> None:
        for each in posts.receives:
            offset = self._buffer.place(each)
            self._messenger.post_receive(each.source, each.key, offset, each.length_bytes)
        for each in posts.sends:
            self._messenger.post_send(
                each.destination, each.key, each.source_offset, each.length_bytes
            )

    def result(self) -> dict[str, Any]:
        """What is open, and what of the buffer is wrong: "wrong" is None if not all arrived."""
        wrong = None
        if self.finished and not self.failed:
            wrong = mismatches(self._workload, [(self._host, self._buffer.buffer)], self._seed)
        return {"bytes": self.done_bytes, "left": self._work.left, "wrong": wrong}


def peers_of(sends: Iterable[Message], receives: Iterable[Message]) -> tuple[int, ...]:
    """With whom a host talks, ascending."""
    return tuple(sorted({m.destination for m in sends} | {m.source for m in receives}))
