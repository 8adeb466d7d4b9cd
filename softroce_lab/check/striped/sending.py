# SPDX-License-Identifier: GPL-2.0-or-later
"""When packets may leave: windows of PSNs, SLEEK's probes, and the pulls of `ndp`."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from softroce_lab.check import fault_rules
from softroce_lab.check.striped.controls import (
    FALCON,
    MRC,
    NDP,
    UCCL,
    UET_ROD,
    UET_RUD,
    ControlMessage,
)
from softroce_lab.check.striped.losses import Understood, lateness_ns
from softroce_lab.check.striped.messages import NEVER, ROUNDING_NS, Striped
from softroce_lab.check.striped.psns import Connection, idle_ns
from softroce_lab.check.striped.reasons import Timers
from softroce_lab.check.verdict import Rules, Tally

RULES = Rules()
_WINDOWED = (FALCON, UET_RUD, UET_ROD, MRC, UCCL)
_NO_RUN = "no run directory tells it"


def _streams(lab: Understood, *transports: str) -> Iterator[int]:
    """The streams of data of these transports."""
    for stream in lab.view.data_streams():
        if lab.controls.transports.get(stream.number) in transports:
            yield stream.number


@RULES.rule(
    "sr.window",
    "a packet is sent for the first time when the window of packet sequence numbers admits it",
    "docs/explanation/transports.md, `falcon`",
)
def _window(lab: Understood, tally: Tally) -> None:
    """The oldest packet without an acknowledgement is less than a window behind.

    An acknowledgement counts from the sender's link on, so the sender may know less.
    """
    view = lab.view
    for number in _streams(lab, *_WINDOWED):
        connection = lab.connection(number)
        first = connection.first
        window = _window_of(view, lab.controls.transports[number])
        if window is None:
            tally.doubts(f"the window: {_NO_RUN}", len(first))
            continue
        beyond = max(len(first) - window, 0)
        if beyond and connection.doubt:
            tally.doubts(connection.doubt, beyond)
            continue
        early = connection.known_ns[:beyond] > connection.first_ns[window:]
        tally.passed(len(first) - int(early.sum()))
        for one in first[window:][early]:
            tally.failed(
                view.frames(one["at"]),
                f"{view.name(one)} was sent beyond the window of {window} packets",
            )


def _window_of(view: Striped, transport: str) -> int | None:
    return view.mpr_packets if transport == MRC else view.options.get("psn_window")


@RULES.rule(
    "sr.probes",
    "probes of SLEEK keep the distance of its options",
    "docs/explanation/transports.md, `uet_rud` and `uet_rod`",
)
def _probes(lab: Understood, tally: Tally) -> None:
    view = lab.view
    if not view.options.get("sleek"):
        return
    for number in _streams(lab, UET_RUD):
        connection, stream = lab.connection(number), view.streams[number]
        doubt = connection.doubt
        if view.pacing or not view.times_senders:
            doubt = "probes may have waited in their sender"
        elif fault_rules.dropped_by_queues(view.evidence, view.answers(stream)):
            doubt = "the queue of the sender's link, behind the capture, dropped packets"
        elif lateness_ns(view) >= lab.sleek(number).spacing_ns:
            doubt = "hosts may act later than probes are apart"
        if doubt:
            tally.doubts(doubt, len(connection.retransmissions))
            continue
        sleek = lab.sleek(number)
        tally.passed(len(sleek.probes) - len(sleek.early))
        for probe, early_ns in sleek.early.items():
            one = view.transmissions[probe]
            tally.failed(
                view.frames(one["at"]),
                f"{view.name(one)} is a probe {early_ns} ns early; probes are at least "
                f"{sleek.spacing_ns} ns apart",
            )


# ---------------------------------------------------------------- ndp


@RULES.rule(
    "sr.pulled",
    "a packet leaves in the first window, for a pull, or because its timer ended",
    "docs/explanation/transports.md, `ndp`",
)
def _pulled(lab: Understood, tally: Tally) -> None:
    view = lab.view
    window = view.options.get("first_window") or view.window_packets
    least_ns = Timers.of(NDP, view).least_ns
    for number in _streams(lab, NDP):
        connection = lab.connection(number)
        pulls = lab.controls.pulls.get(number, [])
        received = [each for each in pulls if each.last_received_at != NEVER]
        if window is None:
            tally.doubts(f"the first window: {_NO_RUN}", len(connection.first))
        elif connection.doubt or not all(each.sure for each in received) or not least_ns:
            doubt = connection.doubt or "pulls or timers are not known"
            tally.doubts(doubt, len(connection.first))
        else:
            _check_pulled(view, connection, received, window, least_ns, tally)


def _check_pulled(
    view: Striped,
    connection: Connection,
    pulls: list[ControlMessage],
    window: int,
    least_ns: int,
    tally: Tally,
) -> None:
    credit = _Credit(window, connection.way_ns)
    sent = view.transmissions
    again = set(connection.retransmissions.tolist())
    numbers = [*connection.first_numbers.tolist(), *again]
    events: list[tuple[int, int | None, int]] = [
        (each.last_received_at, None, each.body.pulls)  # type: ignore[union-attr]
        for each in pulls
    ]
    events += [(int(sent["at"][number]), number, 0) for number in numbers]
    left_ns = 0
    for place, number, pulled in sorted(events, key=lambda event: event[0]):
        now_ns = int(view.time_ns(place))
        if number is None:
            credit.pull(now_ns, pulled)
            continue
        if now_ns - left_ns >= least_ns:
            credit.renew()  # nothing may have been in flight for a whole timeout
        left_ns = now_ns
        one = sent[number]
        before_ns = int(view.time_ns(int(sent["at"][number - 1]))) if number in again else now_ns
        if now_ns - before_ns >= least_ns or credit.take(now_ns):
            tally.passed()
        else:
            tally.failed(
                view.frames(place),
                f"{view.name(one)} left without a pull, behind the first window of {window} "
                "packets",
            )


class _Credit:
    """How many packets may leave at most, for a sender that hears of a pull within `way_ns`.

    Unused pulls beyond the window are lost. So a packet first uses up old credit, and a pull counts
    in addition to the window until the sender must have heard of it.
    """

    def __init__(self, window: int, way_ns: int) -> None:
        self._window, self._way_ns = window, way_ns
        self._old = window
        self._new: collections.deque[tuple[int, int]] = collections.deque()  # (time, credit)
        self._pulls = 0

    def pull(self, now_ns: int, pulls: int) -> None:
        more = (pulls - self._pulls + (1 << 31)) % (1 << 32) - (1 << 31)
        if more > 0:
            self._pulls = pulls
            self._new.append((now_ns, more))

    def renew(self) -> None:
        self._old = self._window

    def take(self, now_ns: int) -> bool:
        while self._new and self._new[0][0] + self._way_ns < now_ns:
            self._old = min(self._old + self._new.popleft()[1], self._window)
        if self._old:
            self._old -= 1
        elif self._new:
            since_ns, credit = self._new.popleft()
            if credit > 1:
                self._new.appendleft((since_ns, credit - 1))
        else:
            return False
        return True


@RULES.rule(
    "sr.pull-rate",
    "a receiver pulls no faster than its link brings full packets",
    "docs/explanation/transports.md, `ndp`",
)
def _pull_rate(lab: Understood, tally: Tally) -> None:
    """Each pull may have waited for its host's link since that link was last idle."""
    view = lab.view
    by_link: dict[int, list[ControlMessage]] = {}
    for number in _streams(lab, NDP):
        pulls = lab.controls.pulls.get(number, [])
        if not pulls:
            continue
        if not view.streams[pulls[0].stream].leaves:
            tally.doubts("the receiver's link was not captured", len(pulls))
            continue
        row = view.evidence.in_time[pulls[0].at]
        by_link.setdefault(int(view.evidence.packets["interface"][row]), []).extend(pulls)
    interval_ps = view.pull_interval_ps
    late_ps = 1000 * (lateness_ns(view) + ROUNDING_NS)
    for pulls in by_link.values():
        pulls.sort(key=lambda each: each.at)
        if interval_ps is None or not view.times_senders or view.missed:
            tally.doubts(f"the interval between pulls: {_NO_RUN}", len(pulls))
            continue
        since_ns = idle_ns(view, pulls[0].at)
        due_ps = 0
        for one in pulls:
            now_ps = 1000 * int(view.time_ns(one.at))
            if now_ps < due_ps - late_ps:
                tally.failed(
                    [view.frame(one.at)],
                    f"the pull leaves {(due_ps - now_ps) // 1000} ns early; pulls are "
                    f"{interval_ps // 1000} ns apart",
                )
            else:
                tally.passed()
            due_ps = max(due_ps, 1000 * since_ns[one.at]) + interval_ps
