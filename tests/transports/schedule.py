# SPDX-License-Identifier: GPL-2.0-or-later
"""One random schedule of work and faults, made from a seed and run to its end."""

from __future__ import annotations

import dataclasses
import random

from softroce_lab.transports.api import NEVER_NS
from tests.transports.pair_rig import MILLISECOND_NS, PairRig, noise, threshold

TRANSPORTS = ("csa_ud", "ud_rto")
_HEADER_BYTES = 40


@dataclasses.dataclass(frozen=True)
class Message:
    sender: int
    key: tuple[int, int, int]
    length: int
    capacity: int
    send_at_ns: int
    receive_at_ns: int


@dataclasses.dataclass(frozen=True)
class Schedule:
    transport: str
    settings: dict
    cables: tuple[dict, dict]
    messages: list[Message]

    @property
    def packets(self) -> int:
        """Data packets of all messages, none retransmitted."""
        chunk = self.settings["path_mtu"] - _HEADER_BYTES
        return sum(max(1, -(-message.length // chunk)) for message in self.messages)


def _cable(rng: random.Random) -> dict:
    jitter_ns = rng.choice((0, 0, 20_000, 300_000, 3_000_000))
    return {
        "loss": threshold(rng.choice((0, 0, 0.01, 0.1, 0.3))),
        "duplicate": threshold(rng.choice((0, 0, 0.05, 0.5))),
        "corrupt": threshold(rng.choice((0, 0, 0, 0.05))),
        "delay_ns": rng.choice((0, 1_000, 100_000, 2_000_000)),
        "jitter_ns": jitter_ns,
        "packet_time_ns": rng.choice((0, 200, 3_000, 20_000)),
    }


def _length(rng: random.Random, chunk: int) -> int:
    many = chunk * rng.choice((3, 8, 8, 20, 70)) + rng.randrange(chunk)
    return rng.choice((0, 1, chunk - 1, chunk, chunk + 1, many, many))


def _messages(rng: random.Random, chunk: int) -> list[Message]:
    both_ways = rng.random() < 0.5
    reuse = rng.random() < 0.3  # one key again and again
    latest_ns = rng.choice((0, 0, 3 * MILLISECOND_NS, 60 * MILLISECOND_NS))
    made = []
    for number in range(rng.choice((1, 2, 3, 5))):
        length = _length(rng, chunk)
        made.append(
            Message(
                sender=rng.randrange(2) if both_ways else 0,
                key=(rng.randrange(2), 0, 0) if reuse else (3, 65535, number),
                length=length,
                capacity=length + rng.choice((0, 0, 0, 1, 3 * chunk)),
                send_at_ns=rng.randint(0, latest_ns),
                receive_at_ns=rng.randint(0, latest_ns),
            )
        )
    return made


def make(seed: int) -> Schedule:
    rng = random.Random(seed)
    path_mtu = rng.choice((256, 512, 1024, 2048, 4096))
    settings = {
        "path_mtu": path_mtu,
        "paths": rng.randint(1, 16),
        "window_packets": rng.choice((1, 2, 7, 64, 1024)),
        "receive_ring_packets": rng.choice((2, 64, 2048)),
        "report_every_packets": rng.choice((1, 8, 64)),
        "message_slots": rng.choice((1, 2, 4, 64)),
        "first_message_id": rng.choice((0, 0, 2**31 - 1, 2**32 - 1, rng.getrandbits(32))),
    }
    return Schedule(
        transport=TRANSPORTS[seed % 2],
        settings=settings,
        cables=(_cable(rng), _cable(rng)),
        messages=_messages(rng, path_mtu - _HEADER_BYTES),
    )


class _Poster:
    """Posts each request when its time has come, its slot is free and its key is not in use."""

    def __init__(self, rig: PairRig, schedule: Schedule) -> None:
        self._rig = rig
        self._slots = schedule.settings["message_slots"]
        by_send = sorted(schedule.messages, key=lambda message: message.send_at_ns)
        # Where a key is used again, receives are posted in the order of the sends.
        self._sends = [[m for m in by_send if m.sender == side] for side in (0, 1)]
        receives = [list(each) for each in self._sends]
        self._receives = [receives[1], receives[0]]
        self._keys: list[dict] = [{}, {}]

    def next_ns(self) -> int:
        """When the next request is due."""
        times = [each[0].send_at_ns for each in self._sends if each]
        times += [message.receive_at_ns for each in self._receives for message in each]
        later = [at for at in times if at > self._rig.now_ns]
        return min(later, default=NEVER_NS)

    @property
    def done(self) -> bool:
        return not any(self._sends) and not any(self._receives)

    def post(self) -> None:
        """Post what can be."""
        for side in (0, 1):
            self._post_sends(side)
            self._post_receives(side)

    def _post_sends(self, which: int) -> None:
        side, waiting = self._rig.sides[which], self._sends[which]
        over = {each.wr_id for each in side.completions}
        outstanding = {r: key for r, key in self._keys[which].items() if r not in over}
        while waiting and waiting[0].send_at_ns <= self._rig.now_ns:
            message = waiting[0]
            if len(outstanding) >= self._slots or message.key in outstanding.values():
                break
            request = side.send(message.key, self._data(message))
            outstanding[request.wr_id] = self._keys[which][request.wr_id] = message.key
            waiting.pop(0)

    def _post_receives(self, which: int) -> None:
        """A receive waits for the one before it of the same key to begin; some are thus ahead."""
        side, waiting = self._rig.sides[which], self._receives[which]
        keys = {m.key for m in waiting if side.endpoint.awaits(side.peer, m.key)}
        for message in list(waiting):
            if message.receive_at_ns <= self._rig.now_ns and message.key not in keys:
                receive = side.receive(message.key, message.capacity)
                side.expect(receive, self._data(message))
                waiting.remove(message)
            keys.add(message.key)

    @staticmethod
    def _data(message: Message):
        return noise(hash(message), message.length)


def run(seed: int) -> PairRig:
    """Run the schedule of this seed; AssertionError if anything is not as it must be."""
    schedule = make(seed)
    room = sum(message.length + message.capacity for message in schedule.messages)
    rig = PairRig(
        schedule.transport,
        seed=seed,
        arena_bytes=room + 128 * (len(schedule.messages) + 1),
        **schedule.settings,
    )
    for cable, settings in zip(rig.cables, schedule.cables, strict=True):
        for name, value in settings.items():
            setattr(cable, name, value)
    poster = _Poster(rig, schedule)
    most_steps = 500 + 50 * schedule.packets
    deadline_ns = 20_000 * MILLISECOND_NS
    while not poster.done or any(side.outstanding for side in rig.sides):
        poster.post()
        rig.step(min(poster.next_ns(), deadline_ns), most_steps=most_steps)
        assert rig.now_ns < deadline_ns, "unfinished after 20 s"
    rig.quiesce()
    rig.check()
    return rig
