# SPDX-License-Identifier: GPL-2.0-or-later
"""A view of a running lab, or of a topology file. Reading takes no lock of the lab."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

from softroce_lab import topology
from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.fabric import guests, runtime
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.guests import Guest
from softroce_lab.fabric.ledger import planfile, removal
from softroce_lab.fabric.net import netns
from softroce_lab.fabric.observe import damage
from softroce_lab.fabric.observe.damage import Damage
from softroce_lab.fabric.rights import needing_root
from softroce_lab.fabric.runtime import Condition
from softroce_lab.plan.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A plan, and the lab that realises it if one is up."""

    plan: Plan
    condition: Condition | None = None

    @property
    def is_up(self) -> bool:
        return self.condition is not None

    @property
    def directory(self) -> Path:
        return runtime.DIRECTORY / self.plan.name

    @property
    def bpffs(self) -> Path:
        return self.directory / runtime.BPFFS

    @property
    def lacks(self) -> tuple[str, ...]:
        """Capabilities that the lab that is up does without (lacks.py)."""
        return () if self.condition is None else tuple(self.condition.history.state_facts["lacks"])

    def now(self) -> View:
        """The same lab with the faults that are set now. RunError if it went down."""
        if self.condition is None:
            return self
        try:
            return View(planfile.read(self.directory), self.condition)
        except FileNotFoundError as error:
            raise RunError(f"the lab {self.plan.name} went down") from error

    @property
    def has_timeline(self) -> bool:
        return any(not fault.window.always for fault in self.plan.faults)

    def moment_ns(self) -> int | None:
        """The present moment of the timeline; None: of a file. LabError if the maps are gone."""
        if not self.is_up:
            return None
        if not self.has_timeline:
            return 0  # as good as any
        with self.maps() as fabric:
            return moment_ns(fabric)

    def damage(self) -> list[Damage]:
        """What the lab that is up has lost; nothing of a file. EnvironmentLackError."""
        if self.condition is None:
            return []
        with needing_root():
            return damage.of_lab(self.plan.name, self.condition.history, self.plan)

    @contextlib.contextmanager
    def maps(self) -> Iterator[XdpFabric]:
        """The lab's maps. LabError if they are gone."""
        with needing_root():
            fabric = XdpFabric.open(self.bpffs)
        try:
            yield fabric
        finally:
            fabric.close()

    @property
    def _lab(self) -> Condition:
        if self.condition is None:
            raise ValueError(f"{self.plan.name} is not up")
        return self.condition

    @contextlib.contextmanager
    def inside(self, node: str) -> Iterator[None]:
        with namespace_of(self._lab, node) as fd, netns.entered(fd):
            yield

    @contextlib.contextmanager
    def guest(self, node: str) -> Iterator[Guest]:
        with namespace_of(self._lab, node) as fd:
            processes = self._lab.history.of_kind("process")
            yield guests.reach(self.plan, node, lambda: processes, lambda: fd, self.directory)


def moment_ns(fabric: XdpFabric) -> int:
    return max(0, time.monotonic_ns() - fabric.timeline.epoch_ns)


def up(name: str | None) -> Condition:
    """The lab called `name`, or the only one that is up. UserError."""
    if name is None:
        found = only()
    else:
        runtime.existing(name)
        found = next((condition for condition in _all_up() if condition.name == name), None)
    if found is None:
        raise UserError(f"the lab {name} is not up" if name else "no lab is up", hint="lab up FILE")
    return found


def only(or_else: str = "") -> Condition | None:
    """The lab that is up; None: there is none. UserError, with a hint, if there are several."""
    found = _all_up()
    if len(found) > 1:
        names = ", ".join(condition.name for condition in found)
        raise UserError(f"several labs are up: {names}", hint=f"say which one: --lab NAME{or_else}")
    return found[0] if found else None


def _all_up() -> list[Condition]:
    return [condition for condition in runtime.labs() if condition.word == "up"]


def of_lab(name: str | None) -> View:
    """The lab called `name`, or the only one that is up. UserError."""
    condition = up(name)
    with needing_root():
        try:
            return View(planfile.read(runtime.DIRECTORY / condition.name), condition)
        except FileNotFoundError as error:
            raise RunError(f"the lab {condition.name} went down") from error


def of(where: str | None) -> View:
    """The lab called `where` if there is one, else the topology file; None: the only lab."""
    known = runtime.DIRECTORY.iterdir() if runtime.DIRECTORY.is_dir() else ()
    if where is None and only(" or FILE") is None:
        raise UserError("no lab is up", hint="lab up FILE, or --lab FILE: a topology file")
    if where is None or where in {entry.name for entry in known}:
        return of_lab(where)
    return View(topology.load(where))


@contextlib.contextmanager
def namespace_of(condition: Condition, node: str) -> Iterator[int]:
    """A descriptor of a node's network namespace, for a while.

    UserError; LabError if it is gone; EnvironmentLackError.
    """
    entries = {entry.facts["node"]: entry for entry in condition.history.of_kind("netns")}
    if node not in entries:
        hint = f"there are: {', '.join(entries)}"
        raise UserError(f"the lab {condition.name} has no node {node}", hint=hint)
    name = entries[node].facts["name"]
    with needing_root():
        fd = netns.opened(name, removal.identity_of(entries[node]))
    if fd is None:
        raise LabError(f"the namespace {name} is gone", hint=f"lab down {condition.name}")
    try:
        yield fd
    finally:
        os.close(fd)
