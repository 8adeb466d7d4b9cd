# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures, and the files of a run directory with the columns of their tables."""

from __future__ import annotations

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.experiment.figure_table import FIGURES, Figure
from softroce_lab.experiment.sweep.rows import columns
from softroce_lab.telemetry.run_files import FILES, SWEEP_COLUMNS


def figures() -> str:
    """Every figure of a run."""
    about = (
        "A figure is one number that is measured in a run. The key names it in `--json`, in "
        "`manifest.json` and in a sweep's `runs.parquet`; the gate names it in `expect`. A figure "
        "that a run does not have is null."
    )
    head = ["key", "meaning", "title in tables", "gate", "type", "better", "runs"]
    rows = [
        (
            code(each.key), prose(each.about), prose(each.title), code(each.gate),
            code(each.unit.column), each.better or "", _runs(each),
        )
        for each in FIGURES.values()
    ]  # fmt: skip
    return markdown.page("Figures", about, markdown.table(head, rows))


def _runs(figure: Figure) -> str:
    kinds = [figure.workloads.name] if figure.workloads else []
    kinds += ["virtual clock"] if figure.virtual_only else []
    kinds += [f"beside {code(figure.bound)}"] if figure.bound else []
    kinds += ["sweeps"] if figure.sweep_only else []
    return ", ".join(kinds) or "all"


def run_directory() -> str:
    """Every file, and every column of a table."""
    about = (
        "`lab run` and `lab demo` write a directory `runs/TIME-NAME`, in the same format on both "
        "clocks. `runs/latest` points to the newest one. Times in tables are nanoseconds since "
        "the run began; -1 means that it did not happen. A column exists only in the runs that it "
        "is about."
    )
    files = markdown.table(["file", "what"], [(code(f.name), prose(f.about)) for f in FILES])
    sections = [
        markdown.section(each.name, prose(each.about) + ".", _columns(each.columns))
        for each in FILES
        if each.columns
    ]
    sweep = markdown.section(
        "runs.parquet of a sweep",
        "One row for each run. Each entry of `over` has a column, and so has each "
        "[figure](figures.md).",
        markdown.table(
            ["column", "type", "what"],
            [
                (code(n), code(columns().get(n, "int64")), prose(t))
                for n, t in SWEEP_COLUMNS.items()
            ],
        ),
    )
    return markdown.page("The run directory", about, files, *sections, sweep)


def _columns(columns: dict[str, str]) -> str:
    return markdown.table(["column", "what"], [(code(n), prose(t)) for n, t in columns.items()])
