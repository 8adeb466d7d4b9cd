# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench up`: how long labs take to come up and to go down."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from softroce_lab.bench import up as bench_up
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.statistics import Interval


class ShapeName(enum.StrEnum):
    """The ready topologies that are measured."""

    FAT_TREE_K4 = "fat-tree-k4"
    STAR_100 = "star-100"


def up(
    rounds: Annotated[int, typer.Option(min=1, help="Labs of each shape.")] = 11,
    shape: Annotated[
        list[ShapeName] | None, typer.Option(help="Measure this shape; may be repeated.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the times of lab up and down, against Mininet: a fat-tree, a star of 100 hosts."""
    wanted = [key for key, file in bench_up.SHAPES.items() if shape is None or file in shape]
    outcome = bench_up.run(
        bench_up.Options(rounds, wanted),
        saying(quiet),
    )
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print(outcome)


def _print(outcome: bench_up.Outcome) -> None:
    print(f"{'seconds':24}{'up [95 % interval]':26}down [95 % interval]")
    for key, shape in outcome.shapes.items():
        name = bench_up.SHAPES[key]
        _print_line(name, bench_up.intervals(shape.turns))
        _print_line(f"{name}, Mininet", bench_up.intervals(shape.mininet))
        print(f"{'':4}{shape.first_up_s:.2f} the first time, when XDP programs are compiled")
    print(f"less {outcome.version_s.median:.2f} of `lab --version`; Mininet: {outcome.mininet}")


def _print_line(name: str, intervals: dict[str, Interval]) -> None:
    if intervals:
        print(f"{name:24}{intervals['up_s']!s:26}{intervals['down_s']}")
