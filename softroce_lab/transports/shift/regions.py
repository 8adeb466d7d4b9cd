# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory regions of the default NIC, registered at the backup NIC, too.

The backup's region has the same bytes and the same addresses, so that a request that moves changes
its keys and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from softroce_lab import _native
from softroce_lab.verbs import MR, PD, Context
from softroce_lab.verbs.base import Closable


class ShadowDomain:
    """What a PD has at the backup: a PD, and a region for each of its regions."""

    def __init__(self, pd: PD, backup: Context, publish: Callable[[int, int], None]) -> None:
        self.pd = PD(backup)
        self.lkeys: dict[int, int] = {}  # default -> backup
        self.back: dict[int, int] = {}  # backup -> default
        self._publish = publish
        self._shadows: list[MR] = []  # parents do not hold their children
        for child in pd.children():
            self._shadow(child)
        pd.on_region = self._shadow

    def _shadow(self, region: Closable) -> None:
        if not isinstance(region, MR):
            return
        shadow = MR(self.pd, region.array, region.access, iova=region.iova)
        region.adopt(shadow)  # it is closed first
        self.lkeys[region.lkey] = shadow.lkey
        self.back[shadow.lkey] = region.lkey
        self._shadows.append(shadow)
        self._publish(region.rkey, shadow.rkey)


class UnknownKeyError(KeyError):
    """A key that has no counterpart on the other NIC; the argument names it."""


def moved_send(request: Any, lkeys: Mapping[int, int], rkeys: Mapping[int, int]) -> Any:
    """A copy of a request with the other NIC's keys; UnknownKeyError, if the peer's has none."""
    copy = _native.SendRequest()
    copy.assign(request)
    copy.sources = _moved(request.sources, lkeys)
    if request.opcode in _REMOTE and _touches_memory(request):
        if request.rkey not in rkeys:
            raise UnknownKeyError(
                f"the peer's key {request.rkey:#x} has no counterpart that is known"
            )
        copy.rkey = rkeys[request.rkey]
    return copy


def moved_receive(receive: Any, lkeys: Mapping[int, int]) -> Any:
    """A copy of a receive with the other NIC's keys."""
    copy = _native.ReceiveRequest()
    copy.assign(receive)
    copy.targets = _moved(receive.targets, lkeys)
    return copy


_REMOTE = {0, 1, 4, 5, 6}  # WRITE, with immediate; READ; the atomics
_INLINE = 8
_NO_KEY = 0  # of no region: what names none ends in a protection error, as on the default NIC


def _touches_memory(request: Any) -> bool:
    """Of a WRITE of no bytes the key is not looked at (C9-88)."""
    return bool(request.send_flags & _INLINE) or any(each.length for each in request.sources)


def _moved(elements: Any, lkeys: Mapping[int, int]) -> list[Any]:
    return [
        _native.ScatterGather(each.addr, each.length, lkeys.get(each.lkey, _NO_KEY))
        for each in elements
    ]
