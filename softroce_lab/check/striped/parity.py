# SPDX-License-Identifier: GPL-2.0-or-later
"""Parity that csa_ud sends behind a message: the right bytes, of the right packets, at the right
time, and not too much of it (docs/explanation/csa-ud.md, Parity)."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.check.striped.controls import CSA_UD, SDR_AUTO, SDR_EC
from softroce_lab.check.striped.losses import Understood, slowest
from softroce_lab.check.striped.messages import CONTROL, NEVER, REPORT, Stream, Striped
from softroce_lab.check.striped.rows import packet_sizes
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.telemetry.packets import Has

_PARITY = "docs/explanation/csa-ud.md, Parity"
RULES = Rules()

_MOST_BLOCK, _MOST_ROWS = 64, 4  # kMostBlockPackets, kMostParity: native/engine/striped
_BUDGET = 0.15  # the default of the option `parity_budget`
_MOST_ENCODED = 4096  # messages: encoding takes a millisecond each
_REPORT = struct.Struct(">I12xI12x")  # echo_stamp_ns and ce_packets of a receiver report
_STAMPS = 1 << 32

_Bytes = npt.NDArray[np.uint8]


def _messages_of(lab: Understood) -> npt.NDArray[np.int64]:
    """Those that parity of csa_ud follows."""
    messages = lab.view.messages
    mine = np.isin(messages["stream"], sorted(lab.controls.of(CSA_UD)))
    return np.flatnonzero(mine & (messages["block"] > 0))


def _sent(view: Striped, number: int) -> npt.NDArray[np.void]:
    """The transmissions of a message."""
    message = view.messages[number]
    part: npt.NDArray[np.void] = view.transmissions[int(message["begin"]) : int(message["end"])]
    return part


# ---------------------------------------------------------------- what it is


@RULES.rule(
    "parity.block",
    "parity covers the last packets of its message, at most 64, and has at most 4 packets, as long "
    "as the longest of them",
    _PARITY,
)
def _block(lab: Understood, tally: Tally) -> None:
    view = lab.view
    sizes = packet_sizes(view)
    for number in _messages_of(lab).tolist():
        message = view.messages[number]
        count, length, block = (int(message[name]) for name in ("count", "length", "block"))
        size = int(sizes[message["stream"]])
        last = length - (count - 1) * size if count > 1 else length
        due = last if block == 1 else size
        for one, row in _rows(view, number):
            wrong = _wrong_block(one, row, due if size >= 0 or count == 1 else None)
            if block != min(count, _MOST_BLOCK):
                wrong = f"covers {block} packets of data instead of {min(count, _MOST_BLOCK)}"
            if wrong:
                tally.failed(view.frames(one["at"]), f"{_named(view, one)} {wrong}")
            else:
                tally.passed()


def _rows(view: Striped, number: int) -> Iterator[tuple[np.void, np.void]]:
    """The transmissions of a message's parity, each with a row of the capture."""
    begin = int(view.messages["begin"][number])
    for at, one in enumerate(_sent(view, number), begin):
        if one["parity"]:
            yield one, view.packets[view.rows[view.data[view.begins[at]]]]


def _wrong_block(one: np.void, row: np.void, due: int | None) -> str | None:
    place = int(one["index"]) - int(row["lab_count"])
    if not 0 <= place < _MOST_ROWS:
        return f"is row {place} of at most {_MOST_ROWS}"
    bytes_ = int(row["payload_bytes"])
    if due is not None and not int(row["has"]) & Has.TRIMMED and bytes_ != due:
        return f"has {bytes_} bytes instead of {due}"
    return None


def _named(view: Striped, one: np.void) -> str:
    id_ = view.messages["id"][one["message"]]
    return f"packet {one['index']} of message id {id_}, parity,"


@RULES.rule("parity.bytes", "parity is what its packets of data give (MDS, GF(2^8))", _PARITY)
def _bytes(lab: Understood, tally: Tally) -> None:
    view = lab.view
    numbers = _messages_of(lab).tolist()
    for number in numbers[:_MOST_ENCODED]:
        data = _data_of_block(view, number)
        if isinstance(data, str):
            tally.doubts(data, int(view.messages["parity"][number]))
            continue
        for one, row in _rows(view, number):
            place = int(one["index"]) - int(row["lab_count"])
            given = _payload(view, row)
            if given is None or int(row["has"]) & Has.TRIMMED:
                tally.doubts("the snap length or a queue cut the parity")
            elif not 0 <= place < _MOST_ROWS or encode(data, place).tobytes() != given:
                text = f"{_named(view, one)} has other bytes than its packets give"
                tally.failed(view.frames(one["at"]), text)
            else:
                tally.passed()
    if len(numbers) > _MOST_ENCODED:
        tally.notes_that(f"of the first {_MOST_ENCODED:,} messages")


