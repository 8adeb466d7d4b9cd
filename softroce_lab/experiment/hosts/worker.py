# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's part in a workload on the real clock: real bytes, real arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts.buffers import host_memory
from softroce_lab.experiment.hosts.messenger import Done, Messenger
from softroce_lab.experiment.hosts.settings import WorkloadSettings, unpacked
from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.progress import HostWork, Posts
from softroce_lab.workloads.work import Message, by_host


class Worker:
    """Posts what `HostWork` yields. Times are nanoseconds since the epoch of the host's engine."""

    def __init__(self, settings: WorkloadSettings) -> None:
        workload = unpacked(settings.workload)
        sends, receives = by_host(workload)[settings.host]
        self._work = HostWork(sends, receives, settings.depth)
        self._receives = {(each.source, each.key): each for each in receives}
        self.peers = peers_of(sends, receives)
        self._buffer = host_memory(workload, settings.host, settings.seed, receives, settings.depth)
        self.memory = self._buffer.memory
        self.done_bytes = 0  # of messages that were sent or received
        self.done_messages = 0  # that were received
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
            self._buffer.sent(done.peer, done.key)
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
            offset = self._buffer.source(each)
            self._messenger.post_send(each.destination, each.key, offset, each.length_bytes)

    def result(self) -> dict[str, Any]:
        """What is open, and what of the bytes is wrong: "wrong" is None if not all arrived."""
        wrong = self._buffer.wrong() if self.finished and not self.failed else None
        return {
            "bytes": self.done_bytes,
            "left": self._work.left,
            "wrong": wrong,
            "sha256": self._buffer.sha256(),
        }

    def close(self) -> None:
        """Let go of files; the memory is the engine's until the process ends."""
        self._buffer.close()


def peers_of(sends: Iterable[Message], receives: Iterable[Message]) -> tuple[int, ...]:
    """The peers of a host, ascending."""
    return tuple(sorted({m.destination for m in sends} | {m.source for m in receives}))
