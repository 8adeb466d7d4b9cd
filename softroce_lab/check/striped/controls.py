# SPDX-License-Identifier: GPL-2.0-or-later
"""The control messages of a stream in both directions, parsed.

Each is listed once, however many links it was captured on. Those that the snap length cut are
counted, for then nothing follows from what was not read."""

from __future__ import annotations

import collections
import dataclasses
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab.check.striped.messages import CONTROL, NEVER, PATH_PROBE, Stream, Striped
from softroce_lab.experiment.transports.transport import USERS
from softroce_lab.transports import control
from softroce_lab.transports.api import Key
from softroce_lab.transports.control import Ack, Chunks, Clear, Nack, PacketSet, Refused, Rnr, Sack

IRN, SRNIC, RACK_TLP, FALCON = "irn", "srnic", "rack_tlp", "falcon"
UET_RUD, UET_ROD, MRC, DCP, NDP, UCCL = "uet_rud", "uet_rod", "mrc", "dcp", "ndp", "uccl"
BY_FEEDBACK = (IRN, SRNIC, RACK_TLP, FALCON, UET_RUD, UET_ROD, MRC, DCP, NDP, UCCL)
BY_TIME = (RACK_TLP, FALCON, UET_RUD, UET_ROD, MRC, UCCL)
"""These decide by a packet's send time whether it is lost; their timers follow the measured RTT."""
_SACKING = (SRNIC, RACK_TLP, FALCON, UET_RUD, MRC, NDP, UCCL)

_ACK, _NACK, _SACK, _TRIMMED, _PULL = range(16, 21)
_HEAD, _PACKET, _WORD = struct.Struct(">BIII"), struct.Struct(">I"), struct.Struct(">IQ")
_CUT = struct.Struct(">IBB")  # packet, path, at the last hop
_PULLED = struct.Struct(">BI")
_WORD_BITS = 64
CSA_UD, UD_RTO, SDR_SR, SDR_SR_NACK = "csa_ud", "ud_rto", "sdr_sr", "sdr_sr_nack"
SDR_EC, SDR_AUTO = "sdr_ec", "sdr_auto"
TIMED = (UD_RTO, SDR_SR, SDR_SR_NACK, SDR_EC, SDR_AUTO)
"""By timers of the sender, which has a bitmap."""
_UNSEEN = ("oracle", "lossless")  # of which no capture has feedback
_IDS = 1 << 32


