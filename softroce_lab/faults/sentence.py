# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures of a NIC or a port in one sentence: `nic down h1:eth1 at 3ms for 2ms`.

A sentence is a rule in fewer words: what fails, in which manner, where and when.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean

TARGETS = {"nic": "nics", "port": "ports"}  # first word -> the key of a rule
MANNERS: dict[str, dict[str, object]] = {
    "down": {"down": True},  # routes avoid it
    "grey": {"loss": "blackout"},  # up, and passes nothing
    "flap": {"down": True},  # down again and again
}
_TIMES = ("at", "for", "every")
EXAMPLE = "nic down h1:eth1 at 3ms for 2ms"
_NAME_CHARACTERS = 32  # of a rule


def is_sentence(value: object) -> bool:
    """Whether a text begins as one does; other texts are names of profiles."""
    return isinstance(value, str) and value.split()[:1] in [[word] for word in TARGETS]


def read(text: str) -> dict[str, object]:
    """The rule that a sentence stands for, as keys and values. UserError."""
    target, *rest = text.split()
    if len(rest) < 2:
        raise UserError(f"{text!r} lacks what fails, or where", hint=f"such as: {EXAMPLE}")
    manner, where, *times = rest
    if manner not in MANNERS:
        hint = did_you_mean(manner, MANNERS)
        hint += "" if hint.endswith("?") else "."
        raise UserError(f"a {target} cannot be {manner!r}", hint=f"{hint} As in: {EXAMPLE}")
    rule = {"name": _name(text), TARGETS[target]: where, **MANNERS[manner], **_times(times)}
    if manner == "flap" and "every" not in rule:
        what = f"{text!r} lacks how often"
        raise UserError(what, hint=f"such as: {target} flap {where} for 1ms every 5ms")
    return rule


def _times(words: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    rest = iter(words)
    for word in rest:
        value = next(rest, None)
        if word not in _TIMES:
            raise UserError(f"unexpected {word!r}", hint=did_you_mean(word, _TIMES))
        if value is None:
            raise UserError(f"{word!r} has no value after it", hint="such as 3ms")
        if word in found:
            raise UserError(f"{word!r} stands twice")
        found[word] = value
    return found


def _name(text: str) -> str:
    words = " ".join(text.split())
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    if len(plain) <= _NAME_CHARACTERS and plain == words.lower().translate({32: 45, 58: 45}):
        return plain
    digest = hashlib.blake2b(words.encode(), digest_size=3).hexdigest()  # others shorten alike
    return f"{plain[: _NAME_CHARACTERS - 7].rstrip('-')}-{digest}"
