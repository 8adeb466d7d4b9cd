# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's run on the virtual clock: every host in this process, on a simulated fabric."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from softroce_lab import units
from softroce_lab.errors import RunError
from softroce_lab.experiment import held_back, recoveries, workload_record
from softroce_lab.experiment.alone import Alone, OneFlow, frames
from softroce_lab.experiment.capturing import (
    NOTHING,
    Wanted,
    capturing_virtually,
    comment,
)
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.experiment.hosts.buffers import HostMemory, host_memory, sha256_fact, verified
from softroce_lab.experiment.hosts.driver import HostDriver
from softroce_lab.experiment.hosts.messenger import connect_all
from softroce_lab.experiment.hosts.opening import host_config, open_over
from softroce_lab.experiment.hosts.report import acted, taken
from softroce_lab.experiment.hosts.shift_messenger import ShiftMessenger, transitions_of
from softroce_lab.experiment.hosts.tuning import HostTuning, on_virtual_clock
from softroce_lab.experiment.messages import NOT_DONE, Messages, table
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.run_end import Ended, RunEnd
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.spec_model import MAX_DEADLINE_NS
from softroce_lab.experiment.transports import own_process
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import CONTEXTS_MISSED, Asked, WorkloadRun, added
from softroce_lab.plan import base_rtt
from softroce_lab.plan.base_rtt import Rails
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Plan, without_loss
from softroce_lab.sim import presets
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.sim.presets import RECEIVE_RING_PACKETS
from softroce_lab.telemetry.counters import added_up
from softroce_lab.telemetry.drops import Drops
from softroce_lab.telemetry.links import simulated
from softroce_lab.telemetry.repairs import Repairs
from softroce_lab.transports.api import NEVER_NS
from softroce_lab.transports.shift import Settings
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.work import Workload

if TYPE_CHECKING:
    from softroce_lab._native import MessageConfig

QKEY = 0x11111111
_REPORTED_EVERY = 256  # messages
_PLACED = ("rx_placed", "rx_connected")  # counters of packets with data that arrived
_SHIFT = Settings(probe_interval_ns=1_000_000, most_probe_interval_ns=16_000_000)
_QUIET_NS = 10**9  # from the beginning to a flow alone: receives have been announced long before


def run(
    experiment: Experiment,
    transport: Transport,
    seed: int,
    progress: Progress,
    wanted: Wanted = NOTHING,
    *,
    with_acts: bool = False,
) -> WorkloadRun:
    """One transport with one seed; `progress` receives the number of completed messages.

    `with_acts`: the events include the actions of policies, in addition to the effects of rules.

    UserError for a plan that needs a machine, and for a capture of no links; RunError if that
    cannot be written. A run that ends badly is a verdict. With a user's policy it has a process of
    its own: what ends that, or hangs, is a verdict, too.
    """
    run = functools.partial(_run, experiment, transport, seed, wanted=wanted, with_acts=with_acts)
    transports = (transport, *experiment.own_transports(seed).values())
    files = [each.file for each in transports if each.file is not None]
    if not files:
        return run(progress)

    def apart() -> WorkloadRun:
        found, cpu_s = own_process.call(
            files[0], lambda tell: (run(tell), time.process_time()), progress
        )
        return dataclasses.replace(found, cost={"cpu_s": round(cpu_s, 3)})

    return or_broken(experiment, transport, seed, apart)


def or_broken(
    experiment: Experiment, transport: Transport, seed: int, run: Callable[[], WorkloadRun]
) -> WorkloadRun:
    """What `run()` comes to; where a user's policy ends its process, a verdict without messages."""
    try:
        return run()
    except PolicyError as error:
        plan = experiment.plan(seed)
        return WorkloadRun(
            transport=transport.label,
            protocol=experiment.protocol(transport),
            congestion_control=transport.control(plan),
            seed=seed,
            clock=experiment.clock,
            hosts=tuple(node.name for node in plan.plain_hosts),
            messages=table(experiment.workload(seed).schedule()),
            end_ns=0,
            problems=[error.what],
            facts={"idle_rules": []},
        )


def _run(
    experiment: Experiment,
    transport: Transport,
    seed: int,
    progress: Progress,
    *,
    wanted: Wanted,
    with_acts: bool,
) -> WorkloadRun:
    run = VirtualRun(experiment, transport, seed, progress, with_acts=with_acts)
    with capturing_virtually(run.fabric, wanted, run.host_names()) as capture:
        found = run.go()
    if capture is not None:
        failed = comment(capture.wanted.path, found, run.plan, 0)
        found = dataclasses.replace(found, facts={**found.facts, **failed})
    found = added(run.workload, found, *alone_by_job(experiment, transport, seed))
    return found if capture is None else found.with_capture(capture)


