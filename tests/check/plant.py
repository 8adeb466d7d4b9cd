# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures to plant faults in: frames are deleted, doubled, moved and altered, and written again.

    tape = Tape.of("rxe_verbs_loss")
    tape.alter(tape.find(syndrome=0x60)[0], psn=5)
    verdicts = tape.check(tmp_path)

An altered frame gets a right ICRC, but where `icrc` is what is altered. Frame numbers count from 1.
`Talk` makes the frames of a reliable connection, where no recorded one does what a test needs.
"""

import dataclasses

from softroce_lab import _native
from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.verdict import Outcome
from tests.capture_builder import IF_NAME, IF_TSRESOL, Pcapng
from tests.native.frames import CAPTURES, ICRC

US, MS, S = 1_000, 1_000_000, 1_000_000_000
_HEADERS = {
    "bth": ("opcode", "psn"),
    "deth": ("q_key", "srcqp"),
    "reth": ("va", "r_key", "dmalen"),
    "aeth": ("syndrome", "msn"),
    "atomiceth": ("swapdt", "cmpdt"),
    "atomicacketh": ("origremdt",),
}
# psn -> infiniband.bth.psn and so on: the last parts of Wireshark's names.
NAMES = {
    name: f"infiniband.{header}.{name}" for header, names in _HEADERS.items() for name in names
} | {
    "asks": "infiniband.bth.a",
    "qp": "infiniband.bth.destqp",
    "immdt": "infiniband.immdt",
    "ttl": "ip.ttl",
}


@dataclasses.dataclass
class Frame:
    time_ns: int
    data: bytes
    interface: int = 0
    comment: str | None = None
    length: int | None = None  # on the wire; None: as long as the data


class Tape:
    """Frames in the order of the file, and the interfaces that they came by."""

    def __init__(self, frames=(), interfaces=(None,)):
        self.frames = list(frames)
        self.interfaces = list(interfaces)
        self.statistics = {}  # interface -> (received, dropped)

    @classmethod
    def of(cls, name):
        """One of tests/captures."""
        from scapy.utils import RawPcapReader

        with RawPcapReader(str(CAPTURES / f"{name}.pcap")) as reader:
            return cls(Frame(meta.sec * S + meta.usec * US, bytes(data)) for data, meta in reader)

    def __len__(self):
        return len(self.frames)

    def frame(self, number):
        return self.frames[number - 1]

    def fields(self, number):
        """What a frame says, by NAMES, where it is RoCE; and its payload."""
        decoded = _native.decode_frame(self.frame(number).data)
        if isinstance(decoded, str):
            return {}
        found = {short: decoded[name] for short, name in NAMES.items() if name in decoded}
        return found | {"payload": decoded["payload"], "source": decoded.get("ip.src")}

    def find(self, **fields):
        """Numbers of the frames with these fields."""
        return [
            number
            for number in range(1, len(self) + 1)
            if (found := self.fields(number)).items() >= fields.items()
            or all(value(found.get(name)) if callable(value) else found.get(name) == value
                   for name, value in fields.items())
        ]  # fmt: skip

    def alter(self, number, *, icrc=None, **fields):
        """Other fields in a frame, and a right ICRC; or a wrong one."""
        frame = self.frame(number)
        decoded = dict(_native.decode_frame(frame.data))
        changed = {NAMES.get(name, name): value for name, value in fields.items()}
        frame.data = bytes(_native.encode_frame(decoded | changed))
        if icrc is not None:
            frame.data = frame.data[:-ICRC] + icrc.to_bytes(ICRC, "little")

    def delete(self, *numbers):
        for number in sorted(numbers, reverse=True):
            del self.frames[number - 1]

    def insert(self, before, frame):
        """A frame ahead of the one with this number, and its time, if it has none."""
        self.frames.insert(before - 1, frame)

    def copy(self, number, *, before, time_ns=None):
        """A frame once more, ahead of another one, at the time of that one."""
        when = self.frame(min(before, len(self))).time_ns if time_ns is None else time_ns
        self.insert(before, dataclasses.replace(self.frame(number), time_ns=when))
        return before

    def move(self, number, *, before):
        """A frame to another place, and time."""
        frame = self.frames.pop(number - 1)
        at = before - 1 if before <= number else before - 2
        frame.time_ns = self.frames[min(at, len(self.frames) - 1)].time_ns
        self.frames.insert(at, frame)

    def write(self, path):
        """As pcapng."""
        ng = Pcapng()
        blocks = [ng.section()]
        for name in self.interfaces:
            named = [(IF_NAME, name.encode())] if name else []
            blocks.append(ng.interface(*named, (IF_TSRESOL, b"\x09")))
        for frame in self.frames:
            comments = [frame.comment.encode()] if frame.comment else []
            blocks.append(
                ng.enhanced(
                    frame.time_ns, frame.data, *comments, interface=frame.interface,
                    length=frame.length,
                )
            )  # fmt: skip
        blocks += [ng.statistics(which, *counts) for which, counts in self.statistics.items()]
        path.write_bytes(b"".join(blocks))
        return path

    def check(self, folder, *, of=suites.Format.ROCE, **options):
        """Verdicts by rule."""
        path = self.write(folder / "planted.pcapng")
        return check(path, of=of, **options)


def check(path, *, of=suites.Format.ROCE, **options):
    """Verdicts on a file, by rule."""
    (path,) = suites.captures_of(path)
    evidence = suites.evidence_of(path, Options(**options))
    return {each.rule: each for each in suites.check(evidence, suites.chosen(()), of)}


def failed(verdicts):
    """The rules that are."""
    return {rule for rule, each in verdicts.items() if each.outcome is Outcome.FAIL}


def shown(verdict):
    """Frame numbers of all exhibits."""
    return {number for exhibit in verdict.exhibits for number in exhibit.packets}


# ---------------------------------------------------------------- a connection of our own

REQUESTER, RESPONDER = 0x0A000001, 0x0A000002
AT_REQUESTER = (bytes(10) + b"\xff\xff" + REQUESTER.to_bytes(4, "big"),)
AT_RESPONDER = (bytes(10) + b"\xff\xff" + RESPONDER.to_bytes(4, "big"),)
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_ONLY, READ, ACKNOWLEDGE = (
    0, 1, 2, 4, 10, 12, 17,
)  # fmt: skip
ACK, NAK_SEQUENCE, RNR_NAK = 0x1F, 0x60, 0x20


class Talk(Tape):
    """Frames of one connection, as they are said; times go on by themselves."""

    def __init__(self, interfaces=(None,)):
        super().__init__(interfaces=interfaces)
        self.now_ns = 1_700_000_000 * S

    def wait(self, time_ns):
        self.now_ns += time_ns

    def ask(self, psn, opcode=SEND_ONLY, payload=b"said", **fields):
        """A request; its number."""
        return self._say(REQUESTER, RESPONDER, 0x22, psn, opcode, payload, fields)

    def ack(self, psn, msn, syndrome=ACK, opcode=ACKNOWLEDGE, payload=b"", **fields):
        """An answer."""
        fields |= {"syndrome": syndrome, "msn": msn}
        return self._say(RESPONDER, REQUESTER, 0x11, psn, opcode, payload, fields)

    def _say(self, source, destination, qp, psn, opcode, payload, fields):
        self.now_ns += 10 * US
        fields = {"ip.src": source, "ip.dst": destination, "payload": payload} | {
            NAMES[name]: value
            for name, value in {"opcode": opcode, "psn": psn, "qp": qp, **fields}.items()
        }
        if opcode <= READ:  # requests; of UC, atomics and others the caller says
            fields.setdefault(NAMES["asks"], True)
        self.frames.append(Frame(self.now_ns, bytes(_native.encode_frame(fields))))
        return len(self.frames)
