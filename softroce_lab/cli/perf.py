# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf`: perftest and the pingpongs between two hosts of a lab."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.experiment_options import (
    Captured,
    CaptureFile,
    Snap,
    WithCapture,
    captures,
)
from softroce_lab.cli.options import Json, Lab, Quiet, print_json, saying
from softroce_lab.cli.options import say as print_line
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.perftest import losses
from softroce_lab.experiment.perftest import run as perftest
from softroce_lab.experiment.perftest.run import Outcome
from softroce_lab.experiment.perftest.tests import TESTS, Test
from softroce_lab.fabric.observe import view
from softroce_lab.telemetry.capture_figures import SNAP_BYTES

app = typer.Typer(add_completion=False)


class _Command(WithCapture):
    """Says where options of perftest belong."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """As always. UserError for an option in front of `--` that `lab perf` does not have."""
        known = {name for each in self.params for name in each.opts} | {"--help"}
        for word in itertools.takewhile(lambda each: each != "--", args):
            if word.startswith("-") and word.partition("=")[0] not in known:
                what = f"lab perf has no option {word.partition('=')[0]}"
                hint = "options of perftest follow --: lab perf write_bw h1 h2 -- -D 5"
                raise UserError(what, hint=hint)
        return super().parse_args(ctx, args)


@app.command(cls=_Command)
def perf(
    test: Annotated[str, typer.Argument(metavar="TEST", help=", ".join(TESTS))],
    client: Annotated[
        str, typer.Argument(help="The host that connects.", autocompletion=completion.hosts)
    ],
    server: Annotated[
        str, typer.Argument(help="The host that listens.", autocompletion=completion.hosts)
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTIONS...]", help="Options of the program, for both hosts."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Kill both programs after this; default: 60s and the program's -D, "
            "3min with a kernel host, 5min more with -a.",
        ),
    ] = None,
    capture: Captured = None,
    capture_file: CaptureFile = None,
    snap: Snap = SNAP_BYTES,
    lab: Lab = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run perftest's ib_TEST, or ibv_TEST of rdma-core, from CLIENT to SERVER.

    The programs are the distribution's. They use the lab's verbs library at a host with a soft
    RNIC, and the kernel's RNIC at a kernel host. Prints what the client prints, and what links,
    faults and RNICs lost and retransmitted meanwhile.
    """
    chosen = Test.of(test, options or ())
    timeout_s = None if timeout is None else units.parse_time_ns(timeout) / 1e9
    if timeout_s is not None and timeout_s <= 0:
        raise UserError(f"--timeout {timeout}", hint="more than 0: --timeout 90s")
    wanted = captures(capture, snap, capture_file)
    say = saying(quiet)
    outcome = perftest.run(
        view.of_lab(lab), chosen, (client, server), timeout_s=timeout_s, wanted=wanted, say=say
    )
    if as_json:
        print_json(outcome.document())
    else:
        print("\n".join(_lines(outcome)))
    if outcome.capture is not None:
        say(outcome.capture.summary())
    for note in outcome.losses.notes:
        say(note)
    for problem in outcome.problems:
        print_line(problem)
    if outcome.problems:
        raise typer.Exit(ExitCode.FAILED)


def _lines(outcome: Outcome) -> Iterator[str]:
    asked, served = (output.rstrip() for output in outcome.outputs)
    if not outcome.problems:
        yield asked
    for host, output in zip(outcome.hosts, (asked, served), strict=True):
        if output and outcome.problems:
            yield f"{host} printed:\n{output}"
    yield "What the lab counted meanwhile:"
    yield from losses.lines(outcome.losses)
    for host, found in outcome.rnics.items():
        for process in found:
            yield f"  {host}: {program_words.rnic(process.brief())}"