def _data_of_block(view: Striped, number: int) -> _Bytes | str:
    """The packets of data that parity covers, a row each, zeros behind the last; or why not."""
    message = view.messages[number]
    begin, count = int(message["begin"]), int(message["count"])
    first = count - int(message["block"])
    packets: dict[int, bytes] = {}
    for at, one in enumerate(_sent(view, number), begin):
        index = int(one["index"])
        if one["parity"] or not first <= index < count or index in packets:
            continue
        rows = view.rows[view.data[view.begins[at] : view.begins[at] + view.sightings[at]]]
        whole = (_payload(view, view.packets[row]) for row in rows.tolist())
        found = next((each for each in whole if each is not None), None)
        if found is None:
            return "the snap length or a queue cut the data"
        packets[index] = found
    if len(packets) < count - first:
        return "not all packets that the parity covers were captured"
    longest = max(map(len, packets.values()))
    rows_ = [packets[index].ljust(longest, b"\0") for index in range(first, count)]
    return np.frombuffer(b"".join(rows_), np.uint8).reshape(-1, longest)


def _payload(view: Striped, row: np.void) -> bytes | None:
    """None: it was cut."""
    if int(row["has"]) & Has.TRIMMED:
        return None
    payload = view.evidence.capture.payload(int(row["number"]))
    return payload if len(payload) == int(row["payload_bytes"]) else None


@functools.cache
def _logarithms() -> tuple[_Bytes, npt.NDArray[np.int64]]:
    """Powers of 2 in GF(2^8), polynomial 0x11d, twice in a row; and logarithms of 1 to 255."""
    powers = [1]
    while len(powers) < 255:
        double = powers[-1] << 1
        powers.append(double ^ 0x11D if double & 0x100 else double)
    logarithms = np.zeros(256, np.int64)
    logarithms[powers] = np.arange(255)
    return np.array(powers * 2, np.uint8), logarithms


def encode(data: _Bytes, place: int) -> _Bytes:
    """A row of parity: the sum of data j over (k + place) xor j. Apart from the engine's code."""
    powers, logarithms = _logarithms()
    count = len(data)
    factors = (255 - logarithms[(count + place) ^ np.arange(count)])[:, None]
    products = np.where(data == 0, 0, powers[factors % 255 + logarithms[data]])
    parity: _Bytes = np.bitwise_xor.reduce(products, axis=0).astype(np.uint8)
    return parity


# ---------------------------------------------------------------- when, and how much


@RULES.rule("parity.behind", "parity leaves behind all data of its message", _PARITY)
def _behind(lab: Understood, tally: Tally) -> None:
    view = lab.view
    for number in _messages_of(lab).tolist():
        stream = view.streams[int(view.messages["stream"][number])]
        if not stream.leaves or view.missed:
            tally.doubts("not all that the sender sent was captured")
            continue
        if not view.messages["begun"][number]:
            tally.doubts("the message began before the capture")
            continue
        sent = _sent(view, number)
        data = sent[~sent["parity"] & (sent["attempt"] == 0)]
        early = sent[sent["parity"]]["at"] < data["at"].max(initial=-1)
        missing = int(view.messages["count"][number]) - len(np.unique(data["index"]))
        if missing or early.any():
            one = sent[sent["parity"]][0]
            text = f"{_named(view, one)} left before all packets of data"
            tally.failed(view.frames(one["at"], data["at"].max(initial=NEVER)), text)
        else:
            tally.passed()


@RULES.rule("parity.once", "no packet of parity is sent again", _PARITY)
def _once(lab: Understood, tally: Tally) -> None:
    view = lab.view
    coded = lab.controls.of(CSA_UD) | lab.controls.of(SDR_EC) | lab.controls.of(SDR_AUTO)
    sent = view.transmissions
    mine = sent["parity"] & np.isin(view.messages["stream"][sent["message"]], sorted(coded))
    again = mine.copy()
    again[1:] &= (view.packet_of[1:] == view.packet_of[:-1]) | (sent["attempt"][1:] > 0)
    again[:1] &= sent["attempt"][:1] > 0
    tally.passed(int((mine & ~again).sum()))
    for one in sent[again]:
        text = f"{_named(view, one)} sent again, attempt {one['attempt']}"
        tally.failed(view.frames(one["at"]), text)


