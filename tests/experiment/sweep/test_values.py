# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranges of a sweep: what lies in them, exactly, and what is no range."""

from fractions import Fraction

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.sweep.values import RangeSpec, label, quantity
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import validate


def spans(text):
    return validate(RangeSpec, yaml_source.parse(text, "s.yaml")).values()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{from: 1, to: 4, step: 1}", [1, 2, 3, 4]),
        ("{from: 4, to: 4, step: 2}", [4]),
        ("{from: 64KiB, to: 1MiB, times: 4}", ["64KiB", "256KiB", "1MiB"]),
        ("{from: 1us, to: 1ms, times: 10}", ["1us", "10us", "100us", "1ms"]),
        ("{from: 0%, to: 0.3%, step: 0.1%}", ["0%", "0.1%", "0.2%", "0.3%"]),
        ("{from: 10Gbit, to: 40Gbit, times: 2}", ["10Gbit", "20Gbit", "40Gbit"]),
        ("{from: 1us, to: 3us, step: 500ns}", ["1us", "1.5us", "2us", "2.5us", "3us"]),
        ("{from: 0ms, to: 1s, step: 500ms}", ["0ms", "500ms", "1s"]),
        ("{from: 1000MB, to: 2GB, times: 2}", ["1GB", "2GB"]),
        ("{from: 1, to: 2, step: 0.5}", [1, 1.5, 2]),
        ("{from: -2, to: 0, step: 2}", [-2, 0]),
        ("{from: 1, to: 5, times: 1e308}", [1]),
        (f"{{from: 1, to: 5, times: {'9' * 60}}}", [1]),
        ("{from: 0e-999999999, to: 2, step: 2}", [0, 2]),
    ],
)
def test_what_lies_in_a_range(text, values):
    assert spans(text) == values


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{from: 1, to: 4}", "s.yaml:1:2: a range takes either a 'step' or a factor, 'times'"),
        ("{from: 1us, to: 4KiB, times: 2}", "s.yaml:1:13: 4KiB and 1us are not of one kind"),
        ("{from: 1%, to: 4, step: 1%}", "s.yaml:1:12: 4 and 1% are not of one kind"),
        ("{from: 1, to: 4, times: 1}", "s.yaml:1:18: a factor is above 1"),
        ("{from: 0us, to: 1s, times: 10}", "s.yaml:1:21: a factor is above 1, and the first"),
        ("{from: 1, to: 4, step: 0}", "s.yaml:1:18: a step is above 0"),
        ("{from: 4, to: 1, step: 1}", "s.yaml:1:11: 1 is below 4"),
        ("{from: soon, to: 1s, step: 1s}", "s.yaml:1:8: expected a number, or a quantity"),
        ("{from: 1s, to: 2s, step: }", "s.yaml:1:20: 'step' has no value"),
        ("{from: 1, to: 9, steps: 1}", "s.yaml:1:18: unknown key 'steps'"),
        ("{from: 1, to: 4, times: 1e400}", "s.yaml:1:25: a factor is a number"),
        ("{from: 1, to: 4, times: .nan}", "s.yaml:1:25: a factor is a number"),
        ("{from: 1, to: 4, times: [2]}", "s.yaml:1:25: a factor is a number"),
        ("{from: 1, to: 4, step: -1}", "s.yaml:1:18: a step is above 0"),
        ("{from: 1, to: 4, step: 1e-999999999}", "s.yaml:1:18: a step is above 0"),
        ("{from: 1s, to: 4s, step: 0s}", "s.yaml:1:20: a step is above 0"),
        ("{from: .nan, to: 4, step: 1}", "s.yaml:1:8: expected a number, or a quantity"),
        ("{from: 1, to: 1e999999999, step: 1}", "s.yaml:1:15: expected a number, or a quantity"),
        (f"{{from: 1, to: {'9' * 5000}, step: 1}}", "s.yaml:1:15: expected a number, or a"),
        (f"{{from: '{'.' * 500_000}1', to: 4, step: 1}}", "s.yaml:1:8: expected a number, or a"),
        ("{from: 1, to: 100000, step: 1}", "more than 10000 values"),
    ],
)
def test_what_is_no_range(text, complaint):
    with pytest.raises(UserError, match="^" + complaint.replace(".", r"\.").replace("(", r"\(")):
        spans(text)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (3, (3, "", "")),
        ("64KiB", (65536, "B", "KiB")),
        ("1.5 us", (1500, "ns", "us")),
        ("100Gbit", (10**11, "bit/s", "Gbit")),
        ("0.1 %", (Fraction(1, 1000), "", "%")),
        (True, None),
        ("random 1%", None),
        ("virtual", None),
        ("7 apples", None),
        ([1], None),
    ],
)
def test_quantities(data, found):
    assert quantity(data) == found


def test_labels_are_written_as_a_file_has_them():
    values = (True, None, 1.5, {"a": 1}, "1KiB")
    assert [label(value) for value in values] == ["true", "null", "1.5", '{"a": 1}', "1KiB"]
