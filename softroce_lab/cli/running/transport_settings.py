# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run --list --transport NAME`: the knobs and options that a transport takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from softroce_lab.experiment.transports import written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.transports import knobs
from softroce_lab.transports.options import Option


def print_settings(names: Sequence[str], *, as_json: bool) -> None:
    """Of these transports, each written as in `--transport`. UserError."""
    chosen = [*written.labelled(written.of_argument(each) for each in names).values()]
    if as_json:
        print(json.dumps([document(each) for each in chosen], indent=1))
        return
    for number, each in enumerate(chosen):
        if number:
            print()
        _print(document(each))


def document(transport: Transport) -> dict[str, Any]:
    """For `--json`. A knob has no default here: that follows from the fabric and the transport."""
    entry = transport.entry
    return {
        "transport": transport.label,
        "knobs": [_setting(each) for each in entry.knobs],
        "options": [
            _setting(each) | {"default": _written(each, each.default)} for each in entry.options
        ],
    }


def _setting(option: Option) -> dict[str, Any]:
    values = "true or false" if isinstance(option.default, bool) else option.bounds()
    if isinstance(option, knobs.MeasurableTimeout):
        values += f", or {knobs.MEASURED}"
    return {"name": option.name, "values": values, "help": option.help}


def _written(option: Option, value: float | str) -> Any:
    """As a file has it: with its unit, if it has one."""
    return option.shown(value) if option.unit else value


def _print(found: dict[str, Any]) -> None:
    label = found["transport"]
    if found["knobs"]:
        print(f"{label}: knobs; docs/explanation/transports.md explains them")
        _print_rows(found["knobs"])
    if found["options"]:
        print(f"{label}: options; in a file options: {{{found['options'][0]['name']}: VALUE}}")
        _print_rows(found["options"])


def _print_rows(settings: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in settings:
        values = each["values"]
        if "default" in each:
            default = each["default"]
            values += f"; default {str(default).lower() if isinstance(default, bool) else default}"
        table.add_row(f"  {each['name']}", escape(values), escape(each["help"]))
    Console().print(table)
