# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for the parity of csa_ud: which packets it covers, its bytes, when it leaves, and how much
of it a host sends (docs/explanation/csa-ud.md, Parity).

A row is a packet of parity. Row r has the packet index `count + r`, behind the data of its message.
"""

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
_MOST_ENCODED = 4096  # messages whose parity is recomputed: each takes a millisecond
_REPORT = struct.Struct(">I12xI12x")  # echo_stamp_ns and ce_packets of a receiver report
_STAMPS = 1 << 32

_Bytes = npt.NDArray[np.uint8]


def _messages_of(lab: Understood) -> npt.NDArray[np.int64]:
    """The numbers of the messages for which csa_ud sent parity."""
    messages = lab.view.messages
    mine = np.isin(messages["stream"], sorted(lab.controls.of(CSA_UD)))
    return np.flatnonzero(mine & (messages["block"] > 0))


def _sent(view: Striped, number: int) -> npt.NDArray[np.void]:
    """The transmissions of a message."""
    message = view.messages[number]
    part: npt.NDArray[np.void] = view.transmissions[int(message["begin"]) : int(message["end"])]
    return part


# ---------------------------------------------------------------- packets and bytes


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
        row_bytes = last if block == 1 else size
        is_known = size >= 0 or count == 1
        for one, packet in _rows(view, number):
            wrong = _wrong_row(one, packet, row_bytes if is_known else None)
            if block != min(count, _MOST_BLOCK):
                wrong = f"covers {block} packets of data instead of {min(count, _MOST_BLOCK)}"
            if wrong:
                tally.failed(view.frames(one["at"]), f"{_named(view, one)} {wrong}")
            else:
                tally.passed()


def _rows(view: Striped, number: int) -> Iterator[tuple[np.void, np.void]]:
    """The transmissions of a message's parity, each with its packet in the capture."""
    begin = int(view.messages["begin"][number])
    for at, one in enumerate(_sent(view, number), begin):
        if one["parity"]:
            yield one, view.packets[view.rows[view.data[view.begins[at]]]]


def _wrong_row(one: np.void, packet: np.void, row_bytes: int | None) -> str | None:
    """Why the packet is no parity row of its message, or None. `row_bytes`: None if unknown."""
    row = int(one["index"]) - int(packet["lab_count"])
    if not 0 <= row < _MOST_ROWS:
        return f"is row {row} of at most {_MOST_ROWS}"
    bytes_ = int(packet["payload_bytes"])
    if row_bytes is not None and not int(packet["has"]) & Has.TRIMMED and bytes_ != row_bytes:
        return f"has {bytes_} bytes instead of {row_bytes}"
    return None


def _named(view: Striped, one: np.void) -> str:
    id_ = view.messages["id"][one["message"]]
    return f"packet {one['index']} of message id {id_}, parity,"


@RULES.rule("parity.bytes", "parity is the MDS code of its packets of data (GF(2^8))", _PARITY)
def _bytes(lab: Understood, tally: Tally) -> None:
    view = lab.view
    numbers = _messages_of(lab).tolist()
    for number in numbers[:_MOST_ENCODED]:
        data = _data_of_block(view, number)
        if isinstance(data, str):
            tally.doubts(data, int(view.messages["parity"][number]))
            continue
        for one, packet in _rows(view, number):
            row = int(one["index"]) - int(packet["lab_count"])
            payload = _payload(view, packet)
            if payload is None:
                tally.doubts("the snap length or a queue cut the parity")
            elif not 0 <= row < _MOST_ROWS or encode(data, row).tobytes() != payload:
                text = f"{_named(view, one)} differs from the code of its packets of data"
                tally.failed(view.frames(one["at"]), text)
            else:
                tally.passed()
    if len(numbers) > _MOST_ENCODED:
        tally.notes_that(f"checked for the first {_MOST_ENCODED:,} messages only")


def _data_of_block(view: Striped, number: int) -> _Bytes | str:
    """The packets of data that parity covers, one in each line of the array, padded with zeros.

    A text instead: why they are not known.
    """
    message = view.messages[number]
    begin, count = int(message["begin"]), int(message["count"])
    first = count - int(message["block"])
    packets: dict[int, bytes] = {}
    for at, one in enumerate(_sent(view, number), begin):
        index = int(one["index"])
        if one["parity"] or not first <= index < count or index in packets:
            continue
        rows = view.rows[view.data[view.begins[at] : view.begins[at] + view.sightings[at]]]
        payloads = (_payload(view, view.packets[row]) for row in rows.tolist())
        uncut = next((each for each in payloads if each is not None), None)
        if uncut is None:
            return "the snap length or a queue cut the data"
        packets[index] = uncut
    if len(packets) < count - first:
        return "not all packets that the parity covers were captured"
    longest = max(map(len, packets.values()))
    padded = [packets[index].ljust(longest, b"\0") for index in range(first, count)]
    return np.frombuffer(b"".join(padded), np.uint8).reshape(-1, longest)


