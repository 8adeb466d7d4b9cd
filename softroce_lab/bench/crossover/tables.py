# SPDX-License-Identifier: GPL-2.0-or-later
"""The crossover map as text: the cells, who is fastest, and the paper's figures beside them."""

from __future__ import annotations

from collections.abc import Sequence

from softroce_lab import units
from softroce_lab.bench.crossover.cells import MEAN_WITHIN, Cell
from softroce_lab.bench.crossover.grid import Place, scenario
from softroce_lab.bench.crossover.points import Point, auto_over, by_scheme, fixed

PUBLISHED_KM = 3750
LEGEND = (
    "Of each scheme the mean time in ms (over that of the model of the scheme as built here, over "
    "that of the paper's model). !: the mean is outside of 5 % and of three standard errors; "
    "t: p99.9 is outside of its interval. sr_rto, nack: `sdr_sr`, `sdr_sr_nack`; mds, xor: "
    "`sdr_ec`; auto: `sdr_auto`."
)
_EQUAL = 0.001  # of a time: who is ahead by less is not ahead


def by_point(cells: Sequence[Cell]) -> dict[Point, dict[str, Cell]]:
    """By distance, size and loss, then by scheme."""
    found = by_scheme(cells, lambda each: (each.distance_km, each.message_bytes, each.chunk_loss))
    return dict(sorted(found.items()))


def fastest(cells: Sequence[Cell]) -> dict[Point, tuple[str, str]]:
    """By distance, size and loss: the fastest scheme of the simulation, and of the model."""
    return {
        where: (
            min(others, key=lambda cell: cell.mean_ns).scheme,
            min(others, key=lambda cell: cell.model_ns).scheme,
        )
        for where, here in by_point(cells).items()
        if (others := fixed(here))
    }


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: the time of each scheme, over the model's, and over the paper's.

    A time that does not agree with the model's has a `!`, a tail that does not a `t`.
    """
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    first = fastest(cells)
    lines = [
        f"| distance | message | chunk loss | {' | '.join(schemes)} | fastest | the model's |",
        "|---|---|---|" + "---:|" * len(schemes) + "---|---|",
    ]
    for where, here in by_point(cells).items():
        km, size, loss = where
        simulated, modelled = first.get(where, ("-", "-"))
        shown = (_shown(here[name]) if name in here else "-" for name in schemes)
        lines.append(
            f"| {km:g} km | {units.format_bytes(size)} | {loss:g} | {' | '.join(shown)} "
            f"| {simulated} | {modelled} |"
        )
    return lines


def _shown(cell: Cell) -> str:
    if cell.scheme == "auto":
        return f"{cell.mean_ns / 1e6:.3f}"
    marks = ("" if cell.agrees else "!") + ("" if cell.tail_agrees else "t")
    return f"{cell.mean_ns / 1e6:.3f} ({cell.over_model:.3f}{marks}, {cell.over_paper:.2f})"


def summary(cells: Sequence[Cell]) -> list[str]:
    """How often simulation and model agree, and how far `auto` is from the best fixed scheme."""
    lines = []
    for scheme in dict.fromkeys(each.scheme for each in cells if each.scheme != "auto"):
        mine = [each for each in cells if each.scheme == scheme]
        near = sum(abs(each.over_model - 1) <= MEAN_WITHIN for each in mine)
        agree = sum(each.agrees for each in mine)
        tails = sum(each.tail_agrees for each in mine)
        paper = sum(abs(each.over_paper - 1) <= MEAN_WITHIN for each in mine)
        lines.append(
            f"{scheme}: {near} of {len(mine)} cells within 5 % of the model's mean, {agree} within "
            f"that or three standard errors; p99.9 in the interval in {tails}; within 5 % of the "
            f"paper's mean {paper}"
        )
    over = auto_over_best(cells)
    if over:
        worst = max(over, key=lambda where: over[where])
        lines.append(
            f"auto over the best fixed scheme: at most {over[worst]:.3f} ({worst[0]:g} km, "
            f"{units.format_bytes(worst[1])}, {worst[2]:g}), "
            f"{sum(each <= 1 + MEAN_WITHIN for each in over.values())} of {len(over)} cells "
            "within 5 %"
        )
    return lines


def auto_over_best(cells: Sequence[Cell]) -> dict[Point, float]:
    """By point: the mean of `auto` over the least mean of the others."""
    return auto_over(by_point(cells))


# ---------------------------------------------------------------- what parity costs, and saves

OVERHEAD_LEGEND = (
    "Packets of parity and retransmissions over those of the data, and the time that a scheme "
    "recovers: by how much its mean is below that of `sdr_sr`."
)


def overheads(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: bandwidth overhead and recovered time of each scheme at each point."""
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    points = {w: here for w, here in by_point(cells).items() if "sr_rto" in here}
    if not points:
        return []
    lines = [
        f"| distance | message | chunk loss | {' | '.join(schemes)} |",
        "|---|---|---|" + "---:|" * len(schemes),
    ]
    for (km, size, loss), here in points.items():
        shown = (_cost(here.get(name), here["sr_rto"]) for name in schemes)
        lines.append(f"| {km:g} km | {units.format_bytes(size)} | {loss:g} | {' | '.join(shown)} |")
    return lines


