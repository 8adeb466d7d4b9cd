# SPDX-License-Identifier: GPL-2.0-or-later
"""Every transmission of a striped message that was lost, and its outcome: requested,
retransmitted, arrived. And how long each may take (docs/howto/capture.md has the bounds), and
took."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.check.evidence import Evidence, once
from softroce_lab.check.striped.acknowledgements import Acknowledgements
from softroce_lab.check.striped.controls import Asked, Controls
from softroce_lab.check.striped.messages import NEVER, Places, Stream, Striped, longest_ns
from softroce_lab.check.striped.psns import Connection
from softroce_lab.check.striped.sleek import Sleek
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.statistics import marked

_MACHINE_NS = 40_000_000  # a busy machine's most decision latency, without a record
_HERE = "docs/howto/capture.md, Times of recovery"
RULES = Rules()


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The longest that a stream of `csa_ud` may take for each step, ns."""

    nack_ns: int  # from the loss to the NACK that names the packet
    retransmit_ns: int  # from that NACK's arrival to the retransmit
    probe_ns: int  # from the last packet to the probes behind it

    @classmethod
    def of(cls, view: Striped, stream: Stream) -> Bounds:
        """By the run's timers, the RTT in the stream's packets, and the machine's decision latency.

        Of a capture by itself, by the timers' defaults.
        """
        timing = view.timing
        srtt, var = slowest(view, stream)
        srtt, var = srtt or timing.initial_rtt_ns, var or timing.initial_rtt_ns // 2
        late = lateness_ns(view)
        probe = srtt + timing.lost_rttvar_weight * var + late
        retransmit = 3 * timing.t_max_ns // 2 + max(4 * srtt, view.persist_ns) + late
        return cls(3 * timing.t_max_ns + probe, retransmit, probe)


def slowest(view: Striped, stream: Stream) -> tuple[int, int]:
    """The largest SRTT and RTTVAR in packets of the stream's sender, ns; 0: none."""
    mine = np.flatnonzero(view.stream_of == stream.number)
    srtt, var = (view.column(name, mine).max() for name in ("lab_srtt_ns", "lab_rttvar_ns"))
    return int(srtt), int(var)


def lateness_ns(view: Striped) -> int:
    """How late hosts may act: the largest decision latency of the run directory, if there is one.

    On the virtual clock it is 0, except where the experiment pauses timers.
    """
    run = view.evidence.run
    runs = [] if run is None else run.runs
    if runs and all(each.get("clock") == "virtual" for each in runs):
        return max(int(each.get("stalled_ns", 0)) for each in runs)
    late = [
        int(host.get("decision_lateness_ns", {}).get("p100", 0))
        + longest_ns(host.get("timer_lateness_log2_ns", []))
        for each in runs
        for host in each.get("processes", {}).values()
    ]
    return max([_MACHINE_NS, *(2 * each for each in late)])


