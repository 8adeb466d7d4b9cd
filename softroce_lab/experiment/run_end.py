# SPDX-License-Identifier: GPL-2.0-or-later
"""Decides, for both clocks, whether a run ends before all hosts are done, and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from softroce_lab import units


class UnfinishedHost(Protocol):
    @property
    def quiet(self) -> bool:
        """Whether the host sends nothing more until something arrives."""

    @property
    def waits_for_time(self) -> bool:
        """Whether the host will act at a later time even if nothing arrives."""


class Ended(NamedTuple):
    why: str  # a sentence for users
    follows_failure: bool = False  # True: failed messages caused it, and their status says more


class RunEnd:
    """Decides whether a run continues. All times are nanoseconds of the run's clock."""

    def __init__(
        self,
        hosts: int,
        deadline_ns: int,
        *,
        begun_ns: int = 0,
        quiet_ns: int = 0,
        stall_ns: int | None = None,
    ) -> None:
        """`hosts`: how many take part. `deadline_ns`: the longest duration of the run.

        `quiet_ns`: after a failure, the longest time without progress while all hosts are quiet.
        `stall_ns`: the longest time without progress in any case; None: no limit.
        """
        self._hosts = hosts
        self._limit_ns = deadline_ns
        self._begun_ns = self._progress_ns = begun_ns
        self._quiet_ns = quiet_ns
        self._stall_ns = stall_ns
        self._has_failure = False

    def progressed(self, now_ns: int) -> None:
        self._progress_ns = now_ns

    def failed(self) -> None:
        """A message failed: hosts may wait for it forever."""
        self._has_failure = True

    def judge(self, now_ns: int, unfinished: Collection[UnfinishedHost]) -> Ended | None:
        """Why the run ends now; None: it continues, or all hosts are done."""
        if not unfinished:
            return None
        left = f"{len(unfinished)} of {self._hosts}"
        if now_ns - self._begun_ns >= self._limit_ns:
            deadline = units.format_duration(self._limit_ns)
            return Ended(f"the deadline of {deadline} came, {left} hosts were not done")
        if not self._has_failure and self._stall_ns is None:
            return None
        if any(host.waits_for_time for host in unfinished):
            self._progress_ns = now_ns
        idle_ns = now_ns - self._progress_ns
        if (
            self._has_failure
            and idle_ns >= self._quiet_ns
            and all(host.quiet for host in unfinished)
        ):
            return Ended(f"{left} hosts wait for what failed elsewhere", follows_failure=True)
        if self._stall_ns is not None and idle_ns >= self._stall_ns:
            return Ended(f"nothing moved for {units.format_duration(self._stall_ns)}")
        return None
