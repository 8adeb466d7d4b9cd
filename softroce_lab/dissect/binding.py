# SPDX-License-Identifier: GPL-2.0-or-later
"""Who dissects UDP port 4791: these layers, or those of scapy's contrib, or nobody.

Nothing is bound by an import alone, so a program that uses scapy.contrib.roce goes on as before.
Building needs no binding: `UDP() / BTH()` names the port by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scapy.config import conf
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw

from softroce_lab.dissect.roce import BTH, PORT

_GUESS = ({"dport": PORT}, BTH)


def bind() -> None:
    """Dissect UDP port 4791 with these layers, whatever else is bound to it."""
    unbind()
    UDP.payload_guess = [_GUESS, *UDP.payload_guess]  # the first one that fits is taken


def unbind() -> None:
    UDP.payload_guess = [each for each in UDP.payload_guess if each[1] is not BTH]


def is_bound() -> bool:
    return _GUESS in UDP.payload_guess


@contextlib.contextmanager
def bound() -> Iterator[None]:
    """Bound within the block, afterwards as before."""
    before = UDP.payload_guess
    bind()
    try:
        yield
    finally:
        UDP.payload_guess = before


def parse(frame: bytes, link_type: int = 1) -> Packet:
    """The frame as layers, by these ones; `link_type` is a capture's (1: Ethernet)."""
    layer = conf.l2types.num2layer.get(link_type, Raw) if frame else Raw  # not a default packet
    with bound():
        try:
            return layer(frame)
        except Exception:  # whatever scapy's own layers make of a frame cut in their midst
            return Raw(frame)