@RULES.rule(
    "parity.budget", "a host sends no more parity than its budget, as a share of its data", _PARITY
)
def _budget(lab: Understood, tally: Tally) -> None:
    """At each packet of parity, by all packets of the host until then."""
    view = lab.view
    streams = lab.controls.of(CSA_UD)
    options = _options(view)
    budget = float((options or {}).get("parity_budget", _BUDGET))
    for host, numbers in _by_sender(view, streams).items():
        of_host = np.isin(view.messages["stream"], numbers)
        sent = view.transmissions[of_host[view.transmissions["message"]]]
        if not sent["parity"].any():
            continue
        if view.missed or not all(view.streams[number].leaves for number in numbers):
            tally.doubts("not all that the sender sent was captured")
            continue
        if not view.messages["begun"][of_host].all():
            tally.doubts("messages began before the capture")
            continue
        sent = sent[(sent["attempt"] == 0)]
        sent = sent[np.argsort(sent["at"], kind="stable")]
        parity, data = np.cumsum(sent["parity"]), np.cumsum(~sent["parity"])
        over = np.flatnonzero(sent["parity"] & (parity > budget * data))
        tally.passed(int(parity[-1]) - len(over))
        share = f"{host}: {parity[-1]:,} packets of parity for {data[-1]:,} of data"
        tally.notes_that(f"{share} ({parity[-1] / max(data[-1], 1):.2%})")
        if not len(over):
            continue
        if options is None:
            tally.doubts("no run directory tells the budget", len(over))
            continue
        first = over[0]
        text = f"{host}: {parity[first]:,} packets of parity when {data[first]:,} of data had left"
        tally.failed(view.frames(sent["at"][first]), text, len(over))


def _options(view: Striped) -> Mapping[str, Any] | None:
    """Those of the run's transport that are not the defaults; None: nothing tells them."""
    run = view.evidence.run
    one = None if run is None else run.only
    if run is None or one is None:
        return None
    experiment = run.manifest.get("experiment", {})
    transports: Sequence[Mapping[str, Any]] = experiment.get("transports", [])
    mine = (each for each in transports if each.get("label") == one.get("transport"))
    return next((each.get("options") or {} for each in mine), None)


def _by_sender(view: Striped, streams: set[int]) -> dict[str, list[int]]:
    """The streams of each host, by its address."""
    found: dict[str, list[int]] = {}
    for number in sorted(streams):
        rows = view.rows[view.stream_of == number]
        if len(rows):
            gid = bytes(view.packets["source"][rows[0]])
            name = ".".join(map(str, gid[12:])) if gid[:10] == bytes(10) else gid.hex(":", 2)
            found.setdefault(name, []).append(number)
    return found


@RULES.rule(
    "parity.marks",
    "no parity leaves for a peer whose newest report shows congestion marks",
    _PARITY,
    by_time=True,
)
def _marks(lab: Understood, tally: Tally) -> None:
    """A report may come when the parity waits to leave: those of a round trip before count."""
    view = lab.view
    options = _options(view)
    if not (options or {}).get("parity_uncongested", True):
        return
    for number in sorted(lab.controls.of(CSA_UD)):
        stream = view.streams[number]
        of_stream = view.messages["stream"][view.transmissions["message"]] == number
        sent = view.transmissions[of_stream & view.transmissions["parity"]]
        if not len(sent):
            continue
        doubt = _doubts_reports(lab, stream, options)
        if doubt:
            tally.doubts(doubt, len(sent))
            continue
        places, marked = _reports(view, stream)
        times = view.time_ns(places)
        slack_ns = slowest(view, stream)[0] or view.timing.initial_rtt_ns
        for one in sent[np.argsort(sent["at"], kind="stable")]:
            at_ns = int(view.time_ns(int(one["at"])))
            newest = int(np.searchsorted(times, at_ns - slack_ns, "right")) - 1
            end = int(np.searchsorted(places, int(one["at"])))
            if newest < 0 or not marked[newest:end].all():
                tally.passed()
                continue
            text = f"{_named(view, one)} left, and the newest report showed marks"
            tally.failed(view.frames(places[newest], one["at"]), text)


def _doubts_reports(
    lab: Understood, stream: Stream, options: Mapping[str, Any] | None
) -> str | None:
    view = lab.view
    if options is None:
        return "no run directory tells whether marks keep parity back"
    back = None if stream.back is None else view.streams[stream.back]
    if back is None or not back.arrives or not stream.leaves or view.missed:
        return "not all reports that came to the sender were captured"
    return None if view.stamped else "frames have no times"


def _reports(view: Striped, stream: Stream) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where reports on a stream came to its sender, and whether each showed new marks."""
    came = view.taps.arrives & (view.stream_of == stream.back)
    came &= np.isin(view.kinds, (REPORT, CONTROL)) & ~view.evidence.is_lost[view.rows]
    places, marked = [], []
    echo, marks = None, 0
    for number in np.flatnonzero(came).tolist():
        row = view.packets[view.rows[number]]
        body = view.evidence.capture.payload(int(row["number"]))
        body = body if row["lab_kind"] == REPORT else body[int(row["lab_length"]) :]
        if len(body) < _REPORT.size:
            continue
        stamp, ce_packets = _REPORT.unpack_from(body)
        if echo is not None and (stamp - echo) % _STAMPS >= _STAMPS // 2:
            continue  # another overtook it
        places.append(int(view.places[number]))
        marked.append(ce_packets != marks)
        echo, marks = stamp, ce_packets
    return np.array(places, np.int64), np.array(marked, np.bool_)
