# SPDX-License-Identifier: GPL-2.0-or-later
"""The crossover map as a figure: who is named, and what the file has."""

import dataclasses

import pytest

from softroce_lab.bench.crossover.cells import Cell
from softroce_lab.errors import UserError
from softroce_lab.report import crossover_map, plots

CELL = Cell(
    3750, 8 << 20, 1e-2, "sr_rto", 10, 80e6, 1e6, 100e6, 79e6, 1e6, 200e6, 82e6, 0, 0, True, 0, 5, 0
)


def cell(scheme, mean_ms, model_ms=None, **more):
    model_ms = mean_ms if model_ms is None else model_ms
    times = {"mean_ns": mean_ms * 1e6, "model_ns": model_ms * 1e6, "paper_ns": model_ms * 1e6}
    return dataclasses.replace(CELL, scheme=scheme, **times, **more)


def verdict(*cells, column="simulated"):
    here = {each.scheme: each for each in cells}
    found = crossover_map.verdict(here, crossover_map.COLUMNS[column])
    return None if found is None else (found[0], round(found[1], 6))


def test_the_fastest_is_named_and_by_how_much_codes_are_ahead():
    slow, quick = cell("sr_rto", 80), cell("sr_nack", 50)
    assert verdict(slow, quick, cell("mds", 25), cell("xor", 40)) == ("mds", 2)
    assert verdict(slow, quick, cell("mds", 40), cell("xor", 25)) == ("xor", 2)
    assert verdict(slow, quick, cell("mds", 100)) == ("sr_nack", 0.5)
    assert verdict(slow, cell("mds", 100)) == ("sr_rto", 0.8)
    assert verdict(cell("sr_rto", 25.2), cell("mds", 25)) == ("=", 1.008)


def test_of_two_that_are_as_fast_the_family_is_named():
    slow, quick = cell("sr_rto", 80), cell("sr_nack", 79.9)
    assert verdict(slow, quick, cell("mds", 40), cell("xor", 40.1)) == ("ec", 1.9975)
    assert verdict(slow, quick, cell("mds", 160)) == ("sr", 0.499375)
    assert verdict(slow, quick, cell("mds", 40), cell("xor", 41)) == ("mds", 1.9975)


def test_auto_is_no_scheme_of_the_map():
    assert verdict(cell("sr_rto", 80), cell("mds", 40), cell("auto", 1)) == ("mds", 2)
    assert verdict(cell("sr_rto", 80), cell("auto", 1)) is None


def test_the_models_have_columns_of_their_own():
    cells = cell("sr_rto", 80, 40), cell("mds", 40, 80)
    assert verdict(*cells) == ("mds", 2)
    assert verdict(*cells, column="model of what was built") == ("sr_rto", 0.5)
    assert verdict(*cells, column="the paper's model") == ("sr_rto", 0.5)


GRID = [
    cell(scheme, mean_ms, distance_km=km, chunk_loss=loss, message_bytes=size)
    for km in (75, 3750)
    for size in (128 << 10, 8 << 20)
    for loss in (1e-5, 1e-2)
    for scheme, mean_ms in (("sr_rto", 80), ("mds", 25))
]


def test_the_file_has_squares_titles_and_the_command(tmp_path):
    path = tmp_path / "map.svg"
    crossover_map.save(GRID, path, "lab bench crossover --figure map.svg")
    text = path.read_text()
    assert text.count(">MDS 3.20<") == 3 * 8
    for km in (75, 3750):
        for column in ("simulated", "model of what was built"):
            assert f">{km} km, {column}<" in text
    assert "lab bench crossover --figure map.svg; sha256 of the cells " in text
    crossover_map.save(GRID, tmp_path / "again.svg", "lab bench crossover --figure map.svg")
    assert (tmp_path / "again.svg").read_text() == text


@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_other_formats(tmp_path, suffix):
    path = tmp_path / f"map.{suffix}"
    crossover_map.save(GRID[:3], path, "lab")
    assert path.stat().st_size > 1000


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(UserError, match="of what kind is it"):
        plots.need(tmp_path / "map.txt")
    with pytest.raises(UserError, match="no point has selective repeat and a code"):
        crossover_map.save([cell("sr_rto", 1), cell("auto", 1)], tmp_path / "map.svg", "lab")
