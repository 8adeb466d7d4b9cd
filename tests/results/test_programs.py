# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of runs of programs: nothing is claimed of messages that the lab does not see."""

import dataclasses
import json
import re
from unittest import mock

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment import workload_table
from softroce_lab.experiment.figure_table import FIGURES, few_samples
from softroce_lab.results import comparison, perfetto
from softroce_lab.results.page import assemble
from softroce_lab.results.recorded import Recorded
from tests.results import programs_made
from tests.results.programs_made import TEXT, found, programs

LINES = [
    "rc/1 h2: ended by SIGKILL after 6.633 s because h1 failed, 5 RoCE packets",
    "rc/1 h1: ended with 0 after 1.5 s, 1,234 RoCE packets",
    "rc/1 h1 printed: the answer & more",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return programs(tmp_path_factory.mktemp("programs")).directory


def lab(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_figures_of_messages_are_empty_and_those_of_links_are_there():
    row = found().summary()
    assert {row.get(key) for key, each in FIGURES.items() if not each.of_programs} == {None}
    assert (row["injected_drops"], few_samples(row)) == (7, [])
    lines = workload_table.lines([row])[1]
    assert [tuple(line) for line in lines] == [("verdict", ["passed"]), ("injected drops", ["7"])]


def printed_by(median_ms, under):
    """The directory of six seeds whose programs printed about this."""

    def with_figures(transport, seed):
        run = found(transport, seed)
        return dataclasses.replace(run, printed={"median_ms": median_ms + seed, "loops": 7.0})

    text = TEXT + "seeds: 6\n"
    with mock.patch.multiple(programs_made, TEXT=text, found=with_figures):
        return programs(under).directory


def test_printed_figures_are_shown_and_compared(tmp_path):
    slow, quick = (printed_by(each, tmp_path / str(each)) for each in (20.0, 10.0))
    assert re.search(
        r"^median_ms +23.5 ms \[21 ms, 26 ms\]$", lab("results", "show", slow).stdout, re.M
    )
    compared = json.loads(lab("results", "compare", slow, quick, "--json").stdout)
    [line] = compared["comparisons"][0]["figures"]
    assert (line["figure"], line["verdict"]) == ("printed.median_ms", "better")
    assert (line["first"], line["second"]) == (23.5, 13.5)


def test_printed_figures_are_drawn_with_a_panel_each(tmp_path):
    directory = printed_by(20.0, tmp_path)
    done = lab("results", "plot", directory, "--kind", "printed", "-o", tmp_path / "a.svg")
    assert done.exit_code == 0, done.output
    drawn = (tmp_path / "a.svg").read_text()
    for word in ("median_ms", "loops", ">rc<", "of 6 seeds"):
        assert word in drawn, word


def test_without_printed_figures_there_is_nothing_to_draw(made, tmp_path):
    done = lab("results", "plot", made, "--kind", "printed", "-o", tmp_path / "a.svg")
    assert "no run that passed printed a figure" in str(done.exception) + done.stderr


def test_a_dry_run_names_the_commands(tmp_path):
    (tmp_path / "own.yaml").write_text(TEXT)
    printed = lab("run", tmp_path / "own.yaml", "--dry-run").stdout
    assert "programs: program, 2 programs\n" in printed
    assert "  h2 runs: serve --all\n  h1 runs (after h2): ask <h2>\n" in printed
    document = json.loads(lab("run", tmp_path / "own.yaml", "--dry-run", "--json").stdout)
    assert document["messages"] is None


def test_they_are_shown(made):
    printed = lab("results", "show", made).stdout
    assert "".join(f"  {line}\n" for line in LINES) in printed
    assert "messages" not in printed
    assert "goodput" not in printed


@pytest.mark.parametrize("options", [(), ("--worst", 3), ("--json",), ("--run", "rc/1")])
def test_they_have_no_story_if_nothing_was_recorded(made, options):
    done = lab("results", "explain", made, *options)
    assert done.exit_code == 2
    what = "rc/1: what its programs' RNICs did about losses was not recorded"
    assert what in str(done.exception) + done.stderr


def test_they_have_no_trace(made, tmp_path):
    recorded = Recorded(made)
    with pytest.raises(UserError, match="rc/1 has no messages: programs do not show"):
        perfetto.write(tmp_path / "trace.json", recorded, recorded.runs[0])
    assert not list(tmp_path.iterdir())


def test_there_is_nothing_to_compare(made):
    with pytest.raises(UserError, match="have no figure in common") as caught:
        comparison.compared(Recorded(made), Recorded(made))
    assert "programs do not show their messages" in caught.value.hint


def test_the_page_has_the_programs_and_claims_nothing_of_messages(made):
    text = assemble.page(Recorded(made))
    body = text[text.index("<main") :]
    for there in (
        'id="programs"', "ask &lt;h2&gt;", "ended by SIGKILL after 6.633 s because h1 failed",
        "<pre>first\nthe answer &amp; more\n</pre>", "The messages of programs are not seen",
        "not seen", "h1-&gt;s1",
    ):  # fmt: skip
        assert there in body, there
    for wrong in ("No packet was lost", "0 of 0", "no bytes were carried", 'id="completion"'):
        assert wrong not in body, wrong


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "--cost"),
        *(("plot", "--kind", kind) for kind in ("cdf", "fct", "recovery", "timeline")),
    ],
)
def test_no_command_advises_the_virtual_clock(made, tmp_path, arguments):
    verb, *options = arguments
    output = ("-o", tmp_path / "a.svg") if verb == "plot" else ()
    done = lab("results", verb, made, *options, *output)
    advice = done.stderr + str(getattr(done.exception, "hint", ""))
    assert done.exit_code == 2
    assert "rc/1 has no messages: programs do not show" in str(done.exception) + done.stderr
    assert "virtual" not in advice
