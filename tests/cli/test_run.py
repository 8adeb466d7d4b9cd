# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run`: the command line, on the virtual clock."""

import json
import os
import re
import secrets
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.telemetry import fidelity
from softroce_lab.transports import registry
from tests import own_policy

FILE = """\
name: mine
topology: {generator: {kind: star, hosts: 2, access: {delay: 1us}}}
transports: [csa_ud, {name: csa_ud, options: {parity: 0}}]
workload: {kind: point-to-point, bytes: 256KiB}
"""


@pytest.fixture
def line(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["run", *arguments])


def test_a_run(line, tmp_path):
    options = ("--seed", "3", "--seed", "9", "--name", "other", "--require-faithful")
    result = line("mine", *options, "-o", "out")
    assert result.exit_code == 0, result.stderr
    text = result.stdout.splitlines()
    assert text[0].split() == ["transport", "csa_ud", "csa_ud+parity=0"]
    assert text[1].split() == ["verdict", "passed", "passed"]
    assert text[-1].startswith("out/")
    manifest = json.loads((tmp_path / "out" / "latest" / "manifest.json").read_text())
    assert manifest["name"] == "other"
    assert "lab: csa_ud+parity=0, seed 9: 1 message" in result.stderr


def test_json(line):
    result = line("mine", "--json", "--quiet", "--transport", "rc", "--set", "payload=verify")
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert (document["verdict"], document["clock"]) == ("passed", "virtual")
    assert [(run["transport"], run["verified"]) for run in document["runs"]] == [("rc", True)]


def test_faults_replace_those_of_the_file(line):
    def named(*arguments):
        result = line("ring-all-reduce", "--dry-run", "--json", *arguments)
        return json.loads(result.stdout)["faults"]

    assert named() == ["spine-loss-1pct"]
    assert named("--faults", "none") == []
    assert named("--faults", "grey-link", "--faults", "lost-tail") == ["grey-link", "lost-tail"]
    refused = line("mine", "--faults", "nosuch")
    assert refused.exit_code == 2
    assert "no fault profile called 'nosuch'" in refused.stderr