def alone(experiment: Experiment, transport: Transport, seed: int) -> Alone:
    """Times of this transport's flows alone on the empty fabric. RunError if one fails there.

    A window or congestion control that slows a lone flow counts as slowdown.
    """
    plan = experiment.plan(seed)
    unlimited = transport.unlimited

    def simulate(part: Plan, source: int, size_bytes: int) -> int:
        flow = OneFlow(source, size_bytes, _QUIET_NS)
        run = VirtualRun(experiment, unlimited, seed, lambda _: None, only=(part, flow))
        found = run.go()
        if found.reasons:
            raise RunError(f"a flow of {size_bytes} bytes alone: {found.reasons[0]}")
        return int(found.messages["received_ns"][0]) - _QUIET_NS

    rails = experiment.rails(seed)
    return Alone(plan, frames(transport, path_mtu_bytes(plan.mtu, 4)), simulate, rails)


def alone_by_job(
    experiment: Experiment, transport: Transport, seed: int
) -> tuple[Asked, dict[str, tuple[str, Asked]]]:
    """Times on the empty fabric, computed when asked: the run's, and each job's with a label."""
    asked = functools.cache(lambda transport: alone(experiment, transport, seed))
    usual = functools.partial(asked, transport)
    work = experiment.workload(seed)
    jobs = work.jobs if isinstance(work, Jobs) else {}
    own = experiment.job_transports
    return usual, {
        name: (own[name].label, functools.partial(asked, own[name]))
        if name in own
        else (transport.label, usual)
        for name in jobs
    }


