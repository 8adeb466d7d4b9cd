# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process does between `connect` and `finish`: something that posts and is told."""

from __future__ import annotations

import abc
from typing import Any, Self

from softroce_lab.experiment.hosts.messenger import Done, Memory, Messenger
from softroce_lab.recovery.api import NEVER_NS


class Task(abc.ABC):
    """Work over one messenger. Times are nanoseconds since the epoch of the host's engine."""

    memory: Memory  # what messages come from and go to
    peers: tuple[int, ...]  # with whom it talks
    done_bytes: int = 0  # of messages that were sent or received
    done_messages: int = 0  # that were received

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abc.abstractmethod
    def finished(self) -> bool:
        """Whether everything is over."""

    @property
    def quiet(self) -> bool:
        """Whether it sends nothing more, unless something arrives."""
        return self.finished

    @property
    def failed(self) -> bool:
        """Whether a part of it failed, and the others go on."""
        return False

    @property
    def next_at_ns(self) -> int:
        """When `on_time` has something to do; NEVER_NS: when something is over, not before."""
        return NEVER_NS

    @abc.abstractmethod
    def prepare(self, messenger: Messenger) -> None:
        """Post the receives that are to be there before anybody begins."""

    @abc.abstractmethod
    def begin(self, now_ns: int) -> None:
        """Everybody is prepared."""

    @abc.abstractmethod
    def complete(self, done: Done) -> None:
        """A post is over. RdmaError, if this one may not fail and did."""

    def on_time(self, now_ns: int) -> None:  # noqa: B027 - most wait for nothing
        """It is `next_at_ns`, or later."""

    @abc.abstractmethod
    def result(self) -> dict[str, Any]:
        """What came of it, when it is over or was stopped."""

    def close(self) -> None:  # noqa: B027 - most have none
        """Let go of files; the memory is the engine's until the process ends."""