@pytest.mark.parametrize(
    ("changed", "option", "by"),
    [
        ("seeds=3", ("--seed", "1"), "--seed"),
        ("transports.0.window=5", ("--transport", "rc"), "--transport"),
        ("clock=real", ("--clock", "virtual"), "--clock"),
        ("name=x", ("--name", "y"), "--name"),
        ("workload.bytes=1MiB", ("--set", "workload.bytes=2MiB"), "--set workload.bytes behind it"),
        ("workload.bytes=1MiB", ("--set", "workload={kind: scatter}"), "--set workload behind it"),
    ],
)
def test_a_change_that_something_later_replaces_is_refused(changed, option, by, line):
    result = line("mine", "--set", changed, *option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--set {changed.partition('=')[0]}: no effect with {by}" in result.stderr


def test_a_change_may_be_changed_in_a_part(line):
    whole = "workload={kind: point-to-point, bytes: 64KiB}"
    result = line("mine", "--dry-run", "--set", whole, "--set", "workload.message=16KiB")
    assert result.stdout.startswith("mine: point-to-point, 4 messages\n")


def test_a_failed_verdict_is_the_exit_code(line):
    result = line("mine", "--set", "deadline=1us", "-q")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "deadline of 1 us" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "no experiment or sweep is named\n  hint: a file, or a name: lab run --list"),
        (("nine",), "no experiment or sweep called 'nine'"),
        (("reach", "--seed", "1"), "--seed: no effect with a sweep\n  hint: --only transport=NAME"),
        (("mine", "--table", "x"), "--table: no effect with an experiment"),
        (("mine", "--goal", "x"), "--goal: no effect without --plan"),
        (("dumbbell",), "no experiment or sweep called 'dumbbell'\n  hint: lab up dumbbell"),
        (("incast", "-o", "b\udcff"), r"'b\udcff' is not in UTF-8"),
        (("mine", "--transport", "csa"), "unknown transport 'csa'\n  hint: did you mean 'csa_ud'"),
        (("--list", "--transport", "nosuch"), "unknown transport 'nosuch'"),
        (("mine", "--set", "workload.bites=1kB"), "workload.bites: unknown key 'bites'"),
        (("mine", "--set", "deadline=soon"), "deadline: 'soon' is not a time"),
        (("mine", "--set", "faults=[x]"), "faults: no fault profile called 'x'"),
        (("mine", "--capture", "h1->h2"), "'h1->h2' matches no link"),
        (("mine", "--capture", "--snap", "4097"), "a snap length of 4097"),
        (("mine", "--capture", "--snap", "61"), "a snap length of 61"),
        (("mine", "--junit", "no/x"), "cannot write no/x: there is no folder no\n  hint: --junit"),
        (("mine", "-o", "mine.yaml"), "no run directory can be made in mine.yaml: Not a directory"),
        (("missing.yaml",), "missing.yaml: cannot be read"),
    ],
)
def test_wrong_input(line, tmp_path, arguments, complaint):
    result = line(*arguments)
    assert result.exit_code == 2
    assert f"lab: {complaint}" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_says_what_it_would_do(line, tmp_path):
    result = line("mine", "--dry-run", "--set", "workload.message=64KiB")
    assert result.stdout.startswith("mine: point-to-point, 4 messages\n")
    document = json.loads(line("mine", "--dry-run", "--json").stdout)
    assert (document["messages"], document["runs"], document["hosts"]) == (1, 2, 2)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_refuses_what_the_run_would(line, monkeypatch):
    real = line("mine", "--dry-run", "--clock", "real", "--set", "rnic=lru-512")
    assert (real.exit_code, real.stdout) == (2, "")
    assert "rnic: the virtual clock alone has that" in real.stderr
    oracle = line("mine", "--dry-run", "--clock", "real", "--transport", "oracle")
    assert (oracle.exit_code, oracle.stdout) == (2, "")
    assert "oracle: the virtual clock alone has this transport" in oracle.stderr
    assert line("mine", "--dry-run", "--capture", "h1->h2").exit_code == 2
    monkeypatch.setattr("softroce_lab.experiment.forecast.memory.available_bytes", lambda: 1 << 20)
    large = line("mine", "--dry-run")
    assert (large.exit_code, line("mine").stderr) == (2, large.stderr)
    assert large.stderr.startswith("lab: the run would need 1")


def test_the_ready_ones_are_listed(line):
    shown = line("--list").stdout
    assert "incast" in shown
    assert f"transports: {', '.join(registry.known())}; " in shown
    listed = {each["name"]: each["about"] for each in json.loads(line("--list", "--json").stdout)}
    assert listed["long-haul"].startswith("Two data centres")


PATIENT = """\
from softroce_lab.transports.policy import MessagePolicy, Option


class Own(MessagePolicy):
    name = "own"
    options = (Option("patience", 2, "round trips of silence", least=1, most=5),)
"""


def test_knobs_and_options_of_a_transport_are_listed(line, tmp_path):
    assert "path_choice" in line("--list", "--transport", "csa_ud").stdout
    (csa_ud,) = json.loads(line("--list", "--transport", "csa_ud", "--json").stdout)
    defaults = {each["name"]: each["default"] for each in csa_ud["options"]}
    assert (defaults["path_choice"], defaults["parity"]) == (True, "auto")
    found = json.loads(line("--list", "--transport", "irn", "--json").stdout)
    assert [each["name"] for each in found[0]["knobs"]] == [
        "window", "paths", "schedule", "retry_count", "timeout",
    ]  # fmt: skip
    assert found[0]["knobs"][-1]["values"] == "from 1 us to 10 s, or measured"
    (tmp_path / "own.py").write_text(PATIENT)
    (own,) = json.loads(line("--list", "--transport", f"{tmp_path}/own.py:Own", "--json").stdout)
    assert own["transport"] == "Own"
    assert own["options"] == [
        {"name": "patience", "values": "from 1 to 5", "help": "round trips of silence",
         "default": 2}
    ]  # fmt: skip


