# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench sim`: how fast the virtual clock goes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import sim as bench_sim
from softroce_lab.cli.experiment_options import KnownTransports
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.errors import UserError
from softroce_lab.recovery import registry


def sim(
    hosts: Annotated[
        list[int] | None,
        typer.Option(help="This fabric alone: 128, 1024 or 4096; may be repeated."),
    ] = None,
    transport: KnownTransports = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of each case; 6 or more for a 95 % interval.")
    ] = bench_sim.ROUNDS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure packet-hops per CPU second of a permutation on 128, 1024 and 4096 hosts.

    Six rounds of all cases take about half an hour.
    """
    sizes = hosts or list(bench_sim.SHAPES)
    for size in sizes:
        if size not in bench_sim.SHAPES:
            known = ", ".join(map(str, bench_sim.SHAPES))
            raise UserError(f"no fabric of {size} hosts", hint=f"known: {known}")
    for name in transport or ():
        registry.find(name)
    found = bench_sim.run(sizes, transport or bench_sim.TRANSPORTS, rounds, saying(quiet))
    if as_json:
        print(json.dumps(bench_sim.document(found), indent=1))
        return
    _print(found)


def _print(cases: list[bench_sim.Case]) -> None:
    rounds = len(cases[0].samples)
    print(f"million hops a second of processor time, median of {rounds} [95 % from 6 rounds on]")
    titles = ("hosts", "transport", "hops/CPU s", "htsim", "set-up", "memory")
    print("{:>6} {:<10} {:<22} {:>6} {:>8} {:>10}".format(*titles))
    for each in cases:
        rate = each.rate
        figure = f"{rate.median / 1e6:.2f} [{rate.low / 1e6:.2f}, {rate.high / 1e6:.2f}]"
        htsim = bench_sim.HTSIM.get(each.hosts)
        ratio = f"{rate.median / htsim:.2f}x" if htsim else "-"
        memory = units.format_bytes(each.peak_rss_bytes)
        print(
            f"{each.hosts:>6} {each.transport:<10} {figure:<22} {ratio:>6} "
            f"{each.setup_cpu_s:>6.1f} s {memory:>10}"
        )
    for size, ratio in bench_sim.csa_ud_over_irn(cases).items():
        figure = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        print(f"{size:>6} csa_ud / irn, median of the ratios in the same round: {figure}")
    print("htsim: over csg-htsim's 2.56 million at 128 and 1.09 million at 1024 hosts, same work")
