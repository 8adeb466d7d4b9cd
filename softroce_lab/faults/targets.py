# SPDX-License-Identifier: GPL-2.0-or-later
"""Patterns of links, nodes and ports."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import PlainValidator, WithJsonSchema

from softroce_lab.errors import UserError
from softroce_lab.plan.locate import QUOTE


class LinkPattern(NamedTuple):
    """Links chosen by the names of their nodes: `left->right` or `left<->right`.

    Either side is a glob in fnmatch's notation, of nodes or, with a colon, of ports.
    """

    left: str
    right: str
    both: bool  # <->

    def __str__(self) -> str:
        return f"{self.left}{'<->' if self.both else '->'}{self.right}"


_NODES = r"[a-z0-9*?\[\]!-]*[a-z0-9*?\]]"
_PORTS = r"[A-Za-z0-9*?\[\]!._-]*[A-Za-z0-9*?\]._]"
_SIDE = rf"{_NODES}(?::{_PORTS})?"
_PATTERN = re.compile(rf"({_SIDE})\s*(<->|->)\s*({_SIDE})", re.ASCII)


def _patterns(value: object) -> list[object]:
    patterns = value if isinstance(value, list) else [value]
    if not patterns:
        raise UserError("an empty list can match nothing")
    return patterns


def parse_link_pattern(value: object) -> LinkPattern:
    """Read `a->b` or `a<->b`; UserError."""
    match = _PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UserError(
            f"{value!r} is not a pattern of links",
            hint="such as 'leaf*<->spine*' for both directions, 'leaf1->spine*' for one",
        )
    return LinkPattern(match[1], match[3], match[2] == "<->")


def parse_end_pattern(value: str) -> str:
    """Check `node` or `node:port`; UserError."""
    if not re.fullmatch(_SIDE, value, re.ASCII):
        what = f"{value!r} is not a pattern of links, nodes or ports"
        # A shell takes the > of an arrow for a redirection, and leaves `h1-` of h1->leaf1.
        cut = value.endswith("-")
        hint = QUOTE if cut else "such as 'leaf1<->spine*', spine1 or h1:eth2"
        raise UserError(what, hint=hint)
    return value


def _parse_links(value: object) -> tuple[LinkPattern, ...]:
    return tuple(map(parse_link_pattern, _patterns(value)))


def _globs(form: str, what: str, example: str) -> PlainValidator:
    def parse(value: object) -> tuple[str, ...]:
        for pattern in (patterns := _patterns(value)):
            if not isinstance(pattern, str) or not re.fullmatch(form, pattern, re.ASCII):
                raise UserError(
                    f"{pattern!r} is not a pattern of {what}", hint=f"such as {example}"
                )
        return tuple(str(pattern) for pattern in patterns)

    return PlainValidator(parse)


def _target_schema(form: str) -> WithJsonSchema:
    one = {"type": "string", "pattern": form}
    return WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})


Links = Annotated[
    tuple[LinkPattern, ...], PlainValidator(_parse_links), _target_schema("^[^<>]+<?->[^<>]+$")
]
Nodes = Annotated[
    tuple[str, ...], _globs(_NODES, "nodes", "spine1 or 'leaf*'"), _target_schema("^[^:<>]+$")
]
Ports = Annotated[
    tuple[str, ...],
    _globs(f"{_NODES}:{_PORTS}", "ports", "'h1:eth2'"),
    _target_schema("^[^:<>]+:[^:<>]+$"),
]
