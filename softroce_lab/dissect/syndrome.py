# SPDX-License-Identifier: GPL-2.0-or-later
"""The AETH's syndrome: acknowledgement, RNR or NAK, and what it states (IBA 9.7.5.2, 9.7.7.2)."""

from __future__ import annotations

ACK, RNR_NAK, RESERVED, NAK = range(4)
NAK_CODES = {
    0: "PSN Sequence Error",
    1: "Invalid Request",
    2: "Remote Access Error",
    3: "Remote Operational Error",
    4: "Invalid RD Request",
}
_UNLIMITED = 31
_NS_PER_STEP = 10_000  # of the RNR timer


def kind(syndrome: int) -> int:
    """ACK, RNR_NAK, RESERVED or NAK: bits 6 and 5."""
    return syndrome >> 5 & 3


def value(syndrome: int) -> int:
    """Credit count, timer or code, as coded: bits 4 to 0."""
    return syndrome & 0x1F


def credits_of(code: int) -> int | None:
    """Receive requests that a responder reports as posted; None: it does not (table 45)."""
    if code == _UNLIMITED:
        return None
    return code if code < 2 else 2 + code % 2 << code // 2 - 1


def rnr_timer_ns(code: int) -> int:
    """How long to wait before the message is sent again, in ns (table 46)."""
    steps = 1 << 16 if code == 0 else 1 if code == 1 else 2 + code % 2 << code // 2 - 1
    return steps * _NS_PER_STEP


def text(syndrome: int) -> str:
    code = value(syndrome)
    if kind(syndrome) == ACK:
        amount = credits_of(code)
        return "ACK, credits unlimited" if amount is None else f"ACK, {amount} credits"
    if kind(syndrome) == RNR_NAK:
        return f"RNR NAK, timer {rnr_timer_ns(code) / 1e6:.2f} ms"
    if kind(syndrome) == NAK:
        return f"NAK, {NAK_CODES.get(code, f'reserved code {code}')}"
    return "reserved"
