# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results explain --cost`, on the command line, and its section of a page."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab import units
from softroce_lab.cli.app import app
from softroce_lab.cli.results import cost
from softroce_lab.errors import ExitCode
from softroce_lab.results.blame import words
from softroce_lab.results.blame.charges import Blame, Charge
from softroce_lab.results.recorded import Recorded
from tests.results.made import ring, run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return str(ring(tmp_path_factory.mktemp("blame"), "seeds=1", transports=("irn", "rc")))


def lab(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def document(made):
    found = lab("results", "explain", "--cost", made, "--runs", "10", "--json", "-q")
    assert found.exit_code == 0, found.stderr
    return json.loads(found.output)


def test_one_document(document, made):
    assert [each["run"] for each in document["runs"]] == ["irn/1", "rc/1"]
    for each in document["runs"]:
        charged = sum(charge["end_ns"] for charge in each["charges"])
        assert charged + each["rest_ns"] == each["cost_ns"]
        assert each["with_all_ns"] - each["with_none_ns"] == each["cost_ns"] > 0
        assert sum(each["critical_path"]["shares_ns"].values()) == each["with_all_ns"]
    manifest = json.loads(lab("results", "show", made, "--json").output)
    known = {f"{run['transport']}/1": run["makespan_ns"] for run in manifest["runs"]}
    assert {each["run"]: each["with_all_ns"] for each in document["runs"]} == known


def test_undo_repeats_a_charge(document, made):
    def undone(losses):
        line = ("results", "explain", "--cost", made, "--run", "rc/1", "--undo", losses, "--json")
        return json.loads(lab(*line).output)["runs"][0]

    rc = document["runs"][1]
    charge = rc["charges"][-1]
    again = undone(",".join(map(str, charge["undone"])))
    assert again["left_ns"] == charge["left_ns"]
    assert again["undone"] == sorted(charge["undone"])
    assert undone("all")["left_ns"] == rc["with_none_ns"]
    printed = lab("results", "explain", "--cost", made, "--run", "rc/1", "--undo", "1-2,3").output
    assert f"without 3 of {rc['losses']} losses," in printed


def test_a_step_is_measured_from_the_start_of_the_run(made):
    options = ("results", "explain", "--cost", made, "--run", "irn/1", "--step", "2", "-q")
    printed = lab(*options, "--runs", "6").output
    (known,) = json.loads(lab(*options, "--runs", "6", "--json").output)["runs"]
    ended, without = (words.time(known[each]) for each in ("with_all_ns", "with_none_ns"))
    losses = f"{known['losses']} losses by rules"
    assert printed.splitlines()[0] == (
        f"irn/1: step 2 ended {ended} after the start of the run with {losses}, "
        f"and {without} after it without any."
    )
    assert "charge  " in printed
    assert "all add up." in printed
    assert any(line.rstrip().endswith(", all") for line in printed.splitlines())
    undone = lab(*options, "--undo", "all").output
    assert undone.startswith(f"irn/1: step 2 ends {without} after the start of the run without ")


@pytest.mark.parametrize(
    ("charges", "losses", "sentence"),
    [
        (
            (80_000, -68_000), 9,
            "1 of 9 losses, one by one, cost 80 us, groups and all others -73 us: together 7 us.",
        ),
        ((80_000, 20_000), 2, "2 of 2 losses, one by one, cost 100 us: together 100 us."),
        ((-1_000,), 3, None),
    ],
)  # fmt: skip
def test_charges_and_the_others_add_up_in_words(charges, losses, sentence):
    """Losses that are left cost 5 us less than nothing."""
    charged = [Charge((at,), 0, 0, 0, end_ns, 0) for at, end_ns in enumerate(charges)]
    rest, rest_ns = losses - len(charges), -5_000 * (losses > len(charges))
    with_all_ns = 100_000 + sum(charges) + rest_ns
    found = Blame(losses, with_all_ns, 100_000, charged, rest, rest_ns, 9, None, whole=True)
    assert list(words._singles(found)) == ([] if sentence is None else [sentence])


def test_drops_that_stay_are_counted(tmp_path):
    """Of full queues: they are no losses of rules."""
    narrow = "topology={generator: {kind: star, hosts: 4, access: {rate: 10Gbit, limit: 64KiB}}}"
    loss = "faults=[{name: l, links: 'h*<->*', loss: random 1%}]"
    workload = "workload={kind: incast, bytes: 512KiB}"
    directory = run("incast", tmp_path, narrow, loss, workload, "seeds=[1]", transports=("irn",))
    [row] = Recorded(directory).runs
    assert row["queue_drops"] > 0
    lines = lab("results", "explain", "--cost", directory, "--runs", "4", "-q").output.splitlines()
    assert f" with {row['injected_drops'] - row['queue_drops']} loss" in lines[0]
    dropped = units.format_count(row["queue_drops"], "more packet")
    assert lines[1].endswith(f"dropped {dropped}: these losses stay.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--undo", "x"), "'x' is no loss's number"),
        (("--undo", "0"), "there is no loss 0"),
        (("--undo", "5-4"), "there is no loss 5-4"),
        (("--undo", "1-999999"), "losses are numbered 1 to "),
        (("--step", "99"), "there is no step 99"),
        (("--run", "tcp/1"), "has no run 'tcp/1'"),
    ],
)
def test_mistakes(made, arguments, words):
    found = lab("results", "explain", "--cost", made, *arguments)
    assert found.exit_code == ExitCode.USAGE
    assert words in found.stderr


def test_the_section_of_a_page(made, tmp_path, monkeypatch):
    monkeypatch.setattr("softroce_lab.cli.results.report.USUAL_RUNS", 4)
    page = tmp_path / "page.html"
    found = lab("results", "report", made, "--cost", "-o", page, "-q")
    assert (found.exit_code, found.stderr) == (0, "")
    text = page.read_text()
    assert '<section id="blame"' in text
    assert "Losses of rc/1 by what they cost" in text


def test_an_interrupt_is_a_line(made, monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cost, "searched", pressed)
    found = lab("results", "explain", "--cost", made)
    assert found.exit_code == ExitCode.INTERRUPTED
    assert "interrupted; its charges are known at the end only" in found.stderr
