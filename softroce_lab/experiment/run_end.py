# SPDX-License-Identifier: GPL-2.0-or-later
"""When a run is over before all hosts are done, and why: judged once for both clocks."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from softroce_lab import units


class UnfinishedHost(Protocol):
    """What is known of a host that is not done."""

    @property
    def quiet(self) -> bool:
        """Whether it sends nothing more unless something arrives."""

    @property
    def waits_for_time(self) -> bool:
        """Whether it has something to do at a later time, whatever others do."""


class Ended(NamedTuple):
    """Why a run ends."""

    why: str  # in words
    follows_failure: bool = False  # of messages, whose ends say more


class RunEnd:
    """Decides whether a run goes on. All times are of the run's clock, in nanoseconds."""

    def __init__(
        self,
        hosts: int,
        deadline_ns: int,
        *,
        begun_ns: int = 0,
        quiet_ns: int = 0,
        stall_ns: int | None = None,
    ) -> None:
        """`hosts`: how many take part. `deadline_ns`: from the beginning of the run.

        `quiet_ns`: how long nothing may move after a failure while all hosts are quiet. `stall_ns`:
        how long nothing may move in any case. None: the clock cannot stand still.
        """
        self._hosts = hosts
        self._limit_ns = deadline_ns
        self._begun_ns = self._moved_ns = begun_ns
        self._quiet_ns = quiet_ns
        self._stall_ns = stall_ns
        self._has_failure = False

    def progressed(self, now_ns: int) -> None:
        """A message arrived, or a host is done."""
        self._moved_ns = now_ns

    def failed(self) -> None:
        """A message failed: others may wait for it in vain."""
        self._has_failure = True

    def judge(self, now_ns: int, unfinished: Collection[UnfinishedHost]) -> Ended | None:
        """None: the run goes on, or all hosts are done."""
        if not unfinished:
            return None
        left = f"{len(unfinished)} of {self._hosts}"
        if now_ns - self._begun_ns >= self._limit_ns:
            deadline = units.format_duration(self._limit_ns)
            return Ended(f"the deadline of {deadline} came, {left} hosts were not done")
        if not self._has_failure and self._stall_ns is None:
            return None
        if any(host.waits_for_time for host in unfinished):
            self._moved_ns = now_ns
        still_ns = now_ns - self._moved_ns
        if (
            self._has_failure
            and still_ns >= self._quiet_ns
            and all(host.quiet for host in unfinished)
        ):
            return Ended(f"{left} hosts wait for what failed elsewhere", follows_failure=True)
        if self._stall_ns is not None and still_ns >= self._stall_ns:
            return Ended(f"nothing moved for {units.format_duration(self._stall_ns)}")
        return None
