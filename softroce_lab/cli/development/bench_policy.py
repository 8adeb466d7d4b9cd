# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench policy`: the goodput of recovery policies as a share of `ud_rto`'s."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import policy as bench_policy
from softroce_lab.cli import completion
from softroce_lab.cli.development.bench_options import Rounds
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import written


def policy(
    transports: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]NAME|FILE:CLASS...",
            help="Transports to measure: built-in ones, or policies in Python files.",
            autocompletion=completion.transports,
        ),
    ],
    rounds: Rounds = 15,
    transfer: Annotated[str, typer.Option(help="Size of a transfer.")] = "256MiB",
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure goodput of transports over three switches (real clock), as a share of ud_rto's."""
    size = units.parse_bytes(transfer)
    if size == 0:
        raise UserError("0 bytes take no time", hint="measure with more")
    chosen = written.labelled(written.of_argument(each) for each in transports)
    written.check_real(chosen.values())
    if bench_policy.BASELINE in chosen:
        raise UserError(f"{bench_policy.BASELINE} is what the others are compared with")
    options = bench_policy.Options([*chosen.values()], rounds, size, mode=xdp.value)
    outcome = bench_policy.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
        return
    ratios = outcome.ratios()
    print(f"{'':18}{'goodput':>14}  ratio [95 % interval]    ({outcome.mode} XDP)")
    for name, goodput in outcome.goodputs_bps().items():
        print(f"{name:18}{units.format_rate(goodput.median):>14}  {ratios.get(name, '')}".rstrip())