class Losses:
    """Parallel arrays, one element for each lost transmission, in the order of the table."""

    def __init__(self, view: Striped, controls: Controls) -> None:
        self.view = view
        sent = view.transmissions
        # Of view.transmissions, data alone: nobody asks for parity.
        self.of = np.flatnonzero((sent["gone_at"] != NEVER) & ~sent["parity"])
        lost = sent[self.of]
        self.message = lost["message"].astype(np.int64)
        self.index = lost["index"].astype(np.int64)
        self.gone_at = lost["gone_at"]
        self.packet = view.packet_of[self.of]
        self.stream = view.messages["stream"][self.message].astype(np.int64)
        self.retransmitted_at = self._retransmitted_at()
        self.arrived_at = view.packet_arrived_at[self.packet]
        self.covered, self.unsure = self._earlier_copies()
        self.restored = self._restored()
        blind = ~view.are_arrivals_seen[self.stream]
        self.unsure |= blind & self.restored
        self.restored &= ~blind
        self.asked_at = np.full(len(self.of), NEVER, dtype=np.int64)
        self.last_received_at = np.full(len(self.of), NEVER, dtype=np.int64)
        for message in np.unique(self.message).tolist():
            self._find_asked(message, controls.asked.get(message, []))

    def _retransmitted_at(self) -> Places:
        """Where the next attempt at the same packet was first seen."""
        sent, packet_of = self.view.transmissions, self.view.packet_of
        retransmitted = np.full(len(self.of), NEVER, dtype=np.int64)
        following = np.minimum(self.of + 1, max(len(sent) - 1, 0))
        same = (packet_of[following] == self.packet) & (following > self.of)
        retransmitted[same] = sent["at"][following[same]]
        return retransmitted

    def _earlier_copies(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Losses without effect, since an earlier copy arrived; and possible ones."""
        view, sent = self.view, self.view.transmissions
        covered = np.zeros(len(self.of), dtype=np.bool_)
        unsure = np.zeros(len(self.of), dtype=np.bool_)
        blind = ~view.are_arrivals_seen[self.stream]
        unsure |= blind & sent["duplicated"][self.of]
        for number in np.flatnonzero(sent["attempt"][self.of] > 0).tolist():
            place = self.of[number]
            before = sent[view.packet_begins[self.packet[number]] : place]
            covered[number] = bool(np.any(before["arrivals"] > 0))
            unsure[number] |= blind[number] and not bool(np.all(before["gone_at"] != NEVER))
            unsure[number] |= blind[number] and len(before) < sent["attempt"][place]
        return covered, unsure & ~covered

    def _restored(self) -> npt.NDArray[np.bool_]:
        """Losses that parity of csa_ud made up for."""
        messages = self.view.messages[self.message]
        begin = messages["count"].astype(np.int64) - messages["block"]
        restored: npt.NDArray[np.bool_] = self.index >= begin
        restored &= self.view.restored_at[self.message] != NEVER
        return restored

    def _find_asked(self, message: int, asked: list[Asked]) -> None:
        """The first request that names each packet after it was lost; and where one arrived."""
        begin, end = np.searchsorted(self.message, [message, message + 1])
        part = slice(int(begin), int(end))
        for each in asked:
            later = self.gone_at[part] < each.sent.at
            new = later & (self.asked_at[part] == NEVER)
            first = (
                later
                & (self.last_received_at[part] == NEVER)
                & (each.sent.last_received_at != NEVER)
                & each.sent.sure
            )
            if not (new | first).any():
                continue
            named = each.names(self.index[part])
            self.asked_at[part][new & named] = each.sent.at
            self.last_received_at[part][first & named] = each.sent.last_received_at


@dataclasses.dataclass(frozen=True)
class Understood:
    """A capture as the checkers of striped messages see it."""

    view: Striped
    controls: Controls
    losses: Losses
    _bounds: dict[int, Bounds] = dataclasses.field(default_factory=dict)
    _acks: dict[int, Acknowledgements] = dataclasses.field(default_factory=dict)
    _connections: dict[int, Connection] = dataclasses.field(default_factory=dict)
    _sleeks: dict[int, Sleek] = dataclasses.field(default_factory=dict)

    def bounds(self, stream: Stream) -> Bounds:
        """Of the times that its recovery may take."""
        if stream.number not in self._bounds:
            self._bounds[stream.number] = Bounds.of(self.view, stream)
        return self._bounds[stream.number]

    def acknowledgements(self, message: int) -> Acknowledgements:
        """All feedback on a message."""
        if message not in self._acks:
            reports = self.controls.feedback.get(message, [])
            self._acks[message] = Acknowledgements(self.view, message, reports)
        return self._acks[message]

    def connection(self, stream: int) -> Connection:
        """A stream whose transport numbers packets by connection."""
        if stream not in self._connections:
            self._connections[stream] = Connection(
                self.view, self.controls, stream, self.acknowledgements
            )
        return self._connections[stream]

    def sleek(self, stream: int) -> Sleek:
        """The same, of `uet_rud` with SLEEK."""
        if stream not in self._sleeks:
            self._sleeks[stream] = Sleek(self.view, self.connection(stream))
        return self._sleeks[stream]


@once
def understood(evidence: Evidence) -> Understood:
    """What the checkers of striped messages see of a capture."""
    view = Striped(evidence)
    controls = Controls(view)
    return Understood(view, controls, Losses(view, controls))


# ---------------------------------------------------------------- how long recovery took


@dataclasses.dataclass(frozen=True, slots=True)
class Distribution:
    """Of times, ns; percentiles are values that occurred."""

    count: int
    p50_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, times_ns: Places) -> Distribution:
        p50, p99, most = np.percentile(times_ns, [50, 99, 100], method="higher")
        return cls(len(times_ns), int(p50), int(p99), int(most))

    def __str__(self) -> str:
        times = (self.p50_ns, self.p99_ns, self.max_ns)
        p50, p99, most = (units.format_duration(each) for each in times)
        return f"p50 {p50}, p99 {marked(p99, 990, self.count)}, max {most}, n {self.count:,}"


def measure(lab: Understood) -> dict[str, dict[str, Distribution]]:
    """By transport, by what is behind the point of the rule."""
    view, controls, losses = lab.view, lab.controls, lab.losses
    steps = {
        "detected": np.where(losses.asked_at < losses.retransmitted_at, losses.asked_at, NEVER),
        "retransmitted": losses.retransmitted_at,
        "repaired": losses.arrived_at,
    }
    found: dict[str, dict[str, Distribution]] = {}
    if not view.stamped:
        return found
    streams: dict[str, list[int]] = {}
    for stream in view.data_streams():
        name = controls.transports.get(stream.number, "no transport told")
        streams.setdefault(name, []).append(stream.number)
    for name, numbers in streams.items():
        of_these = np.isin(losses.stream, numbers) & ~losses.covered
        for step, until in steps.items():
            mine = of_these & (until != NEVER) & (until > losses.gone_at)
            if mine.any():
                times = view.time_ns(until[mine]) - view.time_ns(losses.gone_at[mine])
                found.setdefault(name, {})[step] = Distribution.of(times)
    return found


@RULES.rule("recovery.detected", "from a loss to the first NACK or SACK that names it", _HERE)
@RULES.rule("recovery.retransmitted", "from a loss to the next attempt", _HERE)
@RULES.rule(
    "recovery.repaired", "from a loss to the packet's arrival at the receiver's link", _HERE
)
def check(lab: Understood, *tallies: Tally) -> None:
    """Nothing can fail here: the notes have the figures, `measure` the numbers."""
    by_step = {tally.rule.short: tally for tally in tallies}
    for transport, steps in measure(lab).items():
        for step, times in steps.items():
            by_step[step].passed(times.count)
            by_step[step].notes_that(f"{transport}: {times}")
