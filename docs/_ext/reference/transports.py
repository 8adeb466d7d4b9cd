# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports with their knobs and options, from the registry."""

from __future__ import annotations

from collections.abc import Sequence

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.transports import knobs, registry
from softroce_lab.transports.options import Option
from softroce_lab.transports.registry import Entry, Kind


def page() -> str:
    """Every transport."""
    about = (
        "A transport is chosen by name in `transports:` of an experiment, or by `--transport`. A "
        "*knob* means the same for every transport that has it, and is a key beside the name: "
        "`{name: irn, timeout: 10ms}`. An *option* is the transport's own, below `options:`. "
        "[Transports compared](../explanation/transports.md) explains what each one does."
    )
    names = registry.known()
    return markdown.page(
        "Transports, knobs and options", about, *(_section(registry.find(name)) for name in names)
    )


def _section(entry: Entry) -> str:
    facts = [
        ("recovery", "a session over striped messages" if entry.kind is Kind.SESSION
         else "an RC queue pair to each peer"),
        ("clocks", "virtual" if entry.virtual_only else "virtual and real"),
        ("rails of a host", str(entry.rails)),
    ]  # fmt: skip
    if entry.striped:
        facts += [
            ("framings, default first", ", ".join(map(code, entry.framings))),
            ("congestion control", code(entry.congestion_control)
             or "`dcqcn` where queues set congestion marks, else `bdp`"),
            ("schedule", code(entry.schedule)),
        ]  # fmt: skip
    return markdown.section(
        entry.name,
        markdown.table(["property", "value"], facts),
        _knobs(entry),
        _options(entry.options),
    )


def _knobs(entry: Entry) -> str:
    rows = [
        (
            code(each.name),
            prose(each.help),
            prose(_values(each)),
            prose(knobs.usual(entry.name, each, entry.schedule)),
        )
        for each in entry.knobs
    ]
    return markdown.table(["knob", "meaning", "values", "default"], rows) if rows else ""


def _options(options: Sequence[Option]) -> str:
    rows = [
        (code(each.name), prose(each.help), prose(_values(each)), code(_shown(each)))
        for each in options
    ]
    return markdown.table(["option", "meaning", "values", "default"], rows) if rows else ""


def _shown(option: Option) -> str:
    value = option.default
    return str(value).lower() if isinstance(value, bool) else option.shown(value)


def _values(option: Option) -> str:
    kind = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    values = option.bounds() or option.unit or kind[type(option.default)]
    return f"{values}, or measured" if isinstance(option, knobs.MeasurableTimeout) else values
