# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench crossover` in a short form: simulation and model agree where the model knows all."""

import dataclasses

import pyarrow.parquet as pq
import pytest

from softroce_lab.bench.crossover import cells as cells_of
from softroce_lab.bench.crossover import grid, tables
from softroce_lab.errors import UserError

SHORT = dataclasses.replace(
    grid.SHORT,
    distances_km=(75, 3750),
    sizes=(128 << 10, 8 << 20),
    losses=(1e-5, 1e-2),
    bytes_a_cell=64 << 20,
    most_messages=40,
)
TINY = dataclasses.replace(
    SHORT, distances_km=(75,), sizes=(128 << 10,), losses=(1e-2,), schemes=("mds", "sr_rto")
)


@pytest.fixture(scope="module")
def cells():
    return cells_of.of(grid.run(SHORT, lambda _: None))


def test_every_cell_is_there(cells):
    assert len(cells) == 2 * 2 * 2 * len(grid.SCHEMES)
    assert all(each.mean_ns > 0 for each in cells)


def test_means_and_tails_are_those_of_the_model(cells):
    of_model = [each for each in cells if each.scheme != "auto"]
    assert [each for each in of_model if not each.agrees] == []
    assert [each for each in of_model if not each.tail_agrees] == []
    exact = [each for each in of_model if each.model_error_ns < 0.001 * each.model_ns]
    assert len(exact) >= 8
    assert all(each.over_model == pytest.approx(1, abs=0.005) for each in exact)


def test_the_choice_of_auto_is_no_worse_than_the_best(cells):
    assert max(tables.auto_over_best(cells).values()) < 1.05


def test_the_fastest_is_that_of_the_model_where_it_is_ahead_by_far(cells):
    first = tables.fastest(cells)
    assert first[3750, 8 << 20, 1e-2][0] in ("mds", "xor")
    assert first[3750, 8 << 20, 1e-2][1] in ("mds", "xor")


def test_the_table_has_a_line_for_each_cell(cells):
    lines = tables.table(cells)
    assert len(lines) == 2 + 8
    assert lines[0].startswith("| distance | message | chunk loss | sr_rto | sr_nack | mds |")
    assert len(tables.summary(cells)) == len(grid.SCHEMES)


def test_the_papers_figures_stand_beside_the_simulated_ones(cells):
    lines = tables.published_shape(cells)
    assert len(lines) == 2 + 4
    assert "of 4 points ahead" in lines[2]
    assert "% at 0.01 of the messages" in lines[3]
    assert tables.published_shape([each for each in cells if each.distance_km == 75]) == []


def test_parquet_has_all_figures_side_by_side(cells, tmp_path):
    cells_of.save(cells, tmp_path / "map.parquet")
    table = pq.read_table(tmp_path / "map.parquet")
    assert table.num_rows == len(cells)
    wanted = {"mean_ns", "model_ns", "paper_ns", "over_model", "scheme", "tail_agrees"}
    assert wanted <= set(table.column_names)


def test_overhead_is_parity_and_what_is_sent_again(cells):
    """(32, 8): 8 chunks of parity for 32 of data; without a code only what was lost."""
    for each in cells:
        data = each.messages * grid.data_packets(each.message_bytes)
        if each.scheme in ("sr_rto", "sr_nack"):
            assert each.parity == 0
            assert each.overhead == each.retransmitted / data
        elif each.scheme == "mds":
            chunks = -(-grid.data_packets(each.message_bytes) // grid.CHUNK_PACKETS)
            parity = -(-chunks * 8 // 32) * grid.CHUNK_PACKETS * each.messages
            assert 0.9 * parity <= each.parity <= parity
    lines = tables.overheads(cells)
    assert len(lines) == 2 + 8
    assert lines[0] == "| distance | message | chunk loss | sr_rto | sr_nack | mds | xor | auto |"
    [line] = [each for each in lines if each.startswith("| 3750 km | 8 MiB | 0.01 |")]
    by = {(each.distance_km, each.message_bytes, each.chunk_loss, each.scheme): each
          for each in cells}  # fmt: skip
    of = {scheme: by[3750, 8 << 20, 1e-2, scheme] for scheme in ("sr_rto", "mds")}
    recovered_ms = (of["sr_rto"].mean_ns - of["mds"].mean_ns) / 1e6
    assert f"{of['mds'].overhead:.2%}, {recovered_ms:.3f} ms" in line


def test_a_state_of_before_has_the_parity_of_the_code(cells):
    """Which code `auto` took is not known then."""
    place = grid.Place(3750, 8 << 20, 1e-2, "mds")
    sample = grid.Sample(place, 1, 10, 10e9, 1e19, 1e9, 0, 0, 0, 100)
    counted = next(
        each for each in cells
        if (each.distance_km, each.message_bytes, each.scheme) == (3750, 8 << 20, "mds")
    )  # fmt: skip
    assert cells_of.of([sample])[0].parity == 10 * counted.parity / counted.messages
    auto = dataclasses.replace(sample, place=dataclasses.replace(place, scheme="auto"))
    assert cells_of.of([auto])[0].overhead is None


# ---------------------------------------------------------------- long maps


def test_an_interrupted_map_goes_on_where_it_was(tmp_path, monkeypatch):
    state = tmp_path / "map.jsonl"
    two = dataclasses.replace(TINY, rounds=2)
    whole = grid.run(two, lambda _: None, state)
    lines = state.read_text().splitlines()
    assert len(lines) == 4
    state.write_text("\n".join([*lines[:2], lines[2][:30]]))  # ended while it wrote
    simulated = []
    real = grid.simulate
    monkeypatch.setattr(grid, "simulate", lambda *of: simulated.append(of) or real(*of))
    assert grid.run(two, lambda _: None, state) == whole
    assert [seed for _, _, seed in simulated] == [2, 2]
    assert grid.run(two, lambda _: None, state) == whole
    assert len(simulated) == 2


def test_rounds_are_added_up():
    samples = grid.run(dataclasses.replace(TINY, rounds=3), lambda _: None)
    one = cells_of.of(samples[:2])[0]
    three = cells_of.of(samples)[0]
    assert three.messages == 3 * one.messages
    assert three.mean_ns == pytest.approx(sum(s.sum_ns for s in samples[::2]) / three.messages)


@pytest.mark.parametrize("text", ["{}\n{}\n", "no json\nat all\n", '{"place": 1}\n{}\n'])
def test_a_file_that_is_no_state_is_refused(tmp_path, text):
    state = tmp_path / "other.txt"
    state.write_text(text)
    with pytest.raises(UserError, match=r"other\.txt:1: no cell"):
        grid.run(TINY, lambda _: None, state)
    assert state.read_text() == text


# ---------------------------------------------------------------- p99.9


@pytest.mark.parametrize(
    ("messages", "beyond", "from_tail", "agrees"),
    [
        (10_000, 10, 10, True),
        (10_000, 25, 25, False),  # the simulation's tail is longer
        (10_000, 1, 1, False),  # and shorter
        (1000, 0, 0, True),
        (10, 0, 0, True),
        (10, 2, 2, False),
        (2, 0, 0, True),  # too few to tell
    ],
)
def test_a_quantile_lies_between_order_statistics(messages, beyond, from_tail, agrees):
    assert cells_of.within_tail(messages, beyond, from_tail, 0.001, 0.001) is agrees


def test_of_a_certain_time_all_messages_are_in_the_tail():
    assert cells_of.within_tail(100, 0, 100, 0.0, 1.0)
    assert not cells_of.within_tail(100, 1, 100, 0.0, 1.0)
    assert not cells_of.within_tail(100, 0, 99, 0.0, 1.0)
