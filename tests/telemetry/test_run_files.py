# SPDX-License-Identifier: GPL-2.0-or-later
"""The reference describes the columns that a run writes, and no others."""

import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment import run, spec
from softroce_lab.experiment.figure_table import FIGURES
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.sweep.rows import NUMBER, columns
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry import transitions
from softroce_lab.telemetry.run_files import FILES, SWEEP_COLUMNS

LOSSY = """\
name: small
topology: {generator: {kind: star, hosts: 3, access: {rate: 10Gbit, delay: 2us, limit: 256KiB}}}
transports: [csa_ud, rc]
workload: {kind: open-loop, load: 50%, sizes: [16kB], duration: 2ms}
faults: [{name: loss, links: "*->s1", loss: random 2%}]
"""
DESCRIBED = {file.name.removesuffix(".parquet"): list(file.columns) for file in FILES}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    experiment = spec.of(yaml_source.parse(LOSSY, "small.yaml"))
    return run.run(experiment, Silent(), under=tmp_path_factory.mktemp("runs")).directory


@pytest.mark.parametrize("table", ["messages", "events", "recovery", "repairs", "samples"])
def test_every_column_is_described(directory, table):
    assert pq.read_schema(directory / f"{table}.parquet").names == DESCRIBED[table]


def test_every_file_is_described(directory):
    assert {path.name for path in directory.iterdir()} <= {file.name for file in FILES}


def test_columns_of_shift_are_described():
    assert ["transport", "seed", *transitions.COLUMNS] == DESCRIBED["shift"]


def test_columns_of_sweeps_are_described():
    assert SWEEP_COLUMNS.keys() == {NUMBER, *columns()} - FIGURES.keys()