@dataclasses.dataclass(frozen=True, slots=True)
class Feedback:
    """PACKET_ACK, _NACK, _SACK or _TRIMMED: packets [0, cumulative) are here, and these."""

    id: int
    cumulative: int
    packets: tuple[int, ...]  # beyond those; none in a PACKET_ACK or PACKET_TRIMMED
    transports: tuple[str, ...]  # that send it, the usual one first; none: all of BY_FEEDBACK
    wanted: int | None = None  # packet that the receiver asks for: it was trimmed, or others were
    # dropped because of it
    trimmed: bool = False  # a PACKET_TRIMMED
    at_last_hop: bool = False  # the link that leads to the receiver trimmed it

    @property
    def end(self) -> int:
        """Behind the highest packet that is here."""
        return max(self.cumulative, *(packet + 1 for packet in self.packets), 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Pull:
    """PACKET_PULL: so many packets were pulled of the sender so far, modulo 2^32."""

    pulls: int


def parse_feedback(body: bytes) -> Feedback | Pull | None:
    """None: it is something else."""
    if len(body) == _PULLED.size and body[0] == _PULL:
        return Pull(_PULLED.unpack(body)[1])
    if len(body) < _HEAD.size:
        return None
    kind, id_, cumulative, _ = _HEAD.unpack_from(body)
    rest = body[_HEAD.size :]
    if kind == _ACK and not rest:
        return Feedback(id_, cumulative, (), ())
    if kind == _TRIMMED and len(rest) == _CUT.size:
        packet, _, at_last_hop = _CUT.unpack(rest)
        return Feedback(id_, cumulative, (), (), packet, True, at_last_hop == 1)
    if kind == _NACK and len(rest) == _PACKET.size:
        return Feedback(id_, cumulative, _PACKET.unpack(rest), (IRN, UET_ROD))
    if kind == _SACK and len(rest) == _WORD.size:
        base, bits = _WORD.unpack(rest)
        there = (base + n for n in range(_WORD_BITS) if bits >> n & 1)
        return Feedback(id_, cumulative, tuple(there), _SACKING)
    return None


def _known(protocol: object) -> str:
    """Of a sender whose reasons no capture shows, as of a user's own, nothing is known."""
    return USERS if protocol in _UNSEEN else str(protocol)


@dataclasses.dataclass(frozen=True, slots=True)
class ControlMessage:
    """A control message that was sent."""

    stream: int  # that it is part of
    at: int  # place of the first sighting
    last_received_at: int  # where it reached the receiver's link; NEVER
    sure: bool  # whole then; else a copy's bits were flipped, and perhaps this one's
    gone: bool  # dropped or corrupted
    body: control.Message | Feedback | Pull


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A NACK, SACK or CHUNKS: what a receiver reports as missing of a message."""

    sent: ControlMessage
    missing: PacketSet | None  # None: all of it
    packets: int = 1  # that one bit stands for
    beyond: int | None = None  # packets from here on are missing, too

    def names(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these packets it lacks."""
        if self.missing is None:
            return np.ones(len(indices), dtype=np.bool_)
        where = indices // self.packets - self.missing.base
        inside = (where >= 0) & (where < len(self.missing.bits))
        named = np.zeros(len(indices), dtype=np.bool_)
        named[inside] = self.missing.bits[where[inside]]
        if self.beyond is not None:
            named |= indices >= self.beyond
        return named


def _missing(words: list[tuple[int, int]]) -> tuple[PacketSet | None, int | None]:
    """What the words of a message in a NACK call missing, and from where on all is."""
    beyond = next((base for base, bits in words if not bits), None)
    if beyond == 0:
        return None, None
    first = min(base for base, _ in words)
    end = max(base + bits.bit_length() for base, bits in words)
    missing = np.zeros(end - first, dtype=np.bool_)
    for base, bits in words:
        for bit in range(bits.bit_length()):
            missing[base - first + bit] |= bits >> bit & 1 == 1
    return PacketSet(first, missing), beyond


def _dropped(sent: ControlMessage) -> ControlMessage:
    """The feedback as `uet_rod` means it: it has dropped the packet that its NACK names."""
    body: Feedback = sent.body  # type: ignore[assignment]
    if UET_ROD not in body.transports:
        return sent
    meant = dataclasses.replace(body, packets=(), wanted=body.cumulative)
    return dataclasses.replace(sent, body=meant)


class Controls:
    """All control messages of a view, by what they are about."""

    def __init__(self, view: Striped) -> None:
        self.view = view
        self.cut: collections.Counter[int] = collections.Counter()  # by stream: not read
        self.malformed: list[tuple[int, str]] = []  # places, and what is wrong
        self.sent = list(self._read())
        self.failed = self._failed()  # messages that ended in error, by the run directory
        self._keys = {each.number: view.by_key(each.number) for each in view.data_streams()}
        self.asked: dict[int, list[Asked]] = {}  # by message, in time
        self.feedback: dict[int, list[ControlMessage]] = {}  # feedback on packets, likewise
        self.pulls: dict[int, list[ControlMessage]] = {}  # by stream, in time
        self.not_ready: set[int] = set()  # messages for which no receive was posted once
        self.acked: dict[int, ControlMessage] = {}  # by message, the first
        self.refused: dict[int, ControlMessage] = {}
        self.stray_acks: list[tuple[ControlMessage, int]] = []  # of no message here
        self.cleared: set[int] = set()  # streams of which the messages travel as UC WRITEs
        self.refused_ids: set[tuple[int, int]] = set()  # (stream of the message, id)
        self.transports = self._from_manifest()
        for number in np.unique(view.stream_of[view.kinds == PATH_PROBE]).tolist():
            self._recovers(number, CSA_UD)
        told = set(self.transports)
        for sent in self.sent:
            self._file(sent)
        of = view.messages["stream"]
        for number in self.of(IRN) - told:
            messages = [each for each in self.feedback if of[each] == number]
            if self._is_of_uet_rod(messages):
                self.transports[number] = UET_ROD
                for message in messages:
                    self.feedback[message] = list(map(_dropped, self.feedback[message]))
        for stream in view.streams:  # both directions of a pair use one protocol
            if stream.back in self.transports:
                self.transports.setdefault(stream.number, self.transports[stream.back])

    # ---------------------------------------------------------------- reading

    def _read(self) -> Iterator[ControlMessage]:
        view = self.view
        which = np.flatnonzero(view.kinds == CONTROL)
        sequence, psn = view.column("lab_message", which), view.column("psn", which)
        order = np.lexsort((psn, sequence, view.stream_of[which]))  # of one packet in time
        groups: dict[tuple[int, ...], list[int]] = {}
        columns = (view.stream_of[which], sequence, psn, which)
        for *name, number in zip(*(each[order].tolist() for each in columns), strict=True):
            groups.setdefault(tuple(name), []).append(number)
        lost = view.evidence.is_lost[view.rows]
        begins = np.cumsum([0, *map(len, groups.values())])[:-1]
        rows, places = view.rows[which[order]], view.places[which[order]]
        lost[which[order]] |= view.corrupted_before(rows, places, begins)
        hidden = np.zeros(len(lost), dtype=np.bool_)
        hidden[which[order]] = view.perhaps_corrupted(rows, places, begins)
        for sightings in sorted(groups.values()):
            sent = self._one(sightings, lost, hidden)
            if sent is not None:
                yield sent

    def _one(
        self,
        sightings: list[int],
        lost: npt.NDArray[np.bool_],
        hidden: npt.NDArray[np.bool_],
    ) -> ControlMessage | None:
        view = self.view
        place = int(view.places[sightings[0]])
        stream = int(view.stream_of[sightings[0]])
        body = self._body(sightings)
        if body is None:
            self.cut[stream] += 1
            return None
        message: control.Message | Feedback | Pull | None = parse_feedback(body)
        if message is None:
            try:
                message = control.decode(body)
            except control.ControlError as error:
                self.malformed.append((place, str(error)))
                return None
        reached = [n for n in sightings if view.taps.arrives[n] and not lost[n]]
        return ControlMessage(
            stream,
            place,
            int(view.places[reached[0]]) if reached else NEVER,
            bool(reached) and not hidden[reached[0]],
            any(lost[n] for n in sightings),
            message,
        )

    def _body(self, sightings: list[int]) -> bytes | None:
        view = self.view
        packets = view.evidence.packets
        for number in sightings:
            row = packets[view.rows[number]]
            length = int(row["lab_length"])
            body = view.evidence.capture.payload(int(row["number"]))
            if len(body) >= length:
                return body[:length]
        return None

    # ---------------------------------------------------------------- filing

    def _file(self, sent: ControlMessage) -> None:
        """Under the messages that it is about."""
        towards = self.view.streams[sent.stream].back  # the stream of the messages that it names
        match sent.body:
            case Refused(id_, _, by_receiver, _):
                stream = towards if by_receiver else sent.stream
                if stream is not None:
                    self._refuse(stream, id_, sent)
            case Pull() if towards is not None:
                self._recovers(towards, NDP)
                self.pulls.setdefault(towards, []).append(sent)
            case _ if towards is not None:
                self._file_receivers(sent, towards)

    def _recovers(self, stream: int, transport: str) -> None:
        """A control message shows the transport, unless the manifest names a user's own."""
        if self.transports.get(stream) != USERS:
            self.transports[stream] = transport

    def _file_receivers(self, sent: ControlMessage, towards: int) -> None:
        """A receiver's reports on messages of the stream `towards`."""
        match sent.body:
            case Nack():
                self._recovers(towards, CSA_UD)
                self._nack(towards, sent.body, sent)
            case Sack(id_, key, missing):
                self.transports.setdefault(towards, UD_RTO)  # csa_ud has them, too, and NACKs
                self._ask(self._named(towards, id_, key, sent.at), Asked(sent, missing))
            case Chunks(id_, key, packets, missing):
                self.transports.setdefault(towards, SDR_SR)
                asked = Asked(sent, missing, max(packets, 1))
                self._ask(self._named(towards, id_, key, sent.at), asked)
            case Feedback():
                self._tell(towards, sent.body, sent)
            case Rnr(id_, _):
                message = self.view.find_message(towards, id_)
                if message is not None:
                    self.not_ready.add(message)
            case Clear():
                self.cleared.add(towards)
            case Ack(ids):
                for id_ in ids:
                    self._acknowledge(towards, id_, sent)

    def _named(self, stream: int, id_: int | None, key: Key, at: int) -> int | None:
        """The message of an id, or the newest by a key that had begun by then.

        Who names a key only has had no packet of the message. But at the sender's link, neither
        need the capture: then it is the first one behind those that were acknowledged.
        """
        if id_ is not None:
            return self.view.find_message(stream, id_)
        numbers = self._keys.get(stream, {}).get(key, [])
        begun = int(sum(self.view.messages["first_at"][n] < at for n in numbers))
        before, behind = numbers[:begun], numbers[begun:]
        if before and before[-1] not in self.acked:
            return before[-1]
        if behind and not self.view.streams[stream].leaves:
            return behind[0]
        return before[-1] if before else None

    def _ask(self, message: int | None, asked: Asked) -> None:
        if message is not None:
            self.asked.setdefault(message, []).append(asked)

    def _nack(self, stream: int, nack: Nack, sent: ControlMessage) -> None:
        """The messages of which it speaks, and those that have not begun at the receiver."""
        words: dict[int, list[tuple[int, int]]] = {}
        for id_, base, bits in nack.words:
            words.setdefault(id_, []).append((base, bits))
        for id_, parts in words.items():
            missing, beyond = _missing(parts)
            self._ask(self.view.find_message(stream, id_), Asked(sent, missing, beyond=beyond))
        messages = self.view.messages
        mine = messages["stream"] == stream
        if self.view.streams[stream].leaves:  # else all before may be lost
            mine &= messages["first_at"] < sent.at
        ahead = (messages["id"].astype(np.int64) - nack.end) % _IDS < _IDS // 2
        for number in np.flatnonzero(mine & ahead).tolist():
            self._ask(number, Asked(sent, None))

    def _tell(self, stream: int, body: Feedback, sent: ControlMessage) -> None:
        if body.transports and self.transports.get(stream) not in body.transports:
            self._recovers(stream, body.transports[0])
        if self.transports.get(stream) == UET_ROD:
            sent = _dropped(sent)
        message = self.view.find_message(stream, body.id)
        if message is None:
            self.stray_acks.append((sent, body.id))
            return
        self.feedback.setdefault(message, []).append(sent)
        if body.cumulative == self.view.messages["count"][message]:
            self.acked.setdefault(message, sent)

    def _is_of_uet_rod(self, messages: list[int]) -> bool:
        """Whether PACKET_NACKs about these messages are those of `uet_rod`, and not of `irn`.

        The receiver of `irn` keeps the packet that its NACK names, and has no answer to a trimmed
        packet. That of `uet_rod` drops the packet. So the sender sends it again before the
        cumulative acknowledgement covers it.
        """
        kept = again = 0
        for message in messages:
            bodies = [each.body for each in self.feedback[message]]
            if any(each.trimmed for each in bodies):  # type: ignore[union-attr]
                return True
            at = np.array([*(each.at for each in self.feedback[message]), NEVER], dtype=np.int64)
            cumulative = np.maximum.accumulate(
                [each.cumulative for each in bodies]  # type: ignore[union-attr]
            )
            begin, end = self.view.messages[["begin", "end"]][message].item()
            sent = self.view.transmissions[begin:end]
            for place, body in enumerate(bodies):
                for packet in body.packets:  # type: ignore[union-attr]
                    covered_at = at[np.searchsorted(cumulative, packet, side="right")]
                    times = sent["at"][sent["index"] == packet]
                    is_again = bool(np.any((at[place] < times) & (times < covered_at)))
                    again += is_again
                    kept += covered_at != NEVER and not is_again
        return again > kept

    def _acknowledge(self, stream: int, id_: int, sent: ControlMessage) -> None:
        """An ACK of a message that was refused before acknowledges the REFUSE only."""
        message = self.view.find_message(stream, id_)
        if message is not None:
            if message not in self.refused:
                self.acked.setdefault(message, sent)
        elif stream not in self.cleared:  # else a CLEAR that names it may be missing
            self.stray_acks.append((sent, id_))

    def _refuse(self, stream: int, id_: int, sent: ControlMessage) -> None:
        self.refused_ids.add((stream, id_))
        message = self.view.find_message(stream, id_)
        if message is not None:
            self.refused.setdefault(message, sent)

    def _failed(self) -> npt.NDArray[np.bool_]:
        """By their keys: of the same key all are meant, whoever sent them."""
        run = self.view.evidence.run
        columns = {} if run is None or run.only is None else run.messages
        mine = self.view.messages
        names = ("operation", "step", "message")
        if not {"status", *names} <= columns.keys():
            return np.zeros(len(mine), dtype=np.bool_)
        bad = columns["status"] != 0
        keys = set(zip(*(columns[name][bad].tolist() for name in names), strict=True))
        here = zip(*(mine[name].tolist() for name in names), strict=True)
        return np.array([key in keys for key in here], dtype=np.bool_)

    # ---------------------------------------------------------------- for the checkers

    def _from_manifest(self) -> dict[int, str]:
        """Transports by stream, from the run directory: all of one run's, or one a run."""
        run = self.view.evidence.run
        runs = [] if run is None else run.runs
        if run is not None and run.only is not None:
            protocol = _known(run.only.get("protocol"))
            return {each.number: protocol for each in self.view.data_streams()}
        first = self.view.messages["first_at"]
        of = self.view.messages["stream"]
        streams = sorted(
            (each.number for each in self.view.data_streams()),
            key=lambda number: int(first[of == number].min()),
        )
        if len(runs) != len(streams):
            return {}
        names = (_known(each.get("transport")) for each in runs)
        return dict(zip(streams, names, strict=True))

    def of(self, transport: str) -> set[int]:
        """The streams of data whose messages this transport recovers."""
        return {stream for stream, name in self.transports.items() if name == transport}

    def doubts_feedback(self, stream: Stream) -> str | None:
        """Why nothing follows from a NACK or SACK about this stream that was not seen."""
        back = None if stream.back is None else self.view.streams[stream.back]
        if back is None:
            return "the other direction was not captured"
        if not back.whole:
            return "the other direction was captured at neither end"
        if self.cut[back.number]:
            return f"the snap length cut {self.cut[back.number]} control messages"
        if self.view.missed:
            return f"the capture missed {self.view.missed} packets"
        return None

    def places(self, of: dict[int, ControlMessage]) -> npt.NDArray[np.int64]:
        """For each message where it was first sent (acked, refused); NEVER."""
        places = np.full(len(self.view.messages), NEVER, dtype=np.int64)
        for message, sent in of.items():
            places[message] = sent.at
        return places
