# SPDX-License-Identifier: GPL-2.0-or-later
import os
import subprocess
import sys

from softroce_lab import paths

FAULTED = """
name: faulted
topology:
  generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}
faults:
  - {name: grey, links: "leaf1<->spine1", loss: random 1%}
"""


def graph(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "inspect", "graph", *arguments],
        cwd=paths.PROJECT_ROOT,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "110"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


def test_a_file_that_is_not_up():
    result = graph("leaf-spine")
    assert result.returncode == 0, result.stderr
    assert "│ spine1 │" in result.stdout
    assert result.stdout.splitlines()[-1].split() == ["h1", "h2", "h3", "h4"]


def test_kernel_hosts_are_machines():
    result = graph("kernel-two")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == [
        "k1: Linux 6.12; rxe0 at eth1; 1 GiB, 1 CPU",
        "k2: Linux 6.1; rxe0 at eth1; 1 GiB, 1 CPU",
    ]


def test_faults_are_marked_and_said(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(FAULTED)
    result = graph(str(file))
    assert "┆" in result.stdout
    assert result.stdout.splitlines()[-1] == "loss random 1%: leaf1<->spine1"


def test_ascii_where_asked_for_and_where_nothing_else_can_be_printed():
    asked = graph("leaf-spine", "--ascii")
    forced = graph("leaf-spine", PYTHONIOENCODING="ascii")
    assert asked.stdout.isascii()
    assert asked.stdout == forced.stdout
    assert "| spine1 |" in asked.stdout


def test_a_large_fabric_is_summarised():
    result = graph("star-100")
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 3
    assert "100 links" in result.stdout


def test_svg_to_a_file_and_to_the_output(tmp_path):
    file = tmp_path / "x.svg"
    assert graph("leaf-spine", "-o", str(file)).returncode == 0
    assert file.read_text("utf-8") == graph("leaf-spine", "-o", "-").stdout
    assert file.read_text("utf-8").startswith("<svg ")
    refused = graph("leaf-spine", "-o", str(tmp_path / "no" / "x.svg"))
    assert refused.returncode == 2
    assert "cannot write" in refused.stderr


def test_an_unknown_name():
    result = graph("leaf-spin")
    assert result.returncode == 2
    assert "did you mean 'leaf-spine'?" in result.stderr


TIMELINE = """
name: timeline
topology: {generator: {kind: star, hosts: 2}}
faults:
  - {name: off, links: "h1<->s1", down: true, at: 1ms, for: 500s}
  - {name: late, links: "h2->s1", loss: 1%, at: 500s}
"""


def test_what_a_timeline_does_now(lab, tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text(TIMELINE)
    assert "x" not in graph(str(file)).stdout.partition("down at")[0]
    assert lab.run("up", str(file), "--name", lab.name).returncode == 0
    down, late = (lab.json("inspect", "graph", "--lab", lab.name)["marks"][i] for i in (0, 2))
    assert (down["down"], down["acts"], late["acts"]) == (True, True, False)
    text = graph(lab.name).stdout
    assert "x" in text
    assert "down at 1ms for 500s (acts now): h1<->s1" in text
    shown = lab.run("fault", "show", "--lab", lab.name).stdout
    assert shown.startswith("timeline at ")
    assert "acts in 8 min" in shown
    inspected = lab.run("inspect", "link", "h1<->s1", "--lab", lab.name).stdout
    assert inspected.startswith("timeline at ")
    assert "acts now" in inspected


def test_a_lab_that_is_up(lab):
    lab.up()
    document = lab.json("inspect", "graph", lab.name)
    assert document["up"]
    assert document["tiers"] == [["s1"], ["h1", "h2"]]
    assert document["lab"]["name"] == lab.name
