# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench shift`: what a ShiftQP costs while nothing fails, and how long a failover takes.

    rate      WRITEs of 64 bytes in chains of 64, posted and polled from Python
    latency   round trips of a SEND of 64 bytes, both ends spinning in one thread
    failover  from a link down to the first good completion, and where the time goes
    instructions  of both and of set-up, counted by valgrind: they decide on a busy machine, too
    cpu       CPU time of both, on RNICs in this process's memory, so that other load counts little
    memory    resident memory of a ShiftQP beyond a plain one, both ends of 200 of each
              and of making and connecting QPs, with their backups left to the background
    set-up    1000 QPs made and connected, with their backups made in the background

Plain QPs and ShiftQPs are between the same RNICs, in interleaved rounds. A round is of several
short turns of either; the quickest of each, which other work disturbed least, make its ratio.
All over two hosts with two rails.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from softroce_lab import topology
from softroce_lab.bench.failover import instructions
from softroce_lab.bench.failover.ends import RETRY_CNT, TIMEOUT, Ends
from softroce_lab.bench.failover.instructions import Count
from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults import live, resolve
from softroce_lab.rnic import Context
from softroce_lab.shift import Backup, Event, LocalStore, Pump, Sender, Settings
from softroce_lab.shift.rails import Rails
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

_PATH_MTU = 1024
_MS = 1_000_000
_SETTINGS = Settings(probe_interval_ns=5 * _MS, most_probe_interval_ns=20 * _MS)
_MEMORY_QPS, _SETUP_QPS = 200, 1000
_PATIENCE_S = 20.0
_MOST_S = 30.0  # of one round in memory
_TURNS = 10  # of each in a round
_SETUPS = 6  # in turn; what a median's interval needs
_CHAINS, _TRIPS, _STEP_NS = 4, 40, 2_000
_SETUP_PAIRS = 50
DETECTION_NS = (4096 << TIMEOUT) * (RETRY_CNT + 1)
"""`timeout` x tries: what the application asked for."""
FAILOVER_LIMIT_NS = 2 * (4096 << TIMEOUT) * RETRY_CNT + 5 * _MS
"""What was aimed for: twice `timeout` x `retry_cnt`, and 5 ms."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    trips: int = 400
    chains: int = 100
    failovers: int = 7
    setup_qps: int = _SETUP_QPS
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(frozen=True)
class Failover:
    """One of them; all times in ns, each from the end of the one before."""

    detection_ns: int  # link down until the first QP fails
    handshake_ns: int  # ... until the peer's answer
    first_good_ns: int  # ... until the first completion of what was posted again

    @property
    def failover_ns(self) -> int:
        """First failed to first good completion."""
        return self.handshake_ns + self.first_good_ns


@dataclasses.dataclass(frozen=True)
class Outcome:
    """All that was measured."""

    rate_ratio: Interval
    latency_ratio: Interval
    cpu: dict[str, Interval]  # CPU time of a WRITE, of a round trip: over that of a plain QP
    failovers: tuple[Failover, ...]
    memory_per_backup_bytes: int
    setup_ratio: Interval
    mode: str
    instructions: dict[str, Count]  # by part; {}: they cannot be counted here

    def part(self, name: str) -> Interval:
        """Of all failovers."""
        return median_interval([float(getattr(each, name)) for each in self.failovers])

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
        names = ("failover_ns", "detection_ns", "handshake_ns", "first_good_ns")
        parts = {name: self.part(name) for name in names}
        ratios = {
            "rate_ratio": self.rate_ratio,
            "latency_ratio": self.latency_ratio,
            "setup_ratio": self.setup_ratio,
            **self.cpu,
        }
        return {
            "schema_version": SCHEMA_VERSION,
            **{name: round(each.median, 4) for name, each in ratios.items()},
            **{name: round(each.median) for name, each in parts.items()},
            "memory_per_backup_bytes": self.memory_per_backup_bytes,
            "intervals_95": {n: [e.low, e.high] for n, e in (ratios | parts).items()},
            "instructions": {name: each.document() for name, each in self.instructions.items()},
            "nominal_detection_ns": DETECTION_NS,
            "failover_limit_ns": FAILOVER_LIMIT_NS,
            "failovers": [dataclasses.asdict(each) for each in self.failovers],
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. EnvironmentLackError without root's rights; the lab is gone afterwards."""
    say(instructions.lack() or "instructions, by valgrind")
    counts = instructions.measure()
    memory, cpu = in_fresh_memory(options.rounds)
    plan = topology.load("dual-rail", name=options.name)
    with fabric.owned(plan, mode=options.mode, say=say) as lab:
        outcome = _Bench(lab, options, say).run(memory, cpu)
    return dataclasses.replace(outcome, instructions=counts)


