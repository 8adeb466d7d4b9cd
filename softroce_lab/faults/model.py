# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault rules as they are written: tc-netem's words, a pattern of links, a hash key.

Every netem word is known here; those that the lab cannot do yet are refused by name.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.topology.plan import FaultKey
from softroce_lab.topology.validation import Model

MAX_RULE_NAME = 32

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*", re.ASCII)
_ONLY_RANDOM = "today there is random loss: loss: random 1%"


def check_name(name: str, what: str, longest: int) -> str:
    """Return `name` if it is made of a-z, 0-9 and '-' and not too long; UserError otherwise."""
    if len(name) > longest:
        raise UserError(f"{what} {name!r} is longer than {longest} characters")
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{what} {name!r} is not allowed",
            hint="use a-z, 0-9 and '-', beginning with a letter or a digit",
        )
    return name


def name_schema(longest: int) -> WithJsonSchema:
    """Describe to editors what `check_name` accepts."""
    return WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$", "maxLength": longest})


def _parse_probability(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError("expected a percentage", hint="such as 1%")
    return units.parse_percent(str(value))


Probability = Annotated[
    Fraction,
    PlainValidator(_parse_probability),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9.]+([eE][-+]?[0-9]+)? *%$"}),
]


class Loss(Model):
    """Lost packets. `random`: each packet on its own, as tc-netem's `loss random`."""

    not_yet = dict.fromkeys(("gemodel", "state", "ecn"), _ONLY_RANDOM)

    random: Probability


def _parse_compact_loss(value: object) -> object:
    """`random 1%` and, as tc has it, `1%` -> `{random: 1%}`; anything else is left alone."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    word, _, rest = str(value).strip().partition(" ")
    if not word[:1].isalpha():
        word, rest = "random", str(value)
    if word == "random" and rest.count("%") > 1:
        raise UserError("loss random with a correlation is not supported yet", hint=_ONLY_RANDOM)
    return {word: rest}


class Impairments(Model):
    """What can go wrong on a link."""

    not_yet = dict.fromkeys(
        ("delay", "jitter", "reorder", "gap", "duplicate", "corrupt", "rate", "limit", "slot",
         "distribution", "ecn"),
        _ONLY_RANDOM,
    )  # fmt: skip

    loss: Annotated[
        Loss | None, BeforeValidator(_parse_compact_loss, json_schema_input_type=str | Loss | None)
    ] = None


class LinkPattern(NamedTuple):
    """Links chosen by the names of their nodes: `left->right` or `left<->right`.

    Either side is a glob in fnmatch's notation.
    """

    left: str
    right: str
    both: bool  # <->

    def __str__(self) -> str:
        return f"{self.left}{'<->' if self.both else '->'}{self.right}"


_GLOB = r"[a-z0-9*?\[\]!-]*[a-z0-9*?\]]"
_PATTERN = re.compile(rf"({_GLOB})\s*(<->|->)\s*({_GLOB})", re.ASCII)


def _parse_link_pattern(value: object) -> LinkPattern:
    match = _PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UserError(
            f"{value!r} is not a pattern of links",
            hint="such as 'leaf*<->spine*' for both directions, 'leaf1->spine*' for one",
        )
    return LinkPattern(match[1], match[3], match[2] == "<->")


def _check_rule_name(name: str) -> str:
    return check_name(name, "rule name", MAX_RULE_NAME)


class FaultRule(Impairments):
    """Impairments of the links that a pattern chooses."""

    name: Annotated[str, AfterValidator(_check_rule_name), name_schema(MAX_RULE_NAME)]
    links: Annotated[
        LinkPattern,
        PlainValidator(_parse_link_pattern),
        WithJsonSchema({"type": "string", "pattern": "^[^<>]+<?->[^<>]+$"}),
    ]
    loss: Annotated[Loss, BeforeValidator(_parse_compact_loss, json_schema_input_type=str | Loss)]
    key: FaultKey = "identity"
