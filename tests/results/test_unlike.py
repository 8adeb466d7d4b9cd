# SPDX-License-Identifier: GPL-2.0-or-later
"""Of directories of different experiments it is said in what they differ; of equal ones nothing."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from tests.results.made import run

SMALL = "workload={kind: incast, bytes: 8KiB}"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    return run("incast", folder, SMALL, "seeds=[1]", transports=("irn", "rc"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("payload=none",), None),
        (("workload.bytes=16KiB",), "incast: in workload.bytes"),
        (("workload={kind: scatter, bytes: 8KiB}",), "incast: in workload"),
        (("faults=[{name: l, links: 'h*<->*', loss: random 1%}]",), "incast: in faults"),
        (("topology={generator: {kind: star, hosts: 4}}",), "incast: in topology, faults"),
        (("name=other", "depth=2", "lb=spray"), "incast and other: in lb, depth"),
    ],
)
def test_what_differs_is_named(first, tmp_path, changes, words):
    second = run("incast", tmp_path, SMALL, "seeds=[1]", *changes, transports=("rc",))
    line = ["results", "compare", str(first), str(second)]
    notes = json.loads(CliRunner().invoke(app, [*line, "--json"]).output)["comparisons"][0]["notes"]
    assert notes == ([] if words is None else [f"the experiments differ, {words}"])
    printed = CliRunner().invoke(app, line).output
    assert all(f"\n  {note}\n" in printed for note in notes)
    assert ("the experiments" in printed) == bool(notes)
