# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's part in a workload on the real clock: real bytes, real arithmetic."""

from __future__ import annotations

from typing import Any

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts.buffers import host_memory
from softroce_lab.experiment.hosts.messenger import Done, Messenger
from softroce_lab.experiment.hosts.settings import WorkloadSettings, unpacked
from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.progress import Act, HostWork, Posts


class Worker:
    """Posts what `HostWork` yields. Times are nanoseconds since the epoch of the host's engine."""

    def __init__(self, settings: WorkloadSettings) -> None:
        workload = unpacked(settings.workload)
        schedule = workload.schedule()
        self._work = HostWork(schedule.of[settings.host], settings.depth)
        receives = schedule.receives(settings.host)
        self._lengths = {(each.source, each.key): each.length_bytes for each in receives}
        self.peers = schedule.peers(settings.host)
        self._buffer = host_memory(workload, schedule, settings.host, settings.seed, settings.depth)
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
        self._first = self._work.begin()
        for message in self._first.of(Act.RECEIVE):
            self._receive(message)

    def begin(self, now_ns: int) -> None:
        """Post the first sends; the workload's times count from now."""
        self._began_ns = now_ns
        self._post(Posts(each for each in self._first if each[0] is not Act.RECEIVE))

    def on_time(self, now_ns: int) -> None:
        """Post what waited for its time."""
        self._post(self._work.on_time(now_ns - self._began_ns))

    def complete(self, done: Done) -> None:
        """A post is over, well or not."""
        now_ns = done.completed_ns - self._began_ns
        if done.status != ibv_wc_status.IBV_WC_SUCCESS:
            self._fail(done)
        elif done.kind == "send":
            self.done_bytes += done.bytes
            self._buffer.sent(done.peer, done.key)
            self._post(self._work.on_sent(done.peer, done.key, now_ns))
        else:
            self._take(done)
            self._post(self._work.on_received(done.peer, done.key, now_ns))

    def _fail(self, done: Done) -> None:
        if done.kind == "send":
            self._work.on_send_failed(done.peer, done.key)
        else:
            self._work.on_receive_failed(done.peer, done.key)

    def _take(self, done: Done) -> None:
        if done.bytes != self._lengths[done.peer, done.key]:
            raise RunError(f"message {done.key} of host {done.peer} is {done.bytes} bytes long")
        self.done_bytes += done.bytes
        self.done_messages += 1

    def _post(self, posts: Posts) -> None:
        for act, message in posts:
            if act is Act.SEND:
                at = self._buffer.source(message)
                self._messenger.post_send(
                    message.destination, message.key, at, message.length_bytes
                )
            elif act is Act.RECEIVE:
                self._receive(message)
            else:
                self._buffer.take(act, message)

    def _receive(self, message: Message) -> None:
        at = self._buffer.place(message)
        self._messenger.post_receive(message.source, message.key, at, message.length_bytes)

    def result(self, digest: str | None = None) -> dict[str, Any]:
        """What is open, and what of the bytes is wrong: "wrong" is None if not all arrived.

        `digest`: SHA-256 of the right bytes, hex, if it is known.
        """
        wrong = self._buffer.wrong(digest) if self.finished and not self.failed else None
        return {
            "bytes": self.done_bytes,
            "left": self._work.left,
            "wrong": wrong,
            "sha256": self._buffer.sha256(),
        }

    def close(self) -> None:
        """Let go of files; the memory is the engine's until the process ends."""
        self._buffer.close()
