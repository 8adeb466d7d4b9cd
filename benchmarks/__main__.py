# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs benchmarks in rounds, of this checkout or of two in turn, and prints their medians."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.runner import Checkout, Results, run_rounds
from softroce_lab.errors import UserError
from softroce_lab.statistics import FEWEST

NAMES = (
    "engine", "waiting", "verbs", "event_log", "ec", "sim", "check", "shift", "instructions",
    "up", "path", "faults", "wire", "capture", "programs",
)  # fmt: skip
"""All benchmarks; those of the second line need root."""
HERE = Path(__file__).resolve().parent


def main() -> int:
    """The command; 1: a benchmark failed."""
    arguments = _parser().parse_args()
    here = Checkout(HERE.parent, Path(sys.executable))
    try:
        other = Checkout.at(arguments.against) if arguments.against else None
    except UserError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    checkouts = [here, other] if other else [here]
    failed = False
    documents: dict[str, Any] = {}
    for name in arguments.names or NAMES:
        results = run_rounds(name, checkouts, arguments.rounds, short=arguments.short)
        failed |= results.failure is not None
        documents[name] = results.document()
        if not arguments.json:
            _print(name, results)
    if arguments.json:
        print(json.dumps({"rounds": arguments.rounds, "benchmarks": documents}, indent=1))
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure how fast this checkout is.",
        epilog="benchmarks:\n" + "\n".join(f"  {name:10}{_about(name)}" for name in NAMES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", choices=NAMES, metavar="NAME", help="which benchmarks; default: all"
    )
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT",
        help="measure this checkout in turn with CHECKOUT, which `./lab doctor` has built, "
        "and print ratios: above 1 this checkout is faster",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=_count, default=FEWEST,
        help="how often each is measured (default and least for a 95 %% interval: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--short", action="store_true", help="tiny sizes, to see that all work")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def _about(name: str) -> str:
    """The first line of its module's docstring."""
    return (ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text())) or "").splitlines()[0]


def _print(name: str, results: Results) -> None:
    stolen = f", {results.stolen:.0%} of the CPUs stolen" if results.stolen >= 0.01 else ""
    print(f"{name}: {_about(name)}{stolen}")
    if results.failure is not None:
        print(f"  failed: {results.failure}")
    for figure, value in results.figures().items():
        low, high = _number(value.low), _number(value.high)
        line = f"  {figure:36}{_number(value.median):>16}  [{low}, {high}]"
        ratio = results.ratio(figure)
        print(line if ratio is None else f"{line:84}  ratio {ratio}")
    sys.stdout.flush()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
