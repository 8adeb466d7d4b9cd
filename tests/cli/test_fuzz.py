# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz`: what it is given instead of a case."""

import json
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.fuzz import draw as fuzz_draw
from softroce_lab.experiment.fuzz import operations
from softroce_lab.experiment.fuzz import pool as fuzz_pool
from softroce_lab.experiment.fuzz import seeds as fuzz
from softroce_lab.experiment.fuzz.failover import campaign
from softroce_lab.experiment.fuzz.failover import case as failover_case
from softroce_lab.experiment.fuzz.failover.draw import Drawn
from softroce_lab.experiment.fuzz.failover.rig import Rig
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from tests import own_policy

RC = Transport.named("rc")
PLAIN = """\
name: mine
topology: {generator: {kind: star, hosts: 2}}
transports: [rc]
workload: {kind: point-to-point, bytes: 1KiB}
seeds: 3
"""


def given(tmp_path, text):
    file = tmp_path / "case.yaml"
    file.write_text(text)
    return CliRunner().invoke(app, ["fuzz", "--case", str(file), "--transport", "rc", "--json"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (PLAIN, "this is no case of lab fuzz: it has no 'lb'"),
        (PLAIN + "lb: flow\ndepth: 2\n", "it has no 'faults'"),
        (
            PLAIN + "lb: flow\ndepth: 2\nfaults: [lost-tail]\n",
            "case.yaml:8:10: a case of lab fuzz has its faults written out",
        ),
        (PLAIN + "foo: 1\n", "case.yaml:6:1: unknown key 'foo'"),
        ("", "case.yaml: is empty"),
    ],
)
def test_a_file_that_is_no_case(tmp_path, text, complaint):
    result = given(tmp_path, text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_case_of_several_seeds_runs_with_the_first(tmp_path):
    case = fuzz_draw.draw(7) | {"seeds": 2}
    result = given(tmp_path, fuzz.text(case, RC))
    document = json.loads(result.stdout)
    assert (result.exit_code, document["seeds"], document["violations"]) == (0, 1, [])


def test_a_case_that_fails_is_shown_again_by_its_file(tmp_path, monkeypatch):
    """Not by the seed that it happens to have, whose experiment is another one."""
    broken = "fails: on purpose"
    monkeypatch.setattr(fuzz.invariants, "violations", lambda *_, **__: [broken])
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "case.yaml"
    file.write_text(fuzz.text(fuzz_draw.draw(7), RC))
    line = ["fuzz", "--case", "case.yaml", "--transport", "rc", "--json", "--no-shrink"]
    result = CliRunner().invoke(app, [*line, "-o", "."])
    (found,) = json.loads(result.stdout)["violations"]
    assert (result.exit_code, found["what"]) == (1, broken)
    assert found["replay"] == "lab fuzz --transport rc --case case.yaml"
    assert json.loads(result.stdout)["files"] == ["case-small-rc.yaml"]
    assert file.read_text() == fuzz.text(fuzz_draw.draw(7), RC)


@pytest.mark.parametrize("options", [("--seeds", "2"), ("--seed", "7"), ("--duration", "1min")])
def test_a_case_has_its_seed(tmp_path, options):
    file = tmp_path / "case.yaml"
    file.write_text(fuzz.text(fuzz_draw.draw(7), RC))
    result = CliRunner().invoke(app, ["fuzz", "--case", str(file), *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no effect with --case" in result.stderr


@pytest.mark.parametrize("folder", ["/dev/null/x/y", "/dev/null"])
def test_a_folder_that_takes_no_cases_is_refused_before(folder):
    result = CliRunner().invoke(app, ["fuzz", "--seeds", "1", "-o", folder])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot write into {folder}\n  hint: -o DIR" in result.stderr


def test_there_are_no_more_processes_than_seeds(monkeypatch):
    begun = []
    real = fuzz_pool._Worker
    monkeypatch.setattr(fuzz_pool, "_Worker", lambda names: begun.append(1) or real(names))
    assert [seen.seed for seen in fuzz.in_processes([5, 6], (RC,), 900)] == [5, 6]
    assert len(begun) == 2


def test_progress_without_a_terminal_is_told_in_lines():
    arguments = ["fuzz", "--seeds", "2", "--jobs", "1", "--transport", "rc"]
    reported = CliRunner().invoke(app, arguments)
    assert "lab: 2 of 2 seeds" in reported.stderr
    assert CliRunner().invoke(app, [*arguments, "--quiet"]).stderr == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--seed", str(2**64 - 1), "--seeds", "2"), "--seeds 2: from 18446744073709551615 on"),
        (("--seed", str(2**64)), "--seed 18446744073709551616 is no seed"),
        (("--seed", str(2**70), "--duration", "1min"), "is no seed"),
    ],
)
def test_seeds_beyond_the_last_are_refused(options, complaint):
    result = CliRunner().invoke(app, ["fuzz", *options, "--transport", "rc"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert str(2**64 - 1) in result.stderr


@pytest.mark.parametrize("options", [("--seeds", "1"), (), ("--duration", "1min")])
def test_the_last_seed_is_one(options):
    """Also where no number is given, or as many as time allows."""
    line = ["fuzz", "--seed", str(2**64 - 1), *options, "--transport", "rc", "--json", "-j", "1"]
    result = CliRunner().invoke(app, line)
    assert json.loads(result.stdout)["seeds"] == 1, result.output


def failovers(*options):
    return CliRunner().invoke(app, ["fuzz", "failover", "-j", "1", *options])


def test_failovers():
    result = failovers("--seed", "1", "--seeds", "4", "--json", "-q")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["violations"], document["seeds"]) == (0, [], 4)
    assert document["moves"] > 0
    assert document["coverage"]["failover"] > 0
    shown = failovers("--seeds", "2")
    assert shown.stdout.startswith("2 seeds, ")
    assert "  failback" in shown.stdout
    assert "lab: 2 of 2 seeds" in shown.stderr


def test_a_violation_of_a_failover_is_shown_again_by_its_seed(monkeypatch):
    broken = campaign.Seen(7, None, "BrokenError: on purpose")
    monkeypatch.setattr(fuzz_pool, "over", lambda *_: iter([broken]))
    result = failovers("--seed", "7", "--seeds", "1", "-q")
    assert result.exit_code == 1
    assert "seed 7: BrokenError: on purpose\n  again: lab fuzz failover --seed 7 --seeds 1" in (
        result.stdout
    )


def test_a_transport_has_no_effect_on_failovers():
    result = failovers("--transport", "rc")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no effect with failover" in result.stderr


def test_a_failover_is_written_as_it_was_drawn():
    for seed in (1, 5, 203, 99_999):
        drawn = Drawn.of_seed(seed)
        assert failover_case.of(yaml_source.parse(failover_case.text(drawn))) == drawn


@pytest.fixture
def lost_backups(monkeypatch):
    """What fails: the backup's data queue pair is gone when its connection falls back to it."""
    prepared = Rig.__init__

    def without(self, **options):
        prepared(self, **options)
        for end in self.ends:
            end.contexts[1].endpoint.destroy_qp(end.qp.twin_qp_num)

    monkeypatch.setattr(Rig, "__init__", without)


def _requests(drawn):
    both = [*drawn.requests, *(each for _, later in drawn.later for each in later)]
    return sum(map(len, both))


@pytest.mark.parametrize("shrinks", [True, False])
def test_a_failover_that_fails_becomes_a_file_that_fails_alike(
    tmp_path, monkeypatch, lost_backups, shrinks
):
    monkeypatch.setattr(fuzz_pool, "over", lambda seeds, *_: map(campaign.run_seed, seeds))
    shrink = () if shrinks else ("--no-shrink",)
    options = ("-o", str(tmp_path / "kept"), *shrink, "--json", "-q")
    result = failovers("--seed", "203", "--seeds", "1", *options)
    document = json.loads(result.stdout)
    [broken] = document["violations"]
    assert document["files"] == [str(tmp_path / "kept" / "seed-203-failover.yaml")]
    [file] = document["files"]
    text = Path(file).read_text()
    assert text.splitlines()[1] == f"# lab fuzz failover --case {file}"
    drawn = failover_case.of(yaml_source.parse(text))
    if shrinks:
        assert _requests(drawn) < _requests(Drawn.of_seed(203)) // 3
    else:
        assert drawn == Drawn.of_seed(203)
        assert text.splitlines()[0] == f"# {broken['what']}"
    line = ["fuzz", "failover", "--case", file]
    again = CliRunner().invoke(app, [*line, "--no-shrink", "-o", str(tmp_path), "-q"])
    assert again.exit_code == 1
    assert f"again: lab fuzz failover --case {file}" in again.stdout
    assert (tmp_path / "seed-203-failover-small-failover.yaml").exists()
    monkeypatch.undo()
    assert CliRunner().invoke(app, [*line, "-q"]).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "old_packets",
            "old_pakets",
            "unknown key 'old_pakets'\n  hint: did you mean 'old_packets'",
        ),
        ("SEND_WITH_IMM 8", "SEND_WIT_IMM 8", "no request is called 'SEND_WIT_IMM'"),
        ("SEND_WITH_IMM 8", "SEND_WITH_IMM 1025", "expected its bytes, at most 1024"),
        ("cable: up", "cable: ups", "'ups' is no state of a cable\n  hint: down, up"),
    ],
)
def test_a_file_that_is_no_failover(tmp_path, old, new, complaint):
    file = tmp_path / "case.yaml"
    file.write_text(failover_case.text(Drawn.of_seed(1)).replace(old, new, 1))
    line = ["fuzz", "failover", "--case", str(file), "-o", str(tmp_path)]
    result = CliRunner().invoke(app, line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}:" in result.stderr
    assert complaint in result.stderr


