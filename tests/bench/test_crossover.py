# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench crossover` in a short form: simulation and model agree where the model knows all."""

import dataclasses

import pyarrow.parquet as pq
import pytest

from softroce_lab.bench import crossover

SHORT = dataclasses.replace(
    crossover.SHORT,
    distances_km=(75, 3750),
    sizes=(128 << 10, 8 << 20),
    losses=(1e-5, 1e-2),
    bytes_a_cell=64 << 20,
    most_messages=40,
)


@pytest.fixture(scope="module")
def cells():
    return crossover.run(SHORT, lambda _: None)


def test_every_cell_is_there(cells):
    assert len(cells) == 2 * 2 * 2 * len(crossover.SCHEMES)
    assert all(each.mean_ns > 0 for each in cells)


def test_codes_take_the_time_of_the_model(cells):
    """Where a code falls back less than once in a hundred messages."""
    coded = [each for each in cells if each.scheme in ("mds", "xor")]
    assert [each for each in coded if each.chunk_loss < 1e-2 and not each.agrees] == []


def test_the_fastest_is_that_of_the_model_where_it_is_ahead_by_far(cells):
    first = crossover.fastest(cells)
    assert first[3750, 8 << 20, 1e-2][0] in ("mds", "xor")
    assert first[3750, 8 << 20, 1e-2][1] in ("mds", "xor")


def test_the_table_has_a_line_for_each_cell(cells):
    lines = crossover.table(cells)
    assert len(lines) == 2 + 8
    assert lines[0].startswith("| distance | message | chunk loss | sr_rto | sr_nack | mds |")
    assert len(crossover.summary(cells)) == len(crossover.SCHEMES) + 1


def test_parquet_has_both_figures_side_by_side(cells, tmp_path):
    crossover.save(cells, tmp_path / "map.parquet")
    table = pq.read_table(tmp_path / "map.parquet")
    assert table.num_rows == len(cells)
    assert {"mean_ns", "model_ns", "over_model", "scheme", "distance_km"} <= set(table.column_names)
