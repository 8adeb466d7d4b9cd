# SPDX-License-Identifier: GPL-2.0-or-later
"""The readable table of a sweep."""

import pytest

from softroce_lab.experiment.sweep import table
from softroce_lab.statistics import FOOTNOTE


def row(seed=1, time_us=10, **values):
    """Of a run that passed, with as many messages as a p99 needs."""
    return {
        "depth": 1, "transport": "rc", "seed": seed, "verdict": "passed", "measured": 100,
        "fct_p50_ns": 1000 * time_us, "fct_p99_ns": 1000 * time_us, **values,
    }  # fmt: skip


def line(rows):
    """The table's only line: its cells by their columns."""
    (section,) = table.sections(["depth"], rows)
    heads, _, cells = ([cell.strip() for cell in each.strip("|").split("|")]
                       for each in section.splitlines())  # fmt: skip
    return dict(zip(heads, cells, strict=True))


@pytest.mark.parametrize(
    ("times_us", "median"), [([10], "10.000"), ([10, 16], "13.000"), ([40, 10, 16, 12], "14.000")]
)
def test_a_median_of_an_even_number_is_the_middle_of_two(times_us, median):
    """As in every table of a run (docs/howto/explain.md)."""
    found = line([row(seed, time_us) for seed, time_us in enumerate(times_us, start=1)])
    assert list(found.values())[:5] == ["1", "rc", "passed", median, median]


def test_what_programs_printed_has_a_column():
    found = line([row(seed, **{"printed.median_ms": 10.0 * seed}) for seed in (1, 2, 4)])
    assert found["median_ms"] == "20.000"


def of_messages(count):
    return {"measured": count}


def of_repairs(count):
    time_ns = 10_000 if count else None
    return {"repairs": count, "repair_p50_ns": time_ns, "repair_p99_ns": time_ns}


def of_flows(count):
    ratio = 10 if count else None
    classes = [{"size_class": "<=1MB", "n": count, "p50": ratio, "p99": ratio}]
    return {"slowdown": classes, "slowdown_p50": ratio, "slowdown_p99": ratio}


@pytest.mark.parametrize(
    ("title", "values"),
    [
        ("p99 [us]", of_messages),
        ("p99 repair [us]", of_repairs),
        ("p99 <=1MB", of_flows),
        ("p99 slowdown", of_flows),
    ],
)
def test_one_run_with_too_few_samples_marks_the_p99_of_all(title, values):
    for few in (0, 1, 2):
        counts = [99 if few == place else 5000 for place in range(3)]
        assert line([row(**values(count)) for count in counts])[title] == "10.000*"
    assert line([row(**values(count)) for count in (100, 5000)])[title] == "10.000"


@pytest.mark.parametrize(("count", "few"), [(0, 0), (1, 1), (99, 1), (100, 0)])
@pytest.mark.parametrize("values", [of_repairs, of_flows])
def test_the_mark_is_explained_where_repairs_or_flows_of_one_run_alone_are_few(values, count, few):
    notes = table.samples([row(**values(5000)), row(**values(count))])
    assert notes == ["p50 and p99 are of 100 messages a run.", *[f"{FOOTNOTE}."] * few]
