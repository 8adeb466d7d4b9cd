# SPDX-License-Identifier: GPL-2.0-or-later
"""The workload `program`: commands of hosts as an experiment, on labs of their own."""

import json
import re
import secrets

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.paths import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "workloads.md").read_text()
HEAD = """\
name: {name}
topology: {{generator: {{kind: star, hosts: 2}}}}
clock: real
deadline: 20s
workload:
  kind: program
  commands:
"""


def run(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


@pytest.fixture
def experiment(pair, tmp_path):
    """Runs commands; the libraries are there because `pair` needed them, too."""

    def found(commands, *options):
        file = tmp_path / "own.yaml"
        name = f"t{secrets.token_hex(3)}"
        file.write_text(HEAD.format(name=name) + "".join(f"    {line}\n" for line in commands))
        done = run(file, "--json", "-q", "-o", tmp_path, *options)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return found


def test_the_file_of_the_page(pair, tmp_path):
    [text] = re.findall(r"```yaml\n# program.yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "program.yaml"
    file.write_text(text.replace("name: program\n", f"name: t{secrets.token_hex(3)}\n"))
    done = run(file, "--json", "-q", "-o", tmp_path)
    found = json.loads(done.stdout)
    assert found["verdict"] == "passed", found["runs"][0]["reasons"]
    assert found["runs"][0]["injected_drops"] > 0
    manifest = json.loads(next(tmp_path.glob("*/manifest.json")).read_text())
    programs = manifest["runs"][0]["programs"]
    assert programs["h1"]["roce_packets"] * 2048 >= 200 * 65536
    assert "BW average" in programs["h2"]["output"]


def test_an_exit_status_fails(experiment):
    found = experiment(['h1: {run: "echo out of luck; exit 7", roce: false}'])
    assert found["verdict"] == "failed"
    assert found["runs"][0]["reasons"] == ["h1: ended with 7, not with 0: out of luck"]


def test_a_fall_back_to_tcp_fails(experiment):
    found = experiment(["h1: {run: ping -c 1 h2}"])
    assert found["runs"][0]["reasons"] == ["h1: no RoCE packet left the host"]


def test_what_is_printed_and_variables(experiment):
    right = 'h1: {run: "echo $WORD", environment: {WORD: yes!}, prints: "^yes!$", roce: false}'
    assert experiment([right])["verdict"] == "passed"
    wrong = 'h1: {run: "echo no", prints: "^yes!$", roce: false}'
    assert experiment([wrong])["runs"][0]["reasons"] == ["h1: its output has no '^yes!$'"]


def test_one_after_the_other_and_again(experiment, tmp_path):
    mark = tmp_path / "mark"
    found = experiment([
        f'h1: {{run: "test -e {mark} || {{ touch {mark}; exit 1; }}", retries: 1, roce: false}}',
        f'h2: {{run: "test -e {mark}", after: h1, roce: false}}',
    ])  # fmt: skip
    assert found["verdict"] == "passed", found["runs"][0]["reasons"]


def test_the_deadline_ends_all(experiment):
    found = experiment(
        ["h1: {run: sleep 60, roce: false}", "h2: {run: 'true', after: h1, roce: false}"],
        "--deadline", "1s",
    )  # fmt: skip
    assert found["runs"][0]["reasons"] == [
        "h1: still at work after 1 s", "h2: not begun after 1 s"
    ]  # fmt: skip