def _cost(cell: Cell | None, without: Cell) -> str:
    if cell is None:
        return "-"
    overhead = "?" if cell.overhead is None else f"{cell.overhead:.2%}"
    recovered_ms = (without.mean_ns - cell.mean_ns) / 1e6
    return overhead if cell is without else f"{overhead}, {recovered_ms:.3f} ms"


# ---------------------------------------------------------------- beside the paper's figures


def published_shape(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: what the paper states, and what these cells show at its distance."""
    here = {where: each for where, each in by_point(cells).items() if where[0] == PUBLISHED_KM}
    if not here:
        return []
    return [
        f"| the paper, {PUBLISHED_KM} km [S] | simulated |",
        "|---|---|",
        f"| EC ahead of SR, 128 KiB to 1 GiB, 1e-6 to 1e-2 | {_codes_ahead(here)} |",
        f"| XOR falls back from about 1e-3 | {_fallbacks(here, 'xor')} |",
        f"| MDS (32, 8) holds beyond 1e-2 | {_fallbacks(here, 'mds')} |",
        f"| SR's slowdown: up to 6.5 in the mean, 12.2 at p99.9 | {_slowdowns(here)} |",
    ]


def _codes_ahead(here: dict[Point, dict[str, Cell]]) -> str:
    within = {w: c for w, c in here.items() if w[2] <= 1e-2 and {"mds", "sr_rto"} <= c.keys()}
    if not within:
        return "-"
    ratios = {w: c["sr_rto"].mean_ns / c["mds"].mean_ns for w, c in within.items()}
    ahead = [w for w, ratio in ratios.items() if ratio > 1 + _EQUAL]
    behind = [w for w, ratio in ratios.items() if ratio < 1 - _EQUAL]
    best = max(ratios, key=lambda where: ratios[where])
    text = (
        f"of {len(ratios)} points ahead of `sdr_sr` in {len(ahead)}, most {ratios[best]:.2f} times "
        f"({_named(best)})"
    )
    if behind:
        worst = min(behind, key=lambda where: ratios[where])
        text += f"; behind in {len(behind)}, most {1 / ratios[worst]:.2f} times ({_named(worst)})"
    return text


def _fallbacks(here: dict[Point, dict[str, Cell]], scheme: str) -> str:
    size = max((size for _, size, _ in here if size <= 128 << 20), default=0)
    shares = [
        f"{c[scheme].fell_back / c[scheme].messages:.1%} at {loss:g}"
        for (_, its_size, loss), c in sorted(here.items())
        if its_size == size and scheme in c and loss >= 1e-4
    ]
    return f"{units.format_bytes(size)}: {', '.join(shares)} of the messages"


def _slowdowns(here: dict[Point, dict[str, Cell]]) -> str:
    cells = [c["sr_rto"] for c in here.values() if "sr_rto" in c]
    if not cells:
        return "-"
    mean = max(cells, key=lambda cell: cell.mean_ns / _lossless_ns(cell))
    most = max(cells, key=lambda cell: cell.most_ns / _lossless_ns(cell))
    return (
        f"{mean.mean_ns / _lossless_ns(mean):.1f} in the mean ({_named_cell(mean)}); the slowest "
        f"of {most.messages} messages {most.most_ns / _lossless_ns(most):.1f} "
        f"({_named_cell(most)}; the model's p99.9 {_tail(most):.1f})"
    )


def _tail(cell: Cell) -> float:
    return cell.model_tail_ns / _lossless_ns(cell)


def _lossless_ns(cell: Cell) -> float:
    place = Place(cell.distance_km, cell.message_bytes, cell.chunk_loss, cell.scheme)
    return scenario(place).lossless_ns


def _named(where: Point) -> str:
    return f"{units.format_bytes(where[1])}, {where[2]:g}"


def _named_cell(cell: Cell) -> str:
    return _named((cell.distance_km, cell.message_bytes, cell.chunk_loss))


def figures(cells: Sequence[Cell]) -> list[str]:
    """All of it, as `lab bench crossover` prints it."""
    costs = overheads(cells)
    parts = [table(cells), [LEGEND], summary(cells), published_shape(cells)]
    parts += [costs, [OVERHEAD_LEGEND]] if costs else []
    return [line for part in parts if part for line in ["", *part]][1:]
