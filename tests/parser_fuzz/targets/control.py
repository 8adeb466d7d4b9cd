# SPDX-License-Identifier: GPL-2.0-or-later
"""Control messages of striped transports, delivered to live endpoints.

octet 0         the policy, and the framing of its packets
then, of each   its length in two octets, the higher one's upper bits: who is told (128), and
                whether time goes on before (64); and the body
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from softroce_lab.transports import control
from tests import control_bodies
from tests.transports.pair_rig import MILLISECOND_NS, PairRig

_TALKS = (("csa_ud", "ud"), ("ud_rto", "ud"), ("sdr_sr", "ud"), ("sdr_sr", "uc_immediate"))
_MTU = 1024
_MOST_BODY_BYTES = _MTU - 40
_LENGTHS = (1, 3000, 40_000)
_MOST_MESSAGES = 24
_MOST_NS = 120 * 10**9
_MOST_STEPS = 20_000


def one(data: bytes) -> None:
    """Tell two policies at work all of it; then both must come to an end."""
    if not data:
        return
    policy, framing = _TALKS[data[0] % len(_TALKS)]
    rig = PairRig(policy, arena_bytes=1 << 18, path_mtu=_MTU, framing=framing)
    for number, length in enumerate(_LENGTHS):
        rig.transfer((1, 0, number), length, sender=number % 2)
    for reported, later, body in _messages(data[1:]):
        _obey_the_law(body)
        rig.step(rig.now_ns + MILLISECOND_NS * later, most_steps=_MOST_STEPS)
        side = rig.sides[1 - reported]
        side.endpoint.control(side.peer, body)
    rig.finish(_MOST_NS, most_steps=_MOST_STEPS)
    _check_guards(rig)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for _ in range(_MOST_MESSAGES):
        if len(data) < 2:
            return
        length = min(((data[0] & 0x3F) << 8 | data[1]), _MOST_BODY_BYTES)
        yield data[0] >> 7, data[0] >> 6 & 1, data[2 : 2 + length]
        data = data[2 + length :]


def _obey_the_law(body: bytes) -> None:
    """What is decoded says the same when it is encoded."""
    try:
        message = control.decode(body)
    except control.ControlError:
        return
    again = control.decode(control_bodies.encode(message, max(len(body), 4096)))
    if (missing := getattr(message, "missing", None)) is None:
        assert again == message
        return
    kept = getattr(again, "missing")  # noqa: B009 - not all messages have one
    assert len(missing.bits) <= control.MOST_IN_SET
    assert kept.base == missing.base
    assert np.array_equal(kept.bits, missing.bits[: len(kept.bits)])


@functools.cache
def _guards(places: tuple[tuple[int, int], ...], size: int) -> np.ndarray:
    """Where in an arena no message is."""
    free = np.ones(size, np.bool_)
    for offset, length in places:
        free[offset : offset + length] = False
    return free


def _check_guards(rig: PairRig) -> None:
    for side in rig.sides:
        places = tuple((each.offset, each.length) for each in side.posted)
        free = _guards(places, len(side.arena))
        assert np.array_equal(side.arena[free], side.expected[free]), "memory of nobody is changed"