class _Bench:
    """Over a lab that is up."""

    def __init__(self, lab: Lab, options: Options, say: Callable[[str], None]) -> None:
        self.lab, self.options, self.say = lab, options, say
        self.hosts = lab.plan.plain_hosts[:2]
        self.events: list[tuple[int, Event]] = []

    def run(self, memory: int, cpu: dict[str, Interval]) -> Outcome:
        with ExitStack() as stack:
            rails = [self._open(stack, rail) for rail in ("eth1", "eth2")]
            backups = self._backups(stack, rails)
            plain, shifted = Ends.connected(rails[0]), Ends.connected(rails[0], backups)
            rates, latencies = self._steady(plain, shifted)
            failovers = tuple(self._failover(shifted, n) for n in range(self.options.failovers))
        setups = []
        for number in range(_SETUPS):
            self.say(f"set-up {number + 1} of {_SETUPS}")
            order = (True, False) if number % 2 else (False, True)
            taken = {shifted: self._setup(shifted=shifted) for shifted in order}
            setups.append(taken[True] / taken[False])
        return Outcome(
            rates, latencies, cpu, failovers, memory, median_interval(setups), self.lab.mode, {}
        )

    def _open(self, stack: ExitStack, rail: str) -> list[Context]:
        return [
            stack.enter_context(opened(self.lab, host.name, path_mtu=_PATH_MTU, rail=rail))
            for host in self.hosts
        ]

    def _backups(
        self, stack: ExitStack, rails: list[list[Context]], *, in_background: bool = False
    ) -> list[Backup]:
        store = LocalStore()
        made = []
        for nic, other in zip(*rails, strict=True):
            backup = Backup(nic, other, store, _SETTINGS, in_background=in_background)
            backup.on_event = lambda event: self.events.append((time.monotonic_ns(), event))
            stack.enter_context(Pump(backup))
            made.append(backup)
        return made

    def _steady(self, plain: Ends, shifted: Ends) -> tuple[Interval, Interval]:
        rates, latencies = [], []
        each_trips = max(1, self.options.trips // _TURNS)
        each_chains = max(1, self.options.chains // _TURNS)
        for each in (plain, shifted):  # both warm
            each.trips_per_second(20)
            each.writes_per_second(5)
        for number in range(self.options.rounds):
            self.say(f"round {number + 1} of {self.options.rounds}")
            order = (plain, shifted) if number % 2 else (shifted, plain)
            trips = _best(order, lambda e: e.trips_per_second(each_trips))
            writes = _best(order, lambda e: e.writes_per_second(each_chains))
            latencies.append(trips[id(plain)] / trips[id(shifted)])
            rates.append(writes[id(shifted)] / writes[id(plain)])
        return median_interval(rates), median_interval(latencies)

    # ---------------------------------------------------------------- failover

    def _failover(self, ends: Ends, number: int) -> Failover:
        self.say(f"failover {number + 1} of {self.options.failovers}")
        chain = ends.first.chain_to(ends.second)
        self.events.clear()
        self._link("down")
        down_ns = time.monotonic_ns()
        ends.first.qp.post_send(chain)
        ends.first.take(1)
        good_ns = time.monotonic_ns()
        failed_ns = self._event(ends, "retries exceeded")
        moved_ns = self._event(ends, "the peer has moved")
        self._link("up")
        self._return(ends)
        return Failover(failed_ns - down_ns, moved_ns - failed_ns, good_ns - moved_ns)

    def _event(self, ends: Ends, why: str) -> int:
        """When the sending side did something for this reason."""
        number = ends.first.qp.qp_num
        for at_ns, event in self.events:
            if event.why == why and event.qp_num == number and event.side == "sender":
                return at_ns
        raise RunError(f"no transition of the bench's QP because {why}")

    def _return(self, ends: Ends) -> None:
        """Back to the first rail: signaled requests are fences."""
        until = time.monotonic() + _PATIENCE_S
        chain = ends.first.chain_to(ends.second)
        while not _is_default(ends):
            ends.first.qp.post_send(chain)
            ends.first.take(1)
            time.sleep(0.005)
            if time.monotonic() > until:
                raise RunError("the bench's QP does not return to the first rail")

    def _link(self, word: str) -> None:
        host = self.hosts[0]
        links = f"{host.name}:{host.ports[0].name}"
        wanted = live.parse_impairments([word])
        self.lab.faults.change(
            lambda plan: live.set_on(plan, resolve.links_of(plan, links), wanted),
            time.monotonic_ns,
        )

    # ---------------------------------------------------------------- set-up

    def _setup(self, *, shifted: bool) -> float:
        """Seconds until the application has made and connected its QPs."""
        with ExitStack() as stack:
            rails = [self._open(stack, rail) for rail in ("eth1", "eth2")]
            backups: list[Backup] | tuple[None, None] = (None, None)
            if shifted:
                backups = self._backups(stack, rails, in_background=True)
            began = time.perf_counter()
            ends = [Ends.connected(rails[0], backups) for _ in range(self.options.setup_qps // 2)]
            taken = time.perf_counter() - began
            for each in ends:
                for end in (each.first, each.second):
                    end.context.check_open("bench")
            return taken


def _best(order: Sequence[Ends], measure: Callable[[Ends], float]) -> dict[int, float]:
    """The highest rate of several turns of each, by `id`."""
    best = dict.fromkeys(map(id, order), 0.0)
    for _ in range(_TURNS):
        for each in order:
            best[id(each)] = max(best[id(each)], measure(each))
    return best


def _is_default(ends: Ends) -> bool:
    qps: list[Any] = [ends.first.qp, ends.second.qp]
    return all(qp.machine.sender is Sender.DEFAULT and qp.machine.plain for qp in qps)


# ---------------------------------------------------------------- in memory


def in_fresh_memory(rounds: int) -> tuple[int, dict[str, Interval]]:
    """Like `in_memory`, in a process whose allocator has no freed pages to hand out."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as process:
        return process.submit(in_memory, rounds).result(_MOST_S * (rounds + 1))


def in_memory(rounds: int) -> tuple[int, dict[str, Interval]]:
    """Bytes of a backup, and CPU time of ShiftQPs over that of plain ones, by what was done."""
    with Rails() as rails:
        first = rails.pairs[0]
        contexts = [nics[0] for nics in rails.contexts]
        backups = [rails.backup(host) for host in range(2)]

        def progress() -> None:
            first.run(first.now_ns + _STEP_NS)

        plain = Ends.connected(contexts, progress=progress)
        shifted = Ends.connected(contexts, backups, progress)
        cpu = _cpu_ratios(plain, shifted, rounds)
        cpu["cpu_setup_ratio"] = _setup_ratio(rails, rounds)
        return _memory_per_backup(contexts, backups), cpu


def _cpu_ratios(plain: Ends, shifted: Ends, rounds: int) -> dict[str, Interval]:
    writes, trips = [], []
    for number in range(rounds + 1):
        order = (plain, shifted) if number % 2 else (shifted, plain)
        rates = _best(order, lambda e: e.writes_per_second(_CHAINS, time.process_time))
        turns = _best(order, lambda e: e.trips_per_second(_TRIPS, time.process_time))
        if number:  # the first is warm-up
            writes.append(rates[id(plain)] / rates[id(shifted)])
            trips.append(turns[id(plain)] / turns[id(shifted)])
    return {"cpu_write_ratio": median_interval(writes), "cpu_trip_ratio": median_interval(trips)}


def _setup_ratio(rails: Rails, rounds: int) -> Interval:
    """CPU time until a program has its QPs, while their backups are left to the background."""
    contexts = [nics[0] for nics in rails.contexts]
    store = LocalStore()
    backups = [Backup(near, other, store, in_background=True) for near, other in rails.contexts]
    ratios = []
    for _ in range(rounds):
        taken = []
        for chosen in (backups, (None, None)):
            began = time.process_time()
            kept = [Ends.connected(contexts, chosen) for _ in range(_SETUP_PAIRS)]
            taken.append(time.process_time() - began)
            del kept
        ratios.append(taken[0] / taken[1])
    return median_interval(ratios)


def _memory_per_backup(contexts: list[Context], backups: list[Backup]) -> int:
    """Resident memory of a ShiftQP beyond a plain QP."""
    sizes = []
    for chosen in (backups, (None, None)):
        kept = [Ends.connected(contexts, chosen) for _ in range(20)]  # allocators are warm
        before = _resident_bytes()
        kept += [Ends.connected(contexts, chosen) for _ in range(_MEMORY_QPS // 2)]
        sizes.append((_resident_bytes() - before) / _MEMORY_QPS)
    return round(sizes[0] - sizes[1])


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
