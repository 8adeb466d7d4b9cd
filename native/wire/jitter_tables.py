# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes jitter_tables.cpp: the distributions of tc-netem (iproute2: netem/normal.c, pareto.c).

In steps of 1/8192 of the jitter, at the middles p = (i + 0.5) / 4096 of 4096 equal parts, cut off
at +-32767:

    normal   8192 * (inverse of the standard normal distribution function)(p)
    pareto   8192 * 4/3 * ((1 - p)^(-1/3) - 3/2)

The build runs it (CMakeLists.txt): python jitter_tables.py OUTPUT.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

STEPS, SCALE, MOST = 4096, 8192, 32767  # jitter.hpp
PER_LINE = 12


def pareto(p: float) -> float:
    """The deviate below which a share `p` of netem's Pareto distribution lies."""
    return 4 / 3 * ((1 - p) ** (-1 / 3) - 3 / 2)


def table(name: str, deviate: Callable[[float], float]) -> str:
    """One table in C++: the deviates of all steps."""
    deviates = (round(SCALE * deviate((i + 0.5) / STEPS)) for i in range(STEPS))
    steps = [str(max(-MOST, min(MOST, step))) for step in deviates]
    lines = (", ".join(steps[i : i + PER_LINE]) for i in range(0, STEPS, PER_LINE))
    body = "".join(f"  {line},\n" for line in lines)
    return f"const std::int16_t {name}[kJitterSteps] = {{\n{body}}};\n"


def source() -> str:
    """The file that is compiled."""
    tables = table("kNormal", NormalDist().inv_cdf) + table("kPareto", pareto)
    return (
        "// Written by jitter_tables.py.\n"
        '#include "jitter.hpp"\n\n'
        f"namespace softroce::wire {{\n\n{tables}\n}}  // namespace softroce::wire\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(source())
