# SPDX-License-Identifier: GPL-2.0-or-later
"""Chains of work requests: how they are posted, and how one of them is refused."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from softroce_lab.verbs.base import expect
from softroce_lab.verbs.errors import PyverbsRDMAError
from softroce_lab.verbs.wr import RecvWR, SendWR

Request = TypeVar("Request", SendWR, RecvWR)

MOST_REQUESTS = 1 << 16
"""Longer than any queue: what stands behind is refused anyway, even if the chain is a ring."""


def chain_of(wr: Request, kind: type[Request], bad_wr: Request | None) -> list[Request]:
    """A request and all that follow it."""
    if bad_wr is not None:
        expect("bad_wr", bad_wr, kind)
    expect("wr", wr, kind)
    chain = [wr]
    while (following := chain[-1].next_wr) is not None and len(chain) < MOST_REQUESTS:
        expect("next_wr", following, kind)
        chain.append(following)
    return chain


def refuse(
    failure: str,
    rc: int,
    wr: SendWR | RecvWR,
    bad_wr: SendWR | RecvWR | None,
    why: str | None = None,
) -> NoReturn:
    """Raise the error, and copy the request that was refused to `bad_wr`."""
    if bad_wr is not None:
        bad_wr.assign(wr)
        bad_wr.__dict__.update(wr.__dict__)
    raise PyverbsRDMAError(failure, rc, hint=why)
