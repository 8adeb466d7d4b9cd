# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results explain --cost`: which losses cost a run its time, by runs without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab.cli.options import print_document, say
from softroce_lab.cli.results.options import runs_of
from softroce_lab.cli.screen import Counting
from softroce_lab.errors import UserError
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results.blame import words
from softroce_lab.results.blame.charges import Blame
from softroce_lab.results.blame.investigation import Investigation
from softroce_lab.results.recorded import Recorded


def show(
    found: Recorded,
    of: str | None,
    step: str | None,
    undo: str | None,
    most_runs: int,
    whose: Origin,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what each loss cost; with `undo`: what these cost together. UserError, RunError."""
    documents = []
    for number, each in enumerate(runs_of(found, of)):
        known = Investigation.of(found, each, step, whose)
        if undo is not None:
            documents.append(_undone(known, undo, as_json=as_json))
            continue
        try:
            result = searched(known, most_runs, quiet=quiet)
        except KeyboardInterrupt:
            what = f"{known.known.name}: interrupted; its charges are known at the end only"
            say(what)
            raise
        if as_json:
            documents.append(_document(result, known))
        else:
            print("\n" * bool(number), end="")
            _print(result, known)
    if as_json:
        print_document(runs=documents)


def _print(result: Blame, known: Investigation) -> None:
    for line in words.sentences(result, known):
        print(line)
    if not result.losses:
        return
    print()
    for line in words.table(list(words.rows(result, known))):
        print(line)
    print(
        f"\n{result.runs} runs. A charge is what the end gains when the losses of the charges "
        "before it are undone already; all add up."
    )
    if not result.whole:
        print("Groups are left: --runs N looks at more of them.")


def _document(result: Blame, known: Investigation) -> dict[str, Any]:
    document = result.document()
    for each in document["charges"]:
        each["message"] = known.known.messages.name(each["message"])
    path = known.path_document()
    return {"run": known.known.name, "step": known.step, **document, "critical_path": path}


def _undone(known: Investigation, text: str, *, as_json: bool) -> dict[str, Any]:
    losses = _numbers(text, known.losses)
    with_all_ns = known.subject.base.end_ns(known.subject.rows)
    left_ns = known.without(losses)
    if not as_json:
        took, left, gain = map(words.time, (with_all_ns, left_ns, with_all_ns - left_ns))
        if known.step is not None:
            left = f"step {known.step} ends {left} after the start of the run"
        print(f"{known.known.name}: {left} without {len(losses):,} of {known.losses:,} losses,")
        print(f"{took} with all: they cost {gain}.")
    return {
        "run": known.known.name,
        "step": known.step,
        "undone": [number + 1 for number in losses],
        "with_all_ns": with_all_ns,
        "left_ns": left_ns,
        "cost_ns": with_all_ns - left_ns,
    }


def _numbers(text: str, count: int) -> Sequence[int]:
    """Losses from 0, of the text of --undo. UserError."""
    if text == "all":
        return range(count)
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            begin = int(first)
            end = int(last) if dash else begin
        except ValueError:
            hint = "such as 17,40-52, or all"
            raise UserError(f"--undo: {part!r} is no loss's number", hint=hint) from None
        if not 1 <= begin <= end <= count:
            hint = f"losses are numbered 1 to {count:,}, in the order of time"
            raise UserError(f"--undo: there is no loss {part}", hint=hint)
        found.update(range(begin - 1, end))
    return sorted(found)


def searched(known: Investigation, most_runs: int, *, quiet: bool) -> Blame:
    """What losses cost it, by `most_runs` runs at most. RunError."""
    with Counting("repeating", f"runs of {known.known.name}", quiet=quiet) as screen:
        screen.begin(most_runs)
        shown = 0

        def show(made: int) -> None:
            nonlocal shown
            for _ in range(shown, made):
                screen.add()
            shown = made

        return known.blame(most_runs, show)
