# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/experiments.md, docs/sweeps.md: what they show as examples can be run."""

import re

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.experiment.figure_table import FIGURES
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep.rows import columns


def examples(name, language):
    text = (paths.PROJECT_ROOT / "docs" / name).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


EXPERIMENTS = examples("experiments.md", "yaml")
(SWEEP,) = examples("sweeps.md", "yaml")
(PROGRAM,) = examples("sweeps.md", "python")

TABLE = "| line of the table | key and column | gate | type | what |\n"


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def lab(*arguments):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return lab


def test_there_are_examples():
    assert len(EXPERIMENTS) >= 2


@pytest.mark.parametrize("example", EXPERIMENTS)
def test_an_experiment_can_be_run(lab, tmp_path, example):
    (tmp_path / "mine.yaml").write_text(example)
    assert " messages\n  over " in lab("run", "mine.yaml", "--dry-run")


def test_the_sweep_can_be_run(lab, tmp_path):
    (tmp_path / "mine.yaml").write_text(SWEEP)
    assert "runs\n" in lab("run", "mine.yaml", "--dry-run")
    sweep = sweep_spec.load("mine.yaml")
    digests = {each.recipe.digest for each in sweep.combinations}  # no two of them are the same
    assert len(digests) == len(sweep.combinations) > 1


def test_the_program_reads_the_table_of_the_sweep(lab, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(SWEEP)
    lab("run", "mine", "-q", "-j1", "--only", "workload.bytes=64KiB", "--only", "depth=1")
    exec(compile(PROGRAM, "docs/sweeps.md", "exec"), {})  # noqa: S102 - our own words
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {(transport, loss): float(goodput) for transport, loss, _, goodput in rows}
    assert set(found) == {(name, loss) for name in ("csa_ud", "rc") for loss in ("none", "cores")}
    assert found["csa_ud", "none"] > found["csa_ud", "cores"]


@pytest.mark.parametrize("column", sorted(columns().keys() - FIGURES.keys()))
def test_each_column_of_a_sweep_has_its_line(column):
    text = (paths.PROJECT_ROOT / "docs/sweeps.md").read_text()
    assert f"`{column}`" in text.partition("The columns of `runs.parquet`:")[2]


def test_the_document_has_the_table_of_figures():
    """All but its last column, which says what each figure is."""
    text = (paths.PROJECT_ROOT / "docs/experiments.md").read_text()
    _, *lines = text.partition(TABLE)[2].partition("\n\n")[0].splitlines()
    assert [[cell.strip(" `") for cell in line.split("|")[1:5]] for line in lines] == [
        [each.title, each.key, each.gate, each.unit.column] for each in FIGURES.values()
    ]
