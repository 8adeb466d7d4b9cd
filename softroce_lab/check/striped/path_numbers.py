# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers on paths (docs/explanation/csa-ud.md): counted without a gap, probed when the sender
falls silent, and settled no further than they came.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab.check.striped.controls import CSA_UD, ControlMessage, Controls
from softroce_lab.check.striped.losses import Bounds, Understood
from softroce_lab.check.striped.messages import DATA, PATH_PROBE, Places, Stream, Striped
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.transports.control import Nack

_NUMBERS = 1 << 24  # a path has, then they wrap
_PATHS = 16  # a header names one of the source ports of its path: p, p + 16, p + 32 ...
RULES = Rules()


@RULES.rule(
    "csa.numbers",
    "data packets and probes of a path count up by one, in one connection epoch",
    "docs/explanation/csa-ud.md, Path numbers",
)
@RULES.rule(
    "csa.probes",
    "a sender that falls silent has probed each path that carried data, or named it in a probe",
    "docs/explanation/csa-ud.md, Path probe",
)
@RULES.rule(
    "csa.settled",
    "a NACK settles no number beyond those that came, and none that it settled goes back",
    "docs/explanation/csa-ud.md, NACK",
)
def check(lab: Understood, numbers: Tally, probes: Tally, settled: Tally) -> None:
    """Of the streams of UD packets that `csa_ud` recovers."""
    view, controls = lab.view, lab.controls
    numbered = np.isin(view.kinds, (DATA, PATH_PROBE))
    for number in sorted(controls.of(CSA_UD) - controls.cleared):
        stream = view.streams[number]
        mine = np.flatnonzero(numbered & (view.stream_of == number))
        sent = mine[view.taps.leaves[mine]]
        if len(sent) and not view.missed:
            _numbers(view, sent, numbers)
            _probes(view, stream, sent, probes)
        _settled(view, controls, stream, mine, settled)


def _by_path(view: Striped, which: Places) -> Iterator[tuple[int, Places]]:
    paths = view.column("lab_path", which) % _PATHS
    for path in np.unique(paths).tolist():
        yield path, which[paths == path]


def _frames(view: Striped, which: list[int]) -> list[int]:
    return [view.frame(int(view.places[each])) for each in which]


def _numbers(view: Striped, sent: Places, tally: Tally) -> None:
    epochs = view.column("lab_epoch", sent)
    other = sent[epochs != epochs[0]]
    if len(other):
        text = f"epoch {int(view.column('lab_epoch', other)[0])} among packets of {int(epochs[0])}"
        tally.failed(_frames(view, [int(sent[0]), int(other[0])]), text, len(other))
    for path, of_path in _by_path(view, sent):
        numbers: Places = view.column("lab_number", of_path).astype(np.int64)
        steps = (numbers[1:] - numbers[:-1]) % _NUMBERS
        wrong = np.flatnonzero(steps != 1)
        tally.passed(len(of_path) - len(wrong))
        for at in wrong.tolist():
            text = f"path {path}: number {numbers[at + 1]} follows {numbers[at]}"
            tally.failed(_frames(view, of_path[at : at + 2].tolist()), text)


def _probes(view: Striped, stream: Stream, sent: Places, tally: Tally) -> None:
    """Where nothing left for longer than the bound, a probe was the last on each path, or named the
    number behind it.
    """
    doubt = "packets wait for contexts" if view.waits_for_contexts else view.doubts_timers
    if view.pacing and not doubt:  # who may not send probes after SRTT + 4 RTTVAR, of full queues
        doubt = f"{view.pacing} may let a packet wait for many round trips"
    if doubt or not view.stamped:
        tally.doubts(doubt or "frames have no times")
        return
    bound_ns = Bounds.of(view, stream).probe_ns
    times = view.time_ns(view.places[sent])
    silent = np.flatnonzero(np.diff(np.append(times, view.end_ns)) > bound_ns)
    probes = view.column("lab_kind", sent) == PATH_PROBE
    by_others = _named(view, sent[probes])
    paths = view.column("lab_path", sent) % _PATHS
    numbers = view.column("lab_number", sent).astype(np.int64)
    last = np.full(int(paths.max()) + 1, -1)
    begin = 0
    for end in silent.tolist():
        part = np.arange(begin, end + 1)
        last[paths[part]] = part  # of several the last one stays
        open_ = [
            n
            for n in last[last >= 0].tolist()
            if not probes[n] and (int(paths[n]), (int(numbers[n]) + 1) % _NUMBERS) not in by_others
        ]
        begin = end + 1
        if not open_:
            tally.passed()
            continue
        text = f"no probe within {bound_ns / 1e6:.3f} ms behind the last data on path"
        named = ", ".join(str(int(paths[n])) for n in open_)
        tally.failed(_frames(view, sent[open_].tolist()), f"{text} {named}")


