# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab's own parts saw of a run on the real clock, and whether the run can be trusted."""

from __future__ import annotations

import dataclasses
import ipaddress
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.accounting import Accounts, Counts
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.fabric import lacks
from softroce_lab.fabric.daemons import monitor
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.effects import Fault
from softroce_lab.telemetry.drops import DROP, KIND_NONE, Drops, read_drops
from softroce_lab.telemetry.fidelity import Fidelity, Pause, judge
from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures
from softroce_lab.telemetry.stolen import StolenTime

_SYNC_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """What was seen from the beginning of an observation to its end."""

    epoch_ns: int  # CLOCK_MONOTONIC at its beginning
    end_ns: int
    recorded: bool  # whether there were ring buffers for what follows
    injections: Drops  # all that faults did to packets of the lab's RNICs
    links: list[LinkFigures]
    ports: list[PortFigures]
    stage: StageFigures
    idle_rules: list[str]  # that did nothing to any packet
    faults: list[Fault]  # set when it began, or when it ended
    fidelity: Fidelity
    pauses: list[Pause]  # of hosts and daemons, while the workload went on


class Observation:
    """Begins when it is made, ends with `end`. EnvironmentLackError without AF_XDP."""

    def __init__(
        self,
        lab: Lab,
        rails: Mapping[str, int] = MappingProxyType({}),
        others: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        """`rails`: by name, of hosts that use another one than their first, counted from 0.

        `others`: likewise further rails that a host uses.
        """
        lacks.need(lacks.AF_XDP)
        self._lab = lab
        self._rails, self._others = rails, others
        self._before = Counts.of(lab)
        self._written = lab.drained(_SYNC_S)
        # Connected to them, for then they notice their pauses (native/system/pauses.hpp).
        self._stage = WireStage(lab.directory)
        self._monitor = None
        if lacks.RING_BUFFERS not in lab.lacks:
            self._monitor = monitor.Connection(lab.directory)
        self._stolen = StolenTime()
        self.epoch_ns = time.monotonic_ns()

    def end(
        self,
        reports: Mapping[str, dict[str, Any]],
        *,
        striped: bool = True,
        hosts: Iterable[str] | None = None,
        workload_ns: tuple[int, int] | None = None,
    ) -> Observed:
        """`reports`: figures of each host process, by its name; all have ended.

        `striped`: only what was done to packets with the lab's header is of this run. `hosts`:
        those that took part, where not all of them report. `workload_ns`: when the workload began
        and ended, since the epoch; by default it lasted from the epoch until now.
        """
        lab = self._lab
        begun_ns, over_ns = workload_ns or (0, time.monotonic_ns() - self.epoch_ns)
        lab.resume()  # one that still stands still would not answer
        drained = lab.drained(_SYNC_S)
        end_ns = time.monotonic_ns()
        plan = lab.present_plan()  # others may have changed faults meanwhile
        met = {fault.rule_id: fault for fault in (*lab.plan.faults, *plan.faults)}
        counts = Counts.of(lab) - self._before
        accounts = Accounts(lab.plan, counts, reports, met.values(), self._rails)
        links, ports, stage = accounts.links(), accounts.ports(), accounts.stage()
        unwritten = drained.drops_lost - self._written.drops_lost
        stolen = self._stolen.share()
        pauses = self._pauses(reports, drained, self.epoch_ns + begun_ns, self.epoch_ns + over_ns)
        injections = self._recorded(end_ns)
        ours = _of_run(injections, self._addresses(hosts or reports), striped=striped)
        return Observed(
            epoch_ns=self.epoch_ns,
            end_ns=end_ns,
            recorded=lacks.RING_BUFFERS not in lab.lacks,
            injections=injections[ours],
            links=links,
            ports=ports,
            stage=stage,
            idle_rules=idle_rules.of_run(
                lab.plan.faults,
                lab.xdp.hits(),
                {each.directed_link for each in links if each.wire},
                end_ns - self.epoch_ns,
            ),
            faults=list(met.values()),
            fidelity=judge(
                links, ports, reports, stage, unwritten=unwritten, stolen=stolen, pauses=pauses
            ),
            pauses=pauses,
        )

    def _pauses(
        self,
        reports: Mapping[str, dict[str, Any]],
        drained: monitor.Drained,
        begin_ns: int,
        end_ns: int,
    ) -> list[Pause]:
        """Of all processes. Ends the connections to the daemons."""
        with self._stage:
            daemons = {"the wire stage": self._stage.pauses(), "the monitor": drained.pauses}
        if self._monitor is not None:
            self._monitor.close()
        hosts = {name: figures["pauses"] for name, figures in reports.items()}
        return [
            pause
            for name, pauses in (hosts | daemons).items()
            for pause in Pause.within(name, pauses, begin_ns, end_ns)
        ]

    def _recorded(self, until_ns: int) -> Drops:
        if lacks.RING_BUFFERS in self._lab.lacks:
            return np.empty(0, DROP)
        path = self._lab.directory / monitor.DROPS
        return read_drops(path, since_ns=self.epoch_ns, until_ns=until_ns)

    def _addresses(self, names: Iterable[str]) -> list[int]:
        """Of the ports that their processes used."""
        nodes = map(self._lab.plan.node, names)
        used = [node.ports[self._rails.get(node.name, 0)] for node in nodes]
        for name, rails in self._others.items():
            used += [self._lab.plan.node(name).ports[rail] for rail in rails]
        return [int(ipaddress.IPv4Address(port.address or 0)) for port in used]


def _of_run(drops: Drops, addresses: list[int], *, striped: bool) -> npt.NDArray[np.bool_]:
    """Which drops are of packets between these addresses, not of other traffic in the lab."""
    ours: npt.NDArray[np.bool_] = np.isin(drops["src"], addresses) & np.isin(
        drops["dst"], addresses
    )
    return ours & (drops["kind"] != KIND_NONE) if striped else ours