OWN = own_policy.named("Own")


def test_a_transport_of_ones_own(tmp_path, monkeypatch):
    """In processes of the pool; the command that shows a failure again names the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    command = ["fuzz", "--seeds", "2", "-j", "2", "--transport", "own.py:Own", "--json", "-q"]
    result = CliRunner().invoke(app, command)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["violations"], document["runs"]) == (0, [], 2)
    (tmp_path / "own.py").write_text(own_policy.named("Own", "    on_sent = None\n"))
    result = CliRunner().invoke(app, [*command, "--no-shrink"])
    (violation, _) = json.loads(result.stdout)["violations"]
    assert result.exit_code == 1
    assert violation["what"].startswith(f"crashes: {tmp_path}/own.py")
    assert violation["replay"].endswith(f"--transport {tmp_path}/own.py:Own")
    (transport,) = yaml_source.parse(violation["case"]).data["transports"]
    assert transport["policy"] == f"{tmp_path}/own.py:Own"


def test_a_transport_that_needs_two_rails_is_refused():
    result = CliRunner().invoke(app, ["fuzz", "--transport", "shift", "--seeds", "1"])
    assert result.exit_code == 2
    assert "shift needs hosts with 2 rails" in result.stderr


def run_operations(*options):
    return CliRunner().invoke(app, ["fuzz", "operations", "-j", "1", *options])


def test_operations():
    result = run_operations("--seed", "1", "--seeds", "20", "--json", "-q")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["violations"], document["seeds"]) == (0, [], 20)
    assert document["coverage"]["fences"] > 0
    shown = run_operations("--seeds", "2")
    assert shown.stdout.startswith("2 seeds, 2 runs, 0 violations")
    assert "  shared receives" in shown.stdout


def test_a_transport_that_carries_no_operations_is_refused():
    result = run_operations("--transport", "shift")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "shift does not carry the operations of queue pairs" in result.stderr


run_trial = operations.Trial.run


def broken_by_post_7(trial, transport, **options):
    """As `Trial.run`, but a seed breaks a rule as long as it has its post 7."""
    outcome = run_trial(trial, transport, **options)
    violations = ["READ: on purpose"] if 7 in outcome.posts else []
    return types.SimpleNamespace(
        violations=violations, met=outcome.met, posts=outcome.posts, story=outcome.story
    )


def test_operations_that_break_a_rule_become_a_file_that_breaks_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(operations.Trial, "run", broken_by_post_7)
    monkeypatch.setattr(
        fuzz_pool, "over", lambda seeds, work, _: (work.run(seed) for seed in seeds)
    )
    result = run_operations("--seed", "11", "--seeds", "1", "-o", str(tmp_path), "--json", "-q")
    document = json.loads(result.stdout)
    [broken] = document["violations"]
    assert (result.exit_code, broken["what"]) == (1, "READ: on purpose")
    assert broken["replay"] == "lab fuzz operations --transport rc --seed 11 --seeds 1"
    [file] = document["files"]
    assert file == str(tmp_path / "seed-11-operations-rc.yaml")
    text = Path(file).read_text()
    assert text.splitlines()[1] == f"# lab fuzz operations --transport rc --case {file}"
    assert text.count(" post of ") == 1
    line = ["fuzz", "operations", "--case", file, "--no-shrink", "-o", str(tmp_path), "-q"]
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 1
    assert f"again: lab fuzz operations --transport rc --case {file}" in again.stdout
    monkeypatch.undo()
    assert CliRunner().invoke(app, ["fuzz", "operations", "--case", file, "-q"]).exit_code == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("operation_seed: 1\nwithout_posts: []\n", "without_disturbances"),
        (
            "operation_seed: 1\nwithout_posts: []\nwithout_disturbances: [lost]\n",
            "no disturbance is called 'lost'\n  hint: did you mean 'loss'",
        ),
        ("operation_seed: -1\nwithout_posts: []\nwithout_disturbances: []\n", "case.yaml:1:"),
    ],
)
def test_a_file_that_is_no_case_of_operations(tmp_path, text, complaint):
    file = tmp_path / "case.yaml"
    file.write_text(text)
    result = run_operations_of(file, tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}" in result.stderr
    assert complaint in result.stderr


def run_operations_of(file, folder):
    return CliRunner().invoke(app, ["fuzz", "operations", "--case", str(file), "-o", str(folder)])
