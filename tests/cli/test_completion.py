# SPDX-License-Identifier: GPL-2.0-or-later
"""What a shell offers, by the protocol that its script speaks, and how labs are named."""

import os
import subprocess
import sys

import pytest

from softroce_lab import paths, topology
from softroce_lab.cli import app
from softroce_lab.cli.completion import LAB_VARIABLE
from softroce_lab.fabric.ledger import planfile
from softroce_lab.transports import registry

LEAVES = {"leaf1", "leaf2", "spine1", "spine2"}
HOSTS = {"h1", "h2", "h3", "h4"}


@pytest.fixture
def lab_of_two(tmp_path, monkeypatch):
    """Plans as two labs that are up would have them; no rights are needed to complete."""
    monkeypatch.setattr(paths, "LABS", tmp_path)
    for name, file in (("grey", "leaf-spine"), ("small", "two-hosts")):
        (tmp_path / name).mkdir()
        planfile.write(topology.load(file, name=name), tmp_path / name)
    return tmp_path


@pytest.fixture
def offered(lab_of_two, monkeypatch, capsys):
    """What bash is offered for the last word of a line."""

    def offered(line, **environment):
        words = line.split(" ")
        for key, value in {
            "_LAB_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": str(len(words) - 1),
            **environment,
        }.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(SystemExit) as ended:
            app.app(prog_name="lab")
        assert ended.value.code in (0, None)
        found = capsys.readouterr()
        assert found.err == ""
        return set(found.out.split())

    return offered


def test_verbs(offered):
    assert offered("lab ") == set(app.VERBS)
    assert offered("lab d") == {"demo", "down", "doctor"}
    assert offered("lab inspect ") == {"node", "link", "graph", "stats", "path"}
    assert offered("lab --ver") == {"--version"}
    assert offered("lab fault ") == {"set", "clear", "apply", "show"}


@pytest.mark.parametrize(
    "line",
    ["lab down ", "lab ps ", "lab top ", "lab inspect stats --lab ", "lab fault show --lab "],
)
def test_labs(offered, line):
    assert offered(line) == {"grey", "small"}
    assert offered(f"{line}gr") == {"grey"}


def test_nodes_of_the_lab_that_is_named(offered):
    assert offered("lab exec --lab grey ") == HOSTS | LEAVES
    assert offered("lab exec --lab small ") == {"h1", "h2", "s1"}
    assert offered("lab inspect path ", LAB="grey") == HOSTS
    assert offered("lab inspect path h1 ", LAB="small") == {"h1", "h2"}
    assert offered("lab exec ", LAB="none-such") == set()  # of two


def test_the_only_lab_need_not_be_named(offered, lab_of_two):
    for path in (lab_of_two / "small" / "plan.json", lab_of_two / "small"):
        path.unlink() if path.is_file() else path.rmdir()
    assert offered("lab inspect path h3 h") == HOSTS


def test_links_with_arrows_where_the_word_is_quoted(offered):
    plain = offered("lab fault set --lab grey leaf1")
    assert plain == {"leaf1", "leaf1:h1", "leaf1:h2", "leaf1:spine1", "leaf1:spine2"}
    quoted = offered("lab fault set --lab grey 'leaf1-")
    assert quoted == {f"leaf1->{far}" for far in ("h1", "h2", "spine1", "spine2")}


def test_ready_files(offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    assert {"leaf-spine", "mine.yaml"} <= offered("lab up ")
    assert {"incast", "mine.yaml"} <= offered("lab run ")
    assert offered("lab run inc") == {"incast"}
    assert "loss-and-size" in offered("lab run ")
    assert "spine-loss-1pct" in offered("lab fault apply ")
    assert {"grey", "leaf-spine"} <= offered("lab inspect graph ")


def test_transports(offered):
    assert offered("lab run incast --transport ") == set(registry.known())


def test_a_verb_is_found_without_loading_any():
    code = (
        "import os, sys; from softroce_lab.cli import app\n"
        "try: app.app(prog_name='lab')\n"
        "finally: print(*[m for m in sys.modules if 'softroce_lab.' in m], file=sys.stderr)"
    )
    environment = {"_LAB_COMPLETE": "complete_bash", "COMP_WORDS": "lab\nd", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, cwd=paths.PROJECT_ROOT,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert set(done.stdout.split()) == {"demo", "down", "doctor"}
    assert set(done.stderr.split()) <= {
        "softroce_lab.cli", "softroce_lab.cli.app", "softroce_lab.errors",
    }  # fmt: skip


def test_the_variable_names_a_lab_and_the_line_another(lab, monkeypatch):
    assert lab.up().returncode == 0
    monkeypatch.setenv(LAB_VARIABLE, "none-such")
    for arguments in (("ps",), ("down",), ("exec", "h1", "--", "true"), ("top", "--once")):
        result = lab.run(*arguments)
        assert (result.returncode, "none-such" in result.stderr) == (2, True), arguments
    assert [each["name"] for each in lab.json("ps", lab.name)["labs"]] == [lab.name]
    assert lab.run("fault", "show", "--lab", lab.name).returncode == 0
    twice = lab.run("ps", lab.name, "--lab", "other")
    assert twice.returncode == 2
    assert "name the lab once" in twice.stderr
    monkeypatch.setenv(LAB_VARIABLE, lab.name)
    assert lab.run("exec", "h1", "--", "true").returncode == 0
    assert lab.run("down").stdout == f"{lab.name} down\n"
