# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of the lab's own transports to plant faults in: two real engines and policies on the
in-memory pair, their frames as two hosts' links of a lab would show them.

    tape = record("csa_ud", [first(message=1, index=3)])
    tape.alter(tape.data(message=1, index=3, attempt=1)[0], path=2)
"""

import dataclasses
import functools
import struct

from softroce_lab import _native
from softroce_lab.check import suites
from softroce_lab.transports import control
from tests import control_bodies
from tests.check.plant import Frame, Tape
from tests.transports.pair_rig import CONTROL, DATA, PARITY, PairRig
from tests.transports.sabotage import rule

PATH_MTU = 256
CHUNK = PATH_MTU - 40
UP, DOWN, BACK_UP, BACK_DOWN = range(4)  # h1 sends to h2; interfaces of the tape
LINKS = ("h1->s1", "s1->h2", "h2->s1", "s1->h1")
ONE_WAY_NS = 100_000
SWITCHED_NS = 1_000
BEGIN_NS = 1_700_000_000 * 1_000_000_000


def first(message, index, last=None):
    """The first attempt at these packets of a message is lost."""
    last = index if last is None else last
    return {
        "kind": DATA, "message": message, "index_first": index, "index_last": last,
        "attempt_last": 0,
    }  # fmt: skip


def second(message, index):
    """The second attempt is."""
    return {
        "kind": DATA, "message": message, "index_first": index, "index_last": index,
        "attempt_first": 1, "attempt_last": 1,
    }  # fmt: skip


class StripedTape(Tape):
    """A tape whose frames have the lab's header."""

    def __init__(self, frames=(), interfaces=LINKS):
        super().__init__(frames, interfaces)

    @classmethod
    def of_sent(cls, sent):
        """What a pair sent, on its senders' links."""
        return cls(
            Frame(BEGIN_NS + at, frame, UP if side == 0 else BACK_UP) for at, side, frame in sent
        )

    def lab(self, number):
        """What a frame says."""
        return _native.decode_frame(self.frame(number).data, striped=True)

    def data(self, **fields):
        """Numbers of the frames of data with these fields, on a link."""
        return self._with(DATA, fields)

    def parity(self, **fields):
        """Likewise of parity."""
        return self._with(PARITY, fields)

    def sent(self, kind, link=BACK_UP):
        """Numbers of the control messages of a type, and what they say."""
        found = []
        for number in self._with(CONTROL, {"link": link}):
            lab = self.lab(number)
            message = control.decode(lab["payload"][: lab["length"]])  # a report may follow
            if isinstance(message, kind):
                found.append((number, message))
        return found

    def _with(self, kind, fields):
        link = fields.pop("link", None)
        wanted = ({"kind": kind} | fields).items()
        return [
            number
            for number in range(1, len(self) + 1)
            if link in (None, self.frame(number).interface) and self.lab(number).items() >= wanted
        ]

    def alter(self, number, /, **fields):
        """Other fields in a frame, and a right ICRC."""
        frame = self.frame(number)
        frame.data = bytes(_native.encode_frame(self.lab(number) | fields))

    def say(self, number, message):
        """Another control message in a frame."""
        body = control_bodies.encode(message, CHUNK)
        self.alter(number, payload=body, length=len(body))

    def everywhere(self, number):
        """All sightings of a frame's packet."""
        fields = self.lab(number)
        same = {name: fields[name] for name in ("ip.src", "infiniband.bth.psn", "kind", "message")}
        same["infiniband.deth.srcqp"] = fields["infiniband.deth.srcqp"]
        return [n for n in range(1, len(self) + 1) if self.lab(n).items() >= same.items()]

    def only(self, *links):
        """What a capture of these links alone would have."""
        kept = [frame for frame in self.frames if frame.interface in links]
        frames = [
            dataclasses.replace(frame, interface=links.index(frame.interface)) for frame in kept
        ]
        return StripedTape(frames, [LINKS[link] for link in links])

    def cut(self, snap_bytes):
        """What a capture with this snap length would have."""
        frames = [
            dataclasses.replace(f, data=f.data[:snap_bytes], length=f.length or len(f.data))
            for f in self.frames
        ]
        return StripedTape(frames, self.interfaces)

    def since(self, number):
        """What a capture that began with this frame would have."""
        return StripedTape(self.frames[number - 1 :], self.interfaces)

    def check(self, folder, **options):
        """Verdicts by rule, of the lab's rules."""
        return super().check(folder, of=suites.Format.LAB, **options)


def record(transport, losses=(), *, messages=6, packets=20, back=(), **options):
    """A fresh tape of a transfer from h1 to h2; `losses` and `back` (h2's) take packets."""
    tape = _record(transport, _frozen(losses), messages, packets, _frozen(back), *options.items())
    return StripedTape([dataclasses.replace(frame) for frame in tape.frames])


def _frozen(losses):
    return tuple(tuple(sorted(each.items())) for each in losses)


@functools.cache
def _record(transport, losses, messages, packets, back, *options):
    rig = PairRig(transport, path_mtu=PATH_MTU, options=dict(options))
    rig.pair.keep_sent()
    drops = [[dict(each) for each in losses], [dict(each) for each in back]]
    for cable, taken in zip(rig.cables, drops, strict=True):
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 1_000
        cable.rules = [rule(**each) for each in taken]
    for number in range(messages):
        rig.transfer((1, 2, number), packets * CHUNK - 7)
    rig.finish()
    rig.quiesce()
    rig.check()
    return on_links(rig.pair.take_sent(), drops)


def on_links(sent, drops):
    """What a pair sent, on both links on its way; `drops`: what was lost, by sender."""
    frames = [frame for each in sent for frame in _sighted(*each, drops)]
    return StripedTape(sorted(frames, key=lambda frame: frame.time_ns))


def _sighted(at_ns, side, data, drops):
    """A frame on the link of its sender, and on that of its receiver, where it may be dropped."""
    sent = _native.decode_frame(data, striped=True)
    lost = any(_takes(each, sent) for each in drops[side])
    comment = "dropped: test, rule planted" if lost else None
    yield Frame(BEGIN_NS + at_ns, data, 2 * side)
    later = BEGIN_NS + at_ns + SWITCHED_NS
    yield Frame(later, _one_hop_less(data), 2 * side + 1, comment)


def _takes(drop, sent):
    low_index, high_index = drop.get("index_first", 0), drop.get("index_last", 2**62)
    low, high = drop.get("attempt_first", 0), drop.get("attempt_last", 2**62)
    return (
        drop.get("kind", sent["kind"]) == sent["kind"]
        and drop.get("message", sent["message"]) == sent["message"]
        and low_index <= sent["index"] <= high_index
        and low <= sent["attempt"] <= high
    )


def _one_hop_less(data):
    """The TTL, and with it the checksum (RFC 1624, equation 3), as a switch changes them."""
    (check,) = struct.unpack_from(">H", data, 24)
    check += 0x0100
    check = (check & 0xFFFF) + (check >> 16)
    return data[:22] + bytes([data[22] - 1]) + data[23:24] + struct.pack(">H", check) + data[26:]
