# SPDX-License-Identifier: GPL-2.0-or-later
"""The readable table of a sweep."""

import pytest

from softroce_lab.sweep import table


@pytest.mark.parametrize(
    ("times_us", "median"), [([10], "10.000"), ([10, 16], "13.000"), ([40, 10, 16, 12], "14.000")]
)
def test_a_median_of_an_even_number_is_the_middle_of_two(times_us, median):
    """As in every table of a run (docs/results.md)."""
    rows = [
        {"depth": 1, "transport": "rc", "seed": seed, "verdict": "passed", "measured": 100,
         "fct_p50_ns": 1000 * time_us, "fct_p99_ns": 1000 * time_us}
        for seed, time_us in enumerate(times_us, start=1)
    ]  # fmt: skip
    (section,) = table.sections(["depth"], rows)
    cells = [cell.strip() for cell in section.splitlines()[-1].strip("|").split("|")]
    assert cells[:5] == ["1", "rc", "passed", median, median]