def _named(view: Striped, probes: Places) -> set[tuple[int, int]]:
    """The paths that probes name beside their own, each with its next number."""
    found: set[tuple[int, int]] = set()
    rows = view.evidence.packets[view.rows[probes]]
    for number, length in zip(rows["number"].tolist(), rows["lab_length"].tolist(), strict=True):
        body = view.evidence.capture.payload(number)[:length]
        words = np.frombuffer(body[: len(body) // 4 * 4], ">u4").tolist()
        found.update((word >> 24, word % _NUMBERS) for word in words)
    return found


def _settled(view: Striped, controls: Controls, stream: Stream, mine: Places, tally: Tally) -> None:
    nacks = [each for each in controls.sent if each.stream == stream.back]
    nacks = [each for each in nacks if isinstance(each.body, Nack)]
    if not nacks:
        return
    if not stream.whole or view.missed:
        tally.doubts("not all that came to the receiver was captured", len(nacks))
        return
    lost = view.evidence.is_lost[view.rows[mine]]
    seen = mine[view.taps.arrives[mine] & ~lost] if stream.arrives else mine
    by_others = _named_by(view, seen)
    came = {
        path: _progress(view, of_path, by_others.get(path, []))
        for path, of_path in _by_path(view, seen)
    }
    before: ControlMessage | None = None
    for nack in nacks:
        wrong = [path for path in came if _beyond(nack, path, *came[path])]
        back = [] if before is None else [p for p in came if _ahead(before, nack, p) > 0]
        if wrong or back:
            what = "beyond what had come" if wrong else "behind what was settled before"
            text = f"path {(wrong or back)[0]}: a NACK settles numbers {what}"
            tally.failed([view.frame(nack.at)], text)
        else:
            tally.passed()
        before = nack


def _named_by(view: Striped, seen: Places) -> dict[int, list[tuple[int, int]]]:
    """Of each path the places of probes on others that name it, and the number before its next."""
    found: dict[int, list[tuple[int, int]]] = {}
    probes = seen[view.column("lab_kind", seen) == PATH_PROBE]
    for each in probes.tolist():
        place = int(view.places[each])
        for path, following in _named(view, np.array([each])):
            found.setdefault(path, []).append((place, (following - 1) % _NUMBERS))
    return found


def _progress(
    view: Striped, of_path: Places, by_others: list[tuple[int, int]]
) -> tuple[Places, npt.NDArray[np.int64]]:
    """Places, and the number behind the highest until there, without wrapping."""
    places: Places = np.append(view.places[of_path], [place for place, _ in by_others])
    numbers = np.append(
        view.column("lab_number", of_path).astype(np.int64), [number for _, number in by_others]
    ).astype(np.int64)
    order = np.argsort(places, kind="stable")
    unwrapped = np.unwrap(numbers[order], period=_NUMBERS)
    return places[order].astype(np.int64), np.maximum.accumulate(unwrapped) + 1


def _beyond(nack: ControlMessage, path: int, places: Places, behind: npt.NDArray[np.int64]) -> bool:
    at = int(np.searchsorted(places, nack.at)) - 1
    if at < 0:
        return False  # nothing of the path was captured before
    return 0 < (_settled_of(nack, path) - int(behind[at])) % _NUMBERS < _NUMBERS // 2


def _ahead(before: ControlMessage, nack: ControlMessage, path: int) -> int:
    """How far the first settles more than the second; 0: not at all."""
    ahead = (_settled_of(before, path) - _settled_of(nack, path)) % _NUMBERS
    return ahead if ahead < _NUMBERS // 2 else 0


def _settled_of(nack: ControlMessage, path: int) -> int:
    assert isinstance(nack.body, Nack)  # noqa: S101
    return nack.body.settled[path]
