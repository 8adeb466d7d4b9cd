# SPDX-License-Identifier: GPL-2.0-or-later
"""Of directories of different experiments it is said in what they differ; of equal ones nothing."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.results import unlike
from softroce_lab.results.recorded import Recorded
from tests.results.made import run

SMALL = "workload={kind: incast, bytes: 8KiB}"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    return run("incast", folder, SMALL, "seeds=[1]", transports=("irn", "rc"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((), None),
        (("seeds=[2, 3]", "payload=none"), None),
        (("workload.bytes=16KiB",), "incast: in workload.bytes"),
        (("workload={kind: scatter, bytes: 8KiB}",), "incast: in workload"),
        (("faults=[{name: l, links: 'h*<->*', loss: random 1%}]",), "incast: in faults"),
        (("topology={generator: {kind: star, hosts: 4}}",), "incast: in topology, faults"),
        (("name=other", "depth=2", "lb=spray"), "incast and other: in lb, depth"),
    ],
)
def test_what_differs_is_named(first, tmp_path, changes, words):
    second = run("incast", tmp_path, SMALL, "seeds=[1]", *changes, transports=("rc",))
    found = list(unlike.notes(Recorded(first), Recorded(second)))
    assert found == ([] if words is None else [f"the experiments differ, {words}"])


def test_the_command_says_so(first, tmp_path):
    second = run(
        "point-to-point", tmp_path, "seeds=[1]", "workload.bytes=64KiB", transports=("rc",)
    )
    arguments = ["results", "compare", str(first), str(second)]
    found = CliRunner().invoke(app, arguments)
    assert "  the experiments differ, incast and point-to-point: in " in found.output
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert document["comparisons"][0]["notes"][0].startswith("the experiments differ, ")
    again = CliRunner().invoke(app, ["results", "compare", str(first), str(first)])
    assert "the experiments" not in again.output
