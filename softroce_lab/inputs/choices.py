# SPDX-License-Identifier: GPL-2.0-or-later
"""`--only KEY=VALUE`: some of many runs, by what they have in common."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean

Item = TypeVar("Item")


def only(
    items: Sequence[Item], choices: Iterable[str], facet: Callable[[Item, str], str]
) -> list[Item]:
    """Those with these values; `facet` gives an item's value of a key.

    Several of one key: any of them. A value may be a pattern, such as `*-best`. UserError for what
    is not there.
    """
    wanted: dict[str, set[str]] = {}
    for choice in choices:
        key, equals, value = choice.partition("=")
        if not (equals and value):
            raise UserError(f"{choice!r} chooses nothing", hint="such as transport=csa_ud")
        known = list(dict.fromkeys(facet(item, key) for item in items))
        matching = {value} if value in known else set(fnmatch.filter(known, value))
        if not matching:
            raise UserError(f"no run has {choice}", hint=did_you_mean(value, known))
        wanted.setdefault(key, set()).update(matching)
    return [item for item in items if all(facet(item, key) in of for key, of in wanted.items())]