class VirtualRun:
    """A run in progress; `fabric` and `hosts` remain for inspection."""

    def __init__(
        self,
        experiment: Experiment,
        transport: Transport,
        seed: int,
        progress: Progress,
        *,
        with_acts: bool = False,
        only: tuple[Plan, Workload] | None = None,
    ) -> None:
        """`only`: another workload on a part of the plan, with all settings as for the whole."""
        self.experiment, self.transport, self.seed = experiment, transport, seed
        self.progress = progress
        self.deadline_ns = MAX_DEADLINE_NS if only else experiment.deadline_ns
        whole = experiment.plan(seed)
        self.faults = whole.faults
        if transport.entry.lossless:
            whole = without_loss(whole)
        self.plan: Plan
        self.workload: Workload
        self.plan, self.workload = only or (whole, experiment.workload(seed))
        self.other_rails = {} if only else experiment.other_rails(transport, seed)  # of hosts
        self.verifies = experiment.payload == "verify" and only is None
        beside = experiment.beside(transport)
        self.with_backup = not only and any(each.entry.rails > 1 for each in beside)
        self.carries = self.verifies or self.with_backup  # their MOVEs are bytes
        self.rnic = presets.rnic(experiment.rnic or presets.IDEAL)
        rails = experiment.rails_used(transport, seed)
        if only:  # a part has one rail a host
            rails = {name: used[:1] for name, used in rails.items()}
        self.rails: Rails = {} if only else rails
        self.tuning_of: Callable[[Transport], HostTuning] = functools.cache(
            functools.partial(
                on_virtual_clock,
                plan=whole,
                hosts_ns=self.rnic.round_trip_ns,
                rails=rails,
                blackout_ns=experiment.raw.blackout,
            )
        )
        self.tuning = self.tuning_of(transport)
        self.own = {} if only else experiment.own_transports(seed)  # of hosts
        self.fabric = SimFabric(
            self.plan,
            self.config_of(transport),
            {host: self.config_of(each) for host, each in self.own.items()},
            {} if only else experiment.rails(seed),
            self.rnic,
        )
        if with_acts:
            self.fabric.native.record_recoveries()
            self.fabric.native.record_samples()
        for stall in () if only else experiment.stalls(seed):
            self.fabric.stall(*stall)
        self.schedule: Schedule = self.workload.schedule()
        self.hosts: dict[int, HostDriver] = {}
        self.shifting: dict[HostDriver, ShiftMessenger] = {}  # those with a backup
        self.with_acts = with_acts
        self.unfinished: dict[int, HostDriver] = {}
        self.done_messages = 0
        self._failed_with: list[tuple[int, int]] = []  # (host, peer) of posts that failed
        self._disconnected: set[tuple[int, int]] = set()
        self.problems: list[str] = []
        self.policy_error: PolicyError | None = None
        self._times: list[tuple[int, int]] = []  # heap of (when, host) with something to post then
        self._wakes_ns: dict[int, int] = {}  # the newest time of each host in it
        self._open_hosts(with_acts=with_acts)
        self._end = RunEnd(len(self.hosts), self.deadline_ns)
        # Between two looks every transport gives up what cannot arrive.
        self._look_every_ns = max(30 * experiment.raw.blackout, 3000 * self.tuning.base_rtt_ns)
        self._look_ns = self._look_every_ns
        self._placed_packets = self._idle_looks = 0

    def _policy_failed(self, error: PolicyError) -> None:
        self.policy_error = error
        self.problems.append(error.what)

    def config_of(self, transport: Transport) -> MessageConfig:
        return host_config(
            transport,
            self.tuning_of(transport),
            QKEY,
            carries_payload=self.carries,
            receive_ring_packets=RECEIVE_RING_PACKETS,
            message_slots=self.experiment.raw.message_slots,
        )

    def host_names(self) -> list[str]:
        return [self.plan.plain_hosts[index].name for index in self.hosts]

    # ---------------------------------------------------------------- before

    def _open_hosts(self, *, with_acts: bool) -> None:
        for index in self.schedule.of:
            if with_acts:
                for endpoint, _ in self._rails(index):
                    endpoint.record_decisions()
            transport, memory = self.own.get(index, self.transport), self._memory(index)
            tuning = self.tuning_of(transport)
            rails = open_over(
                transport,
                self._rails(index),
                shift=_SHIFT,
                memory=None if memory is None else memory.memory,
                timing=tuning.timing,
                rc=tuning.rc,
                qkey=QKEY,
            )
            depth = self.experiment.depth
            host = HostDriver(self.schedule, index, depth, rails, memory, path_mtu=tuning.path_mtu)
            self.hosts[index] = host
            if isinstance(rails[0], ShiftMessenger):
                self.shifting[host] = rails[0]
        connect_all(
            self.hosts,
            {
                (min(each.source, each.destination), max(each.source, each.destination))
                for each in self.schedule.messages
            },
        )

    def _rails(self, host: int) -> list[tuple[Any, int]]:
        """Of each rail that a host uses: its endpoint, and the MAC address of its next hop."""
        own = self.fabric.endpoints[host], self.fabric.next_hop_mac(host)
        return [own, *(self.fabric.endpoint(host, n) for n in self.other_rails.get(host, ()))]

    def _memory(self, host: int) -> HostMemory | None:
        if not self.carries:
            return None
        return host_memory(self.workload, self.schedule, host, self.seed, self.experiment.depth)

    # ---------------------------------------------------------------- the run

    def go(self) -> WorkloadRun:
        try:
            self._go()
        except PolicyError as error:
            self._policy_failed(error)
        return self._result()

    def _go(self) -> None:
        for host in self.hosts.values():
            host.prepare()
        self.unfinished = dict(self.hosts)
        for host in self.hosts.values():
            host.start()
            self._note(host)
        ended = None
        while self.unfinished and ended is None:
            self._go_on()
            ended = self._end.judge(self.fabric.now_ns, self.unfinished.values()) or self._stalled()
        if ended is not None and not ended.follows_failure:
            self.problems.append(ended.why)

    def _go_on(self) -> None:
        next_ns = self._times[0][0] if self._times else NEVER_NS
        until_ns = min(next_ns, self.deadline_ns, self._look_ns)
        if self.shifting:
            until_ns = min(until_ns, *(each.next_time_ns for each in self.shifting.values()))
        for index in self.fabric.run(until_ns):
            host = self.hosts.get(index)
            if host is None:
                raise RunError(f"host {index} takes no part, and something came there")
            self._serve(host)
        for host, messenger in self.shifting.items():
            if messenger.next_time_ns <= self.fabric.now_ns:
                self._serve(host)
        self._disconnect()
        now_ns = self.fabric.now_ns
        while self._times and self._times[0][0] <= now_ns:
            host = self.hosts[heapq.heappop(self._times)[1]]
            host.wake(now_ns)
            self._note(host)

    def _stalled(self) -> Ended | None:
        """Whether timers go on and no packet with data arrives, for two looks in a row."""
        if self.fabric.now_ns < self._look_ns:
            return None
        placed = sum(
            rnic.counters(zeros=False).get(name, 0)
            for index in self.hosts
            for rnic, _ in self._rails(index)
            for name in _PLACED
        )
        idle = placed == self._placed_packets and not any(
            host.waits_for_time for host in self.unfinished.values()
        )
        self._idle_looks = self._idle_looks + 1 if idle else 0
        self._placed_packets = placed
        self._look_ns = self.fabric.now_ns + self._look_every_ns
        if self._idle_looks < 2:
            return None
        waited = units.format_duration(2 * self._look_every_ns)
        return Ended(
            f"no packet with data arrived for {waited}, while timers ran: "
            f"{len(self.unfinished)} of {len(self.hosts)} hosts were not done"
        )

    def _serve(self, host: HostDriver) -> None:
        host.step()
        self._take(host)

    def _take(self, host: HostDriver) -> None:
        before = host.done_messages
        host.serve()
        self._failed_with += [(host.index, peer) for peer in host.failed_peers]
        host.failed_peers.clear()
        self._report(host.done_messages - before)
        self._note(host)

    def _report(self, arrived: int) -> None:
        before = self.done_messages
        self.done_messages += arrived
        if before // _REPORTED_EVERY != self.done_messages // _REPORTED_EVERY:
            self.progress(self.done_messages)

    def _note(self, host: HostDriver) -> None:
        """When it has something to do though nothing happens, and whether it is finished."""
        next_ns = host.due_ns
        if next_ns != self._wakes_ns.get(host.index, NEVER_NS):
            self._wakes_ns[host.index] = next_ns
            if next_ns != NEVER_NS:
                heapq.heappush(self._times, (next_ns, host.index))
        if host.finished:
            self.unfinished.pop(host.index, None)

    def _disconnect(self) -> None:
        """Where a post failed, both programs end at once what is open between them."""
        while self._failed_with:
            pair = self._failed_with.pop()
            if pair in self._disconnected:
                continue
            self._end.failed()
            for index, peer in (pair, pair[::-1]):
                self._disconnected.add((index, peer))
                host = self.hosts[index]
                host.disconnect(peer)
                self._take(host)

    # ---------------------------------------------------------------- afterwards

    def _result(self) -> WorkloadRun:
        names = tuple(node.name for node in self.plan.plain_hosts)
        links = list(self.fabric.links())  # once: thousands of them take a while
        stopped = self._stopped_shares([link["delivered_bytes"] for link in links])
        lost = self.fabric.injections()
        recorded, used = recoveries.recorded(
            self.plan,
            self.rails,
            self.fabric.take_recoveries(),
            lost,
            list(self.fabric.link_names.values()),
            {index: host.queue_pairs for index, host in self.hosts.items()},
        )
        messages = table(self.schedule, {index: host.ends for index, host in self.hosts.items()})
        digests = self._digests()
        # A packet that goes on over another rail is another packet there.
        repairs = None if self.with_backup else self.fabric.repairs()
        if repairs is not None:
            self.problems += _oldest_unrepaired(messages, repairs, names, recorded.hosts)
        return WorkloadRun(
            transport=self.transport.label,
            protocol=self.experiment.protocol(self.transport),
            congestion_control=self.tuning.congestion_control,
            seed=self.seed,
            clock="virtual",
            hosts=names,
            messages=messages,
            end_ns=self.fabric.now_ns,
            links=list(map(simulated, links)),
            counters=self._counters(),
            events=self._events(lost),
            policies=self._summaries(),
            transitions=transitions_of(
                self.plan,
                {names[host.index]: each.transitions() for host, each in self.shifting.items()},
            ),
            verified=self._verified(digests),
            problems=self.problems,
            repairs=repairs,
            recoveries=recorded if self.with_acts else (),
            samples=self.fabric.samples() if self.with_acts else None,
            held_back=held_back.named(stopped),
            facts={
                "repairs_not_recorded": self.fabric.native.repairs_not_recorded,
                "recoveries_not_recorded": self.fabric.native.recoveries_not_recorded,
                "queue_pairs": used,
                "base_rtt_ns": self.tuning.base_rtt_ns,
                **self.tuning.facts(),
                "stalled_ns": sum(for_ns for _, _, for_ns in self.experiment.stalls(self.seed)),
                "message_slots": self.config_of(self.transport).message_slots,
                "options": dict(self.config_of(self.transport).options),
                "hops": self.fabric.native.hops,
                "switches": self.fabric.switches(),
                "idle_rules": self._idle_rules(links),
                "stopped": stopped,
                **sha256_fact(digests),
            },
        )

    def _summaries(self) -> dict[str, dict[str, Any]]:
        """By host, of those whose policies have figures of their own."""
        found = {}
        if self.policy_error is not None:
            return {}
        try:
            for index, host in self.hosts.items():
                if summary := host.summary():
                    found[self.plan.plain_hosts[index].name] = summary
        except PolicyError as error:
            self._policy_failed(error)
        return found

    def _counters(self) -> dict[str, dict[str, int]]:
        """By host, without zeros: the engine's, and what its RNIC had to fetch."""
        found = {
            node.name: added_up(rnic.counters(zeros=False) for rnic, _ in self._rails(index))
            for index, node in enumerate(self.plan.plain_hosts)
        }
        for port, totals in self.fabric.port_totals():
            if missed := totals[CONTEXTS_MISSED]:
                of_host = found[port.node]
                of_host[CONTEXTS_MISSED] = of_host.get(CONTEXTS_MISSED, 0) + missed
        return found

    def _idle_rules(self, links: Iterable[Mapping[str, Any]]) -> list[str]:
        busy = {link["directed_link"] for link in links if link["entered"]}
        hits, lasted_ns = self.fabric.hits(), self.fabric.now_ns
        return idle_rules.find(self.faults, hits, busy, lasted_ns)

    def _stopped_shares(self, sent_bytes: Sequence[int]) -> held_back.Shares:
        """By transport; of hosts' uplinks that have a rate: others are never busy.

        `sent_bytes`: by directed link.
        """
        rates_bps = base_rtt.rates(self.plan)
        return held_back.shares(
            (
                self.own.get(index, self.transport).label,
                8 * 10**9 * sent_bytes[link] // rates_bps[link],
                self.fabric.stopped_ns(index, rail),
            )
            for index in self.hosts
            for rail in (None, *self.other_rails.get(index, ()))
            if rates_bps[link := self.fabric.uplink(index, rail)]
        )

    def _verified(self, digests: Mapping[str, str | None]) -> bool | None:
        lines = [host.wrong() for host in self.hosts.values()] if self.verifies else [None]
        for host in self.hosts.values():
            if host.memory is not None:
                host.memory.close()
        found, wrong = verified(lines, digests if self.verifies else {})
        # Bytes of messages that failed are wrong by that: how they failed is the reason.
        self.problems += wrong if found is False and not self.problems else []
        return found

    def _digests(self) -> dict[str, str | None]:
        hosts = zip(self.host_names(), self.hosts.values(), strict=True)
        return {name: host.memory.sha256() for name, host in hosts if host.memory is not None}

    def _events(self, lost: Drops) -> dict[str, Any]:
        names, links = self.plan.plain_hosts, list(self.fabric.link_names.values())
        injected = workload_record.injected(lost, links, self.plan.faults)
        acts = [
            acted(names[index].name, taken(endpoint for endpoint, _ in self._rails(index)))
            for index in (self.hosts if self.with_acts else ())
        ]
        return workload_record.one_below_the_other([injected, *acts])


def _oldest_unrepaired(
    messages: Messages, repairs: Repairs, names: Sequence[str], hosts: Mapping[int, str]
) -> list[str]:
    """A line about the oldest packet that was lost and never arrived.

    Only packets of messages that were not delivered, nor ended otherwise, count. Only those of
    striped messages name their message. `names`: of hosts by index; `hosts`: by address.
    """
    open_messages = messages[messages["status"] == NOT_DONE]
    lost = repairs[(repairs["arrived_ns"] < 0) & (repairs["qpn"] == 0)]
    if not len(open_messages) or not len(lost):
        return []
    columns = ["source", "destination", "operation", "step", "message"]
    of_ends = {
        (names[source], names[destination], *key)
        for source, destination, *key in open_messages[columns].tolist()
    }
    for packet in lost:
        source, destination, *key = packet[columns].tolist()
        ends = hosts.get(source, ""), hosts.get(destination, "")
        if (*ends, *key) in of_ends:
            name = f"{'/'.join(map(str, key))} from {ends[0]} to {ends[1]}"
            at = units.format_duration(int(packet["dropped_ns"]))
            return [f"packet {packet['index']} of {name} was lost at {at} and never arrived"]
    return []
