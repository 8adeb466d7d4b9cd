# SPDX-License-Identifier: GPL-2.0-or-later
"""The SDK's context and memory."""

from __future__ import annotations

import dataclasses

from softroce_lab import verbs as pyverbs
from softroce_lab.transports.sdr.wire import SdrError
from softroce_lab.verbs.enums import IBV_ACCESS_LOCAL_WRITE
from softroce_lab.verbs.mr import Buffer


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """An RNIC as the SDK holds it: the verbs' context, and a protection domain."""

    verbs: pyverbs.Context
    pd: pyverbs.PD


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Registered memory of the user's, which messages come from and go to."""

    context: Context
    mr: pyverbs.MR

    @property
    def length(self) -> int:
        """Bytes."""
        return self.mr.length

    def check(self, offset: int, length: int) -> None:
        """SdrError unless these bytes are in it."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise SdrError(
                f"bytes {offset} to {offset + length} of a region of {self.length}",
                hint="register the whole buffer",
            )


def context_create(verbs: pyverbs.Context) -> Context:
    """A context on an open device of the verbs (docs/howto/programs.md)."""
    return Context(verbs, pyverbs.PD(verbs))


def mr_reg(context: Context, buffer: Buffer | int) -> Memory:
    """Register a buffer, which is used in place, or so many zeroed bytes.

    Peers get no access by it: a receive registers its part once more, for as long as it lasts.
    """
    return Memory(context, pyverbs.MR(context.pd, buffer, int(IBV_ACCESS_LOCAL_WRITE)))
