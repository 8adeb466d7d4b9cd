# SPDX-License-Identifier: GPL-2.0-or-later
"""Who we are to other communication managers, and how long each waits for the other."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv6Address
from typing import Protocol

LONGEST_WAIT = 24
"""Longest time, in the specification's code, that a peer may make us wait: 69 s.

The five bits of a MAD can request 2.4 hours. Linux requests no more than this in an MRA.
"""


def time_ns(code: int) -> int:
    """A time in the specification's code: 4.096 us x 2**code."""
    return 4096 << code


def peer_time_ns(code: int) -> int:
    """A time that a peer requested, bounded."""
    return time_ns(min(code, LONGEST_WAIT))


def ack_timeout(ack_delay: int, packet_life_time: int) -> int:
    """Code of the time after which an acknowledgement is overdue (IBA 12.7.34).

    It should be ack_delay + 2 x life time. Codes double, so Linux's cm_ack_timeout() takes the
    larger of the two and one more where they are close; so do we.
    """
    timeout = packet_life_time + 1
    if timeout >= ack_delay:
        timeout += ack_delay >= timeout - 1
    else:
        timeout = ack_delay + (timeout >= ack_delay - 1)
    return min(31, timeout)


@dataclasses.dataclass(frozen=True, slots=True)
class CmTiming:
    """Times in the specification's code, and how often a MAD is sent again.

    `response_timeout` and `max_cm_retries` are Linux's CMA_CM_RESPONSE_TIMEOUT (4.3 s) and
    CMA_MAX_CM_RETRIES; `packet_life_time` is its CMA_IBOE_PACKET_LIFETIME of kernels since 6.5.
    Linux's MRAs request 69 s: the loss of an RTU is then detected after this time.
    """

    response_timeout: int = 20
    max_cm_retries: int = 15
    packet_life_time: int = 16
    mra_timeout: int = 20


@dataclasses.dataclass(frozen=True, slots=True)
class PortIdentity:
    """The port's fields in a REQ or REP: its GIDs, GUID and `active_mtu` (an enum ibv_mtu).

    `ack_delay` is rxe's: the code of how long an acknowledgement may take here.
    """

    gids: tuple[IPv6Address, ...]
    ca_guid: int
    active_mtu: int = 3
    ack_delay: int = 15
    hop_limit: int = 64


class Stream(Protocol):
    """Where comm ids, PSNs and flow labels come from: `random.Random` is one."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` bits."""