MANY = """\
name: many
topology: {generator: {kind: star, hosts: 2, access: {delay: 1us}}}
transports: [csa_ud, rc]
workload: {kind: point-to-point, bytes: 4MiB, message: 1KiB}
faults: [{name: loss, links: "*->s1", loss: random 2%}]
"""
IN_SMALL_FOLDER = """\
mount -t tmpfs -o size="$1" none out
shift
"$@" -o out
code=$?
cat out/latest/manifest.json >&2
exit $code
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("room_kib", [100, 200])  # for events.parquet, not for all
def test_a_full_disk_ends_a_run_behind_its_results(tmp_path, room_kib):
    """`-o out` is a file system of this process's mount namespace alone."""
    (tmp_path / "many.yaml").write_text(MANY)
    (tmp_path / "out").mkdir()
    lab = [sys.executable, "-m", "softroce_lab.cli", "run", "many.yaml", "-q"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", IN_SMALL_FOLDER, "sh", f"{room_kib}k", *lab],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.split()[:6] == ["transport", "csa_ud", "rc", "verdict", "passed", "passed"]
    complaint, _, manifest = done.stderr.partition("\n{")
    assert "No space left on device" in complaint
    assert "Traceback" not in complaint
    found = json.loads("{" + manifest)
    assert found["state"] == "failed"
    assert "No space left on device" in found["error"]


OWN = own_policy.named("Own")
RAISES = own_policy.named("Own", "    def on_sent(self, send, now_ns):\n        return 1 / 0\n")
EXAMPLE = PROJECT_ROOT / "examples" / "transports" / "sack_timer.py"


def test_a_transport_of_ones_own(line, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    result = line("mine", "--transport", "own.py:Own", "--transport", f"{EXAMPLE}:SackTimer",
                  "--json", "-q")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    own, like = json.loads(result.stdout)["runs"]
    assert (own.pop("transport"), like.pop("transport")) == ("Own", "SackTimer")
    assert {key: own[key] for key in ("packets_sent", "makespan_ns", "control_packets")} == {
        key: like[key] for key in ("packets_sent", "makespan_ns", "control_packets")
    }
    (directory,) = {path.resolve() for path in (tmp_path / "runs").iterdir()}
    (transport, _) = json.loads((directory / "manifest.json").read_text())["experiment"][
        "transports"
    ]
    assert transport["file"] == str(tmp_path / "own.py")
    assert len(transport["sha256"]) == 64


def test_one_that_fails_is_a_verdict_and_one_that_cannot_be_used_is_the_users(line, tmp_path):
    (tmp_path / "own.py").write_text(RAISES)
    failed = line("mine", "--transport", "own.py:Own", "--transport", "rc", "-q")
    assert failed.exit_code == 1
    line_number = RAISES.splitlines().index("        return 1 / 0") + 1
    raised = f"{tmp_path}/own.py:{line_number}: on_sent raised ZeroDivisionError: division by zero"
    assert raised in failed.stdout
    assert failed.stdout.splitlines()[1].split() == ["verdict", "FAILED", "passed"]
    refused = line("mine", "--transport", "own.py:Other", "-q")
    assert refused.exit_code == 2
    assert "own.py: has no class 'Other'" in refused.stderr


TOO_FAST = """\
name: {name}
topology: {{generator: {{kind: star, hosts: 2, access: {{rate: 100Gbit, delay: 1us}}}}}}
transports: [rc]
workload: {{kind: point-to-point, bytes: 64MiB}}
clock: real
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_fabric_too_fast_is_told_and_a_run_that_was_late_can_be_refused(
    line, tmp_path, monkeypatch
):
    # A busy machine slows the sender as well, and may then release every frame in time.
    monkeypatch.setattr(fidelity, "RELEASE_P99_LIMIT_NS", -1)
    name = f"t{secrets.token_hex(3)}"
    (tmp_path / "fast.yaml").write_text(TOO_FAST.format(name=name))
    dry = line("fast", "--dry-run")
    assert dry.exit_code == 0
    assert "the run will not be faithful" in dry.stdout
    found = line("fast", "--require-faithful", "-o", "out")
    assert "the run will not be faithful" in found.stderr.partition("rc")[0]
    # Seven timeouts of rc pass while a busy machine halts its peer; a quiet one carries it all.
    verdict, unfaithful = found.stdout.split()[3], "not faithful: " in found.stdout
    assert found.stdout.split()[:3] == ["transport", "rc", "verdict"]
    assert found.exit_code == (verdict == "FAILED" or unfaithful), found.stderr
    assert len(re.findall("not faithful: ", found.stdout)) <= 8  # one line a cause