def _payload(view: Striped, packet: np.void) -> bytes | None:
    """The payload of a packet in the capture; None if a queue or the snap length cut it."""
    if int(packet["has"]) & Has.TRIMMED:
        return None
    payload = view.evidence.capture.payload(int(packet["number"]))
    return payload if len(payload) == int(packet["payload_bytes"]) else None


@functools.cache
def _logarithms() -> tuple[_Bytes, npt.NDArray[np.int64]]:
    """Tables of GF(2^8) with the polynomial 0x11d.

    The powers 2^0 to 2^254, followed by the same again, so that a sum of two logarithms is an
    index. The logarithms to base 2 of 1 to 255; the entry of 0 means nothing.
    """
    powers = [1]
    while len(powers) < 255:
        double = powers[-1] << 1
        powers.append(double ^ 0x11D if double & 0x100 else double)
    logarithms = np.zeros(256, np.int64)
    logarithms[powers] = np.arange(255)
    return np.array(powers * 2, np.uint8), logarithms


def encode(data: _Bytes, row: int) -> _Bytes:
    """The bytes of a row: in GF(2^8), the sum over j of `data[j] / ((k + row) xor j)`.

    k is the number of packets in `data`. This code is independent of the engine's encoder.
    """
    powers, logarithms = _logarithms()
    count = len(data)
    factors = (255 - logarithms[(count + row) ^ np.arange(count)])[:, None]
    products = np.where(data == 0, 0, powers[factors % 255 + logarithms[data]])
    parity: _Bytes = np.bitwise_xor.reduce(products, axis=0).astype(np.uint8)
    return parity


# ---------------------------------------------------------------- when, and how much


@RULES.rule("parity.behind", "parity leaves after all data of its message", _PARITY)
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
    """Compares, at each packet of parity, the packets that the host has sent until then."""
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
    """The options of the run's transport that differ from the defaults; None if unknown."""
    run = view.evidence.run
    one = None if run is None else run.only
    if run is None or one is None:
        return None
    experiment = run.manifest.get("experiment", {})
    transports: Sequence[Mapping[str, Any]] = experiment.get("transports", [])
    mine = (each for each in transports if each.get("label") == one.get("transport"))
    return next((each.get("options") or {} for each in mine), None)


def _by_sender(view: Striped, streams: set[int]) -> dict[str, list[int]]:
    """The numbers of the streams that each host sends, by the address of the host."""
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
    """Parity is wrong if every report that the sender may have decided by showed marks.

    These are the reports of the last round trip, because parity waits in queues after the decision,
    and the newest report before that round trip.
    """
    view = lab.view
    options = _options(view)
    if not (options or {}).get("parity_uncongested", True):
        return
    for number in sorted(lab.controls.of(CSA_UD)):
        stream = view.streams[number]
        in_stream = view.messages["stream"][view.transmissions["message"]] == number
        sent = view.transmissions[in_stream & view.transmissions["parity"]]
        if not len(sent):
            continue
        doubt = _doubt_about_reports(lab, stream, options)
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


def _doubt_about_reports(
    lab: Understood, stream: Stream, options: Mapping[str, Any] | None
) -> str | None:
    """Why the capture does not tell which reports the sender knew; None if it does."""
    view = lab.view
    if options is None:
        return "no run directory tells whether marks keep parity back"
    back = None if stream.back is None else view.streams[stream.back]
    if back is None or not back.arrives or not stream.leaves or view.missed:
        return "not all reports that came to the sender were captured"
    return None if view.stamped else "frames have no times"


def _reports(view: Striped, stream: Stream) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The places of the reports that arrived at a stream's sender, and which show new marks."""
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
            continue  # a newer report overtook this one
        places.append(int(view.places[number]))
        marked.append(ce_packets != marks)
        echo, marks = stamp, ce_packets
    return np.array(places, np.int64), np.array(marked, np.bool_)
