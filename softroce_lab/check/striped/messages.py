# SPDX-License-Identifier: GPL-2.0-or-later
"""Striped messages as a capture shows them: transmissions of packets, messages, control messages.

One packet may be seen on several links; a *transmission* is all the sightings of one sending of
it. Transmissions are the same packet's, one after the other, as attempts. Places in time are
indices into `Evidence.in_time`, for two frames of one nanosecond still have an order; NEVER is
behind all of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.check import opcodes
from softroce_lab.check.evidence import CORRUPTED, CUT, DUPLICATED, Evidence
from softroce_lab.check.striped.rows import Taps, addresses, mix, translated
from softroce_lab.check.striped.streams import Ends
from softroce_lab.telemetry.packets import Has
from softroce_lab.transports.defaults import EngineTiming, Timing

Places = npt.NDArray[np.int64]
Table = npt.NDArray[np.void]

NEVER = 1 << 62
ROUNDING_NS = 2
"""The time between two packets may be so much longer than a capture of whole nanoseconds shows."""
RENAMED_TIMING = {"alive_ns": "keepalive_interval_ns"}
"""Names in run directories made before they were renamed: old and new."""
_SILENCE_NS = 100_000_000  # between runs; keepalives of a run are more frequent
# Those that send less than a packet a round trip, too (native/engine/congestion).
_PACING = ("swift", "dcqcn")
_HEADERS_BYTES = 14 + 20 + 8 + 12 + 8 + 4  # Ethernet, IPv4, UDP, BTH, DETH and ICRC
_LONGEST_WAY_NS = 100_000_000  # from one end to the other

DATA, CONTROL, REPORT, PATH_PROBE, PARITY = range(5)  # enum lab_kind

TRANSMISSION = np.dtype(
    [
        ("message", "u4"),  # index of Striped.messages
        ("index", "u4"),  # of the packet in it
        ("psn", "u4"),
        ("attempt", "u2"),
        ("path", "u1"),
        ("parity", "?"),  # else data
        ("duplicated", "?"),  # by a rule, on a captured link
        ("at", "i8"),  # place of the first sighting
        ("lost_at", "i8"),  # where it was dropped, corrupted or trimmed; NEVER
        ("arrived_at", "i8"),  # at the receiver's link; NEVER
        ("arrivals", "i8"),  # more than one: copies
        ("left", "i8"),  # sightings at the sender's link
        (
            "gone_at",
            "i8",
        ),  # lost_at, or, where both ends were captured, `at` of what did not arrive
    ]
)

MESSAGE = np.dtype(
    [
        ("stream", "u4"),
        ("id", "u4"),
        ("operation", "u2"),
        ("step", "u2"),
        ("message", "u4"),
        ("count", "u4"),  # of its data packets
        ("parity", "u4"),  # packets of it that were seen
        ("code", "u1"),  # of its data: 1 and the place in the run's list of codes; 0: none
        ("block", "u1"),  # of csa_ud: how many last packets the parity covers; 0: there is none
        ("length", "u4"),
        ("begin", "i8"),  # its transmissions are [begin, end)
        ("end", "i8"),
        ("first_at", "i8"),
        ("last_at", "i8"),
        ("begun", "?"),  # it began when the capture was running
    ]
)


def longest_ns(histogram: Sequence[int]) -> int:
    """The end of the last bin in use: entry i counts what lasted 2^i to 2^(i+1) ns."""
    bins = np.flatnonzero(histogram)
    return int(2 ** (bins[-1] + 1)) if len(bins) else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """All that one endpoint sends another (`streams`)."""

    number: int
    key: int
    leaves: bool  # captured where it leaves its sender
    arrives: bool  # captured where it reaches its receiver
    back: int | None  # the stream in the other direction

    @property
    def whole(self) -> bool:
        """Whether what is not in the capture did not happen (at one end of it)."""
        return self.leaves or self.arrives


class Striped:
    """The view: built once for all checkers of striped messages."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.packets = translated(evidence)
        ours = evidence.is_roce & (self.packets["has"] & Has.LAB != 0) & ~evidence.is_hello
        in_time = evidence.in_time
        self.places = np.flatnonzero(ours[in_time])  # of all rows with the lab header
        self.rows = in_time[self.places]
        self.kinds = self.packets["lab_kind"][self.rows]
        self.taps = Taps(evidence, self.rows)
        self.stream_of, self.streams = self._find_streams()
        self.missed = sum(each.dropped or 0 for each in evidence.capture.interfaces)
        self._group()

    # ---------------------------------------------------------------- streams

    @functools.cached_property
    def timing(self) -> Timing:
        """The policies' timers: the run's, or the defaults."""
        recorded = self._recorded_times()
        names = [field.name for field in dataclasses.fields(Timing)]
        return Timing(**{name: recorded[name] for name in names if name in recorded})

    @functools.cached_property
    def doubts_timers(self) -> str | None:
        """The reason why durations prove nothing: the timers are not known.

        Those of a network with long round trips are longer than the defaults (`Timing.for_rtt`: no
        loss check is later than 4 of them). The least SRTT of a stream has the fewest queues in it.
        """
        if self._recorded_times():
            return None
        srtt_ns = self.column("lab_srtt_ns", np.arange(len(self.rows))).astype(np.int64)
        measured = self.stream_of[srtt_ns > 0]
        least = np.full(len(self.streams), NEVER, dtype=np.int64)
        np.minimum.at(least, measured, srtt_ns[srtt_ns > 0])
        if 4 * int(least[measured].max(initial=0)) <= self.timing.t_max_ns:
            return None
        return "no run directory tells the timers of a network with such long round trips"

    @property
    def persist_ns(self) -> int:
        """A window that nothing opens stays shut for this long, or for four SRTT."""
        return self._recorded_times().get("persist_least_ns", EngineTiming().persist_least_ns)

    @property
    def irn_rto_ns(self) -> tuple[int, int]:
        """RTO_low and RTO_high; of runs that do not have them, as they were before."""
        recorded, rtt_ns = self._recorded_times(), self.timing.initial_rtt_ns
        low_ns, high_ns = rtt_ns * 100 // 24, rtt_ns * 320 // 24
        return recorded.get("rto_low_ns", low_ns), recorded.get("rto_high_ns", high_ns)

    @property
    def options(self) -> Mapping[str, Any]:
        """The transport's options by the run's record; times are ns. Empty: they are not known."""
        options: Mapping[str, Any] = self._recorded().get("options", {})
        return options

    @functools.cached_property
    def late_ns(self) -> int:
        """A packet may pass its sender's link so much later than its timer started.

        A turn of the host's process ends with the packets on the link, unless the machine is busy:
        then the kernel may take as long again.
        """
        hosts = self._recorded().get("processes", {}).values()
        turns_ns = [longest_ns(each.get("turn_length_log2_ns", [])) for each in hosts]
        return ROUNDING_NS + 2 * max(turns_ns, default=0)

    def least_timeout_ns(self, option: str, usual_ns: int) -> int:
        """By the transport's option and the knob `timeout`; 0: it follows the measured RTT."""
        if self._measures_timeouts:
            return 0
        timeout_ns = self.timing.fixed_rto_ns or int(self.options.get(option, usual_ns))
        return timeout_ns - self.late_ns

    def mrc_timeout_ns(self, stream: int) -> int:
        """No timeout of `mrc` is shorter.

        It is four SRTTs, and a packet that is not full has a shorter RTT than the base RTT. So has
        a peer that is nearer than others. On the real clock the base RTT is no lower bound.
        """
        if self.timing.fixed_rto_ns:
            return self.timing.fixed_rto_ns - self.late_ns
        if self._measures_timeouts:
            return 0
        if exponent := int(self.options.get("timeout_exponent", 0)):
            return (1024 << exponent) - self.late_ns
        if self._recorded().get("clock") != "virtual":
            return 0
        srtt_ns = self.column("lab_srtt_ns", np.flatnonzero(self.stream_of == stream))
        least_ns = int(srtt_ns[srtt_ns > 0].min(initial=self.timing.initial_rtt_ns))
        return min(2 * self.timing.initial_rtt_ns, 3 * least_ns)

    @property
    def mrc_distance(self) -> int:
        """A hole of `mrc` is not lost before a packet so far behind it has arrived."""
        return int(self.options.get("distance", 3))

    @property
    def uccl_rto_ns(self) -> int:
        """No timeout of `uccl` is shorter."""
        return self.least_timeout_ns("rto", 500_000)

    @property
    def uet_rto_ns(self) -> int:
        """No timeout of `uet_rud` and `uet_rod` is shorter."""
        usual_ns = 100_000 if self.options.get("trimming", True) else 5_000_000
        option_ns = int(self.options.get("rto_init", 0))
        return (self.timing.fixed_rto_ns or option_ns or usual_ns) - self.late_ns

    @property
    def mpr_packets(self) -> int:
        """The window of `mrc`."""
        return 128 * int(self.options.get("mpr", 32))

    @property
    def window_packets(self) -> int | None:
        """The constant window of each sender; None: no run directory tells it."""
        return self._recorded().get("window_packets")

    @property
    def pull_interval_ps(self) -> int | None:
        """Between pulls of `ndp` from one receiver; None: no run directory tells it.

        The time of a full packet over IPv4 on the receiver's link. One over IPv6 is longer.
        """
        if not self.line_rate_bps or "pull_rate" not in self.options:
            return None
        full_bytes = _HEADERS_BYTES + int(self._recorded()["path_mtu"])
        return int(8 * full_bytes / (self.options["pull_rate"] * self.line_rate_bps) * 10**12)

    @property
    def line_rate_bps(self) -> int:
        """Of the slowest host's link; 0: it has no limit, or no run directory tells it."""
        return int(self._recorded().get("line_rate_bps", 0))

    @property
    def pacing(self) -> str | None:
        """The run's congestion control, if it may let packets wait for many round trips."""
        named = self._recorded().get("congestion_control")
        return named if named in _PACING else None

    @property
    def times_senders(self) -> bool:
        """Whether packets were on the link when their timers started, by the run's record.

        Before it they may have waited for contexts of an RNIC that keeps few (`rnic`).
        """
        return bool(self._recorded()) and not self.waits_for_contexts

    @property
    def waits_for_contexts(self) -> bool:
        return bool(self._recorded().get("contexts_missed"))

    @property
    def _measures_timeouts(self) -> bool:
        return bool(self.timing.rto_rttvar_weight)

    def _recorded_times(self) -> dict[str, int]:
        recorded: dict[str, int] = self._recorded().get("timing", {})
        return {RENAMED_TIMING.get(name, name): time_ns for name, time_ns in recorded.items()}

    def _recorded(self) -> Mapping[str, Any]:
        """The run's record in the run directory, if there is one."""
        run = self.evidence.run
        return {} if run is None or run.only is None else run.only

    def _find_streams(self) -> tuple[npt.NDArray[np.int64], list[Stream]]:
        packets = self.packets
        source = addresses(packets, "source", self.rows)
        destination = addresses(packets, "destination", self.rows)
        qkey = packets["qkey"][self.rows].astype(np.uint64)
        eras = self._eras(mix(mix(source, destination), qkey))
        key, back_key = Ends(self.evidence, packets, self.rows).keys(eras)
        keys, stream_of = np.unique(key, return_inverse=True)
        back = np.zeros(len(keys), dtype=np.uint64)
        back[stream_of] = back_key
        numbers = {int(key): number for number, key in enumerate(keys)}
        leaves = np.bincount(stream_of, self.taps.leaves, len(keys)) > 0
        arrives = np.bincount(stream_of, self.taps.arrives, len(keys)) > 0
        streams = [
            Stream(n, int(keys[n]), bool(leaves[n]), bool(arrives[n]), numbers.get(int(back[n])))
            for n in range(len(keys))
        ]
        return stream_of.astype(np.int64), streams

    def _eras(self, ends: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Which of several runs over the same addresses each row is of, counted from 0.

        The next one begins when, after a pause of all senders, a first packet of a message whose
        id was there before is sent for the first time.
        """
        times = self.time_ns(self.places)
        if self.evidence.run is not None and self.evidence.run.only is not None:
            return np.zeros(len(times), np.uint64)
        bounds = np.flatnonzero(np.diff(times) >= _SILENCE_NS) + 1
        begins = np.zeros(len(times), np.uint64)
        if not len(bounds):
            return begins
        packets, rows = self.packets, self.rows
        ids = mix(ends, packets["lab_message_id"][rows].astype(np.uint64))
        fresh = (packets["lab_attempt"][rows] == 0) & (packets["lab_index"][rows] == 0)
        fresh &= self.kinds == DATA
        last = 0
        for begin, end in zip(bounds.tolist(), [*bounds[1:].tolist(), len(times)], strict=True):
            before, now = (np.arange(*part) for part in ((last, begin), (begin, end)))
            if np.isin(ids[now][fresh[now]], ids[before][fresh[before]]).any():
                begins[begin] = 1
                last = begin
        return np.cumsum(begins, dtype=np.uint64)

    # ---------------------------------------------------------------- messages, transmissions

    def _group(self) -> None:
        """Rows of data and parity -> transmissions, sorted by message, index and attempt.

        Transmissions -> messages.
        """
        which = np.flatnonzero((self.kinds == DATA) | (self.kinds == PARITY))
        column = functools.partial(self.column, which=which)
        stream = self.stream_of[which].astype(np.uint64)
        names = stream << np.uint64(32) | column("lab_message_id")
        self.message_names, message_of = np.unique(names, return_inverse=True)
        packet = message_of.astype(np.uint64) << np.uint64(32) | column("lab_index")
        sending = column("lab_attempt").astype(np.uint64) << np.uint64(32) | column("psn")
        order = np.lexsort((sending, packet))  # stable: within one, by time
        self.data = which[order]  # of self.rows, so sorted
        packet, sending = packet[order], sending[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (packet[1:] != packet[:-1]) | (sending[1:] != sending[:-1])
        self.begins = np.flatnonzero(new)  # of transmissions in self.data
        self.transmissions = self._transmissions(message_of[order])
        self.messages = self._messages()
        self._find_parity()
        self._find_gone()

    def _transmissions(self, message_of: npt.NDArray[np.int64]) -> Table:
        begins = self.begins
        table = np.zeros(len(begins), dtype=TRANSMISSION)
        if not len(begins):
            return table
        table["message"] = message_of[begins]
        for mine, theirs in (
            ("index", "lab_index"),
            ("psn", "psn"),
            ("attempt", "lab_attempt"),
            ("path", "lab_path"),
        ):
            table[mine] = self.column(theirs, self.data[begins])
        table["parity"] = self.kinds[self.data[begins]] == PARITY
        rows, places = self.rows[self.data], self.places[self.data]
        trimmed = self.column("has", self.data) & Has.TRIMMED != 0
        lost = self.evidence.is_lost[rows] | trimmed | self.evidence.commented(CUT)[rows]
        lost |= self.corrupted_before(rows, places, begins)
        lost |= self._behind_cuts(rows, places, begins)
        arrives = self.taps.arrives[self.data] & ~lost
        duplicated = self.evidence.commented(DUPLICATED)[rows]
        table["at"] = np.minimum.reduceat(places, begins)
        table["lost_at"] = np.minimum.reduceat(np.where(lost, places, NEVER), begins)
        table["arrived_at"] = np.minimum.reduceat(np.where(arrives, places, NEVER), begins)
        table["arrivals"] = np.add.reduceat(arrives.astype(np.int64), begins)
        table["left"] = np.add.reduceat(self.taps.leaves[self.data].astype(np.int64), begins)
        table["duplicated"] = np.logical_or.reduceat(duplicated, begins)
        return table

    def corrupted_before(
        self, rows: npt.NDArray[np.int64], places: Places, begins: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Sightings behind a link whose rule flipped bits, where the snap length hides it.

        `begins`: where those of each packet begin. Of one that was duplicated besides, another copy
        may be whole, but its ICRC is missing: none counts as flipped (`perhaps_corrupted`).
        """
        behind, doubled = self._behind_flips(rows, places, begins)
        return behind & ~doubled

    def perhaps_corrupted(
        self, rows: npt.NDArray[np.int64], places: Places, begins: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Those of duplicated packets: one copy's bits were flipped, and nothing tells which."""
        behind, doubled = self._behind_flips(rows, places, begins)
        return behind & doubled

    def _behind_flips(
        self, rows: npt.NDArray[np.int64], places: Places, begins: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Sightings without ICRC behind such a link, and those of duplicated packets."""
        behind, doubled = self._behind(CORRUPTED, rows, places, begins)
        return behind & (self.packets["has"][rows] & Has.ICRC_CHECKED == 0), doubled

    def _behind_cuts(
        self, rows: npt.NDArray[np.int64], places: Places, begins: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Sightings behind a link whose rule cut the packet.

        On the real clock the link behind an uplink is captured before the wire stage cuts.
        """
        behind, doubled = self._behind(CUT, rows, places, begins)
        return behind & ~doubled

    def _behind(
        self,
        effect: str,
        rows: npt.NDArray[np.int64],
        places: Places,
        begins: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Sightings behind a link with this effect, and those of duplicated packets."""
        if not len(begins):
            return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
        doubled = np.logical_or.reduceat(self.evidence.commented(DUPLICATED)[rows], begins)
        hit = np.where(self.evidence.commented(effect)[rows], places, NEVER)
        sightings = np.diff(np.append(begins, len(rows)))
        behind: npt.NDArray[np.bool_] = places > np.repeat(
            np.minimum.reduceat(hit, begins), sightings
        )
        return behind, np.repeat(doubled, sightings)

    def _messages(self) -> Table:
        sent = self.transmissions
        table = np.zeros(len(self.message_names), dtype=MESSAGE)
        if not len(table):
            return table
        begin = np.searchsorted(sent["message"], np.arange(len(table)))
        table["begin"], table["end"] = begin, np.append(begin[1:], len(sent))
        table["stream"] = self.message_names >> np.uint64(32)
        table["id"] = self.message_names & np.uint64(0xFFFFFFFF)
        table["first_at"] = np.minimum.reduceat(sent["at"], begin)
        table["last_at"] = np.maximum.reduceat(sent["at"], begin)
        first = self.data[self.begins[begin]]
        for name in ("operation", "step", "message", "count", "length"):
            table[name] = self.column("lab_" + name, first)
        for stream in self.streams:
            self._mark_begun(table, stream.number)
        return table

    def _mark_begun(self, table: Table, stream: int) -> None:
        """First passes go in the order of ids: newer than the first one seen began in view."""
        mine = np.flatnonzero(table["stream"] == stream)
        sent = self.transmissions
        fresh = np.flatnonzero(
            (sent["attempt"] == 0) & ~sent["parity"] & (table["stream"][sent["message"]] == stream)
        )
        if not len(fresh):
            return
        first = sent[fresh[np.argmin(sent["at"][fresh])]]
        oldest = int(table["id"][first["message"]])
        distance = (table["id"][mine].astype(np.int64) - oldest) % (1 << 32)
        table["begun"][mine] = (distance > 0) & (distance < 1 << 31)
        table["begun"][first["message"]] = first["index"] == 0

    def _find_parity(self) -> None:
        """Which code each message has, and what parity.

        Data without a code that parity follows are those of csa_ud: so are all of the stream.
        """
        messages, sent = self.messages, self.transmissions
        if not len(messages):
            return
        packets = sent[self.packet_begins]
        messages["parity"] = np.bincount(
            packets["message"][packets["parity"]], minlength=len(messages)
        )
        codes = self.column("lab_code", self.data[self.begins])
        has_data = ~sent["parity"][messages["begin"]]
        messages["code"] = np.where(has_data, codes[messages["begin"]], 0)
        tails = has_data & (messages["code"] == 0) & (messages["parity"] > 0)
        of_tails = np.isin(messages["stream"], messages["stream"][tails])
        which = np.flatnonzero(sent["parity"] & of_tails[sent["message"]])[::-1]
        messages["block"][sent["message"][which]] = codes[which]  # the first one's

    def _find_gone(self) -> None:
        """What both ends should have seen and one did not was lost between, by whatever."""
        sent = self.transmissions
        sent["gone_at"] = np.where(sent["arrivals"] > 0, NEVER, sent["lost_at"])
        both = np.array([each.leaves and each.arrives for each in self.streams], dtype=np.bool_)
        if not len(sent) or not both.any() or self.missed:
            return
        stream = self.messages["stream"][sent["message"]]
        # The rest may be on its way.
        old = self.time_ns(sent["at"]) < self.end_ns - _LONGEST_WAY_NS
        old |= self.packet_arrived_at[self.packet_of] != NEVER
        missing = both[stream] & (sent["arrivals"] == 0) & (sent["left"] > 0) & old
        missing &= sent["lost_at"] == NEVER
        sent["gone_at"][missing] = sent["at"][missing]

    # ---------------------------------------------------------------- for the checkers

    @functools.cached_property
    def may_be_corrupt(self) -> bool:
        """Whether arrivals may hide flipped bits: a rule flips them, and ICRCs are cut off."""
        has = self.column("has", self.data[self.taps.arrives[self.data]])
        cut = np.any(has & Has.ICRC_CHECKED == 0)
        return bool(cut) and self.evidence.rules_of_the_run("corrupt")

    def counts_attempts(self, stream: int) -> bool:
        """Whether attempts are counted from the capture: UC packets do not carry them."""
        opcode = self.column("opcode", self.data[self.stream_of[self.data] == stream][:1])
        return bool(np.any(opcode >> 5 == opcodes.UC))

    def answers(self, stream: Stream) -> npt.NDArray[np.int64]:
        """Rows of all that came back to the link of a stream's sender."""
        rows: npt.NDArray[np.int64] = self.rows[(self.stream_of == stream.back) & self.taps.arrives]
        return rows

    def column(self, name: str, which: Places) -> npt.NDArray[Any]:
        """One column of some of the rows with the lab header; rows are wide, and many."""
        return self.packets[name][self.rows[which]]

    @functools.cached_property
    def sightings(self) -> Places:
        """How many rows each transmission has, from `begins` on in `data`."""
        return np.diff(self.begins, append=len(self.data))

    @functools.cached_property
    def packet_begins(self) -> Places:
        """Where the transmissions of each packet (message and index) begin."""
        sent = self.transmissions
        new = np.ones(len(sent), dtype=np.bool_)
        new[1:] = (sent["message"][1:] != sent["message"][:-1]) | (
            sent["index"][1:] != sent["index"][:-1]
        )
        return np.flatnonzero(new)

    @functools.cached_property
    def packet_of(self) -> Places:
        """The packet (index of `packet_begins`) of each transmission."""
        of = np.zeros(len(self.transmissions), dtype=np.int64)
        of[self.packet_begins[1:]] = 1
        return np.cumsum(of)

    @functools.cached_property
    def packet_message(self) -> Places:
        of: Places = self.transmissions["message"][self.packet_begins].astype(np.int64)
        return of

    @functools.cached_property
    def packet_counts(self) -> npt.NDArray[np.bool_]:
        """Whether each packet may restore its message: all but data behind the end.

        Parity of csa_ud counts as what it restores (`restored_at`).
        """
        first = self.transmissions[self.packet_begins]
        coded = first["parity"] & (self.messages["block"][self.packet_message] == 0)
        within: npt.NDArray[np.bool_] = coded | self.packet_is_data
        return within

    @functools.cached_property
    def packet_is_data(self) -> npt.NDArray[np.bool_]:
        """Whether each packet is one of its message's data: neither parity, nor behind the end."""
        first = self.transmissions[self.packet_begins]
        data: npt.NDArray[np.bool_] = ~first["parity"]
        data &= first["index"] < self.messages["count"][self.packet_message]
        return data

    @functools.cached_property
    def packet_arrived_at(self) -> Places:
        """Of each packet, where any transmission of it first reached the receiver's link."""
        if not len(self.packet_begins):
            return np.zeros(0, dtype=np.int64)
        arrived: Places = np.minimum.reduceat(self.transmissions["arrived_at"], self.packet_begins)
        return arrived

    @functools.cached_property
    def packet_alive_at(self) -> Places:
        """As `packet_arrived_at`; where arrivals were not captured, when what may arrive was sent.

        That is a transmission that is not known to be lost.
        """
        sent = self.transmissions
        if not len(self.packet_begins):
            return np.zeros(0, dtype=np.int64)
        seen = self.are_arrivals_seen[self.messages["stream"][sent["message"]]]
        maybe = np.where(sent["gone_at"] == NEVER, sent["at"], NEVER)
        at = np.where(seen, sent["arrived_at"], maybe)
        alive: Places = np.minimum.reduceat(at, self.packet_begins)
        return alive

    @functools.cached_property
    def restored_at(self) -> Places:
        """Of each message, where parity of csa_ud and data sufficed for its last block; NEVER."""
        restored = np.full(len(self.messages), NEVER, dtype=np.int64)
        packets = self.transmissions[self.packet_begins]
        for number in np.flatnonzero(self.messages["block"]).tolist():
            begin, end = np.searchsorted(self.packet_message, [number, number + 1])
            count, block = (int(self.messages[name][number]) for name in ("count", "block"))
            mine = packets[begin:end]
            of_block = mine["parity"] | (mine["index"] >= max(count - block, 0))
            at = np.sort(self.packet_alive_at[begin:end][of_block])
            if len(at) >= block:
                restored[number] = at[block - 1]
        return restored

    def time_ns(self, places: Places | int) -> npt.NDArray[np.int64]:
        rows = self.evidence.in_time[places]
        times: npt.NDArray[np.int64] = self.evidence.packets["time_ns"][rows].astype(np.int64)
        return times

    def frame(self, place: int) -> int:
        return int(self.evidence.packets["number"][self.evidence.in_time[place]])

    def frames(self, *places: int) -> list[int]:
        """Numbers of the frames at these places, but NEVER."""
        return [self.frame(int(place)) for place in places if place != NEVER]

    @functools.cached_property
    def are_arrivals_seen(self) -> npt.NDArray[np.bool_]:
        """Of each stream whether it was captured where it reaches its receiver."""
        return np.array([each.arrives for each in self.streams], dtype=np.bool_)

    @functools.cached_property
    def end_ns(self) -> int:
        times = self.evidence.packets["time_ns"]
        return int(times.max()) if len(times) else 0

    @functools.cached_property
    def stamped(self) -> bool:
        """Whether times can be compared."""
        return bool(np.all(self.evidence.packets["has"] & Has.STAMPED))

    def stream(self, transmission: np.void) -> Stream:
        return self.streams[int(self.messages["stream"][transmission["message"]])]

    def name(self, transmission: np.void) -> str:
        """The packet, for people."""
        id_ = self.messages["id"][transmission["message"]]
        return f"packet {transmission['index']} of message id {id_}"

    def find_message(self, stream: int, id_: int) -> int | None:
        name = np.uint64(stream << 32 | id_)
        found = int(np.searchsorted(self.message_names, name))
        if found < len(self.message_names) and self.message_names[found] == name:
            return found
        return None

    def by_key(self, stream: int) -> dict[tuple[int, int, int], list[int]]:
        """Messages of a stream by what its workload calls them, in the order they began."""
        named: dict[tuple[int, int, int], list[int]] = {}
        mine = np.flatnonzero(self.messages["stream"] == stream)
        ordered = mine[np.argsort(self.messages["first_at"][mine], kind="stable")]
        part = self.messages[ordered]
        keys = zip(*(part[n].tolist() for n in ("operation", "step", "message")), strict=True)
        for number, key in zip(ordered.tolist(), keys, strict=True):
            named.setdefault(key, []).append(number)
        return named

    def data_streams(self) -> Iterator[Stream]:
        for number in np.unique(self.messages["stream"]).tolist():
            yield self.streams[number]
