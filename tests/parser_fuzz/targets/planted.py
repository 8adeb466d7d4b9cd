# SPDX-License-Identifier: GPL-2.0-or-later
"""A parser with a bug, which only one who looks where inputs lead will find: for test_campaign."""

from __future__ import annotations


def one(data: bytes) -> None:
    """Fail on inputs that begin in one way."""
    for place, expected in enumerate(b"BUG!"):
        if data[place : place + 1] != bytes([expected]):
            return
    raise RuntimeError("found it")
