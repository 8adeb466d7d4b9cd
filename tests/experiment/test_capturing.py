# SPDX-License-Identifier: GPL-2.0-or-later
"""What `--capture` means; tests/cli/test_capture.py and test_demo.py take captures."""

import pytest
import typer
from typer.testing import CliRunner

from softroce_lab import topology
from softroce_lab.cli.experiment_options import Captured, WithCapture
from softroce_lab.errors import UserError
from softroce_lab.experiment import capturing
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.faults import live, resolve
from softroce_lab.telemetry.capture_figures import Figures, InterfaceFigures

PLAN = topology.load("leaf-spine")
LOSS = live.parse_impairments(["loss", "1%"])
DELAY = live.parse_impairments(["delay", "1ms"])
ENDS = ["h1->leaf1", "leaf1->h1", "h3->leaf2", "leaf2->h3"]


def names(*patterns):
    return list(Wanted(patterns).links(PLAN, ("h1", "h3")).values())


def test_ends_take_along_the_links_whose_rules_lose_packets():
    lossy = live.set_on(PLAN, resolve.links_of(PLAN, "leaf1->spine2"), LOSS)
    slow = live.set_on(lossy, resolve.links_of(lossy, "leaf1->spine1"), DELAY)
    found = Wanted(("ends",)).links(slow, ("h1", "h3"))
    assert list(found) == sorted(found)
    assert sorted(found.values()) == sorted([*ENDS, "leaf1->spine2"])
    assert list(Wanted(("h1->leaf1",)).links(slow, ()).values()) == ["h1->leaf1"]


def test_a_file_that_cannot_be_written(tmp_path):
    with (
        pytest.raises(UserError, match=r"cannot write .*: No such file") as caught,
        capturing.opened(tmp_path / "none" / "such"),
    ):
        pass
    assert "-w" not in caught.value.hint.split()


def test_what_is_no_link_or_no_snap_length():
    with pytest.raises(UserError, match="matches no link"):
        names("h1->h3")
    with pytest.raises(UserError, match="snap length of 4097"):
        Wanted(("h1",), 4097).links(PLAN, ())


def test_a_summary():
    figures = Figures((InterfaceFigures("a->b", 3000, 5), InterfaceFigures("b->a", 2, 0)))
    assert capturing.summary(figures.document()) == "2,997 packets captured, 5 missed"
    ended = Figures((InterfaceFigures("a->b", 7, 5),), 28)
    why = "; it ended early: No space left on device"
    assert capturing.summary(ended.document()) == f"2 packets captured, 5 missed{why}"


@pytest.mark.parametrize(
    ("arguments", "links"),
    [
        ([], None),
        (["--capture"], ["ends"]),
        (["--capture", "--other"], ["ends"]),
        (["--capture", "h1", "--capture"], ["h1", "ends"]),
        (["--capture=a->b"], ["a->b"]),
        (["word", "--capture", "--capture", "h2"], ["ends", "h2"]),
    ],
)
def test_the_option_needs_no_value(arguments, links):
    app = typer.Typer()
    seen = []

    @app.command(cls=WithCapture)
    def run(word: str = typer.Argument(""), capture: Captured = None, other: bool = False) -> None:
        seen.append(capture)

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert seen == [links]
