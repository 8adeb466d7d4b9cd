# SPDX-License-Identifier: GPL-2.0-or-later
"""The site: its examples run, its reference lacks no description, what names a page is right."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from softroce_lab.check import suites
from softroce_lab.cli import demo
from softroce_lab.cli.app import app
from softroce_lab.experiment import spec
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options
from softroce_lab.experiment.sweep import spec as sweep
from softroce_lab.faults import profile
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import validate
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.topology import resolve
from softroce_lab.topology.model import TopologyFile
from tests.docs.pages import SITE, WRITTEN, files

YAML = re.compile(r"^```yaml\n((?!- ).*?)^```", re.MULTILINE | re.DOTALL)
KEYS = re.compile(r"^(?:topology|experiment|workload|faults):", re.MULTILINE)
EXAMPLES = [
    pytest.param(page, text, id=f"{page.stem}-{number}")
    for page in WRITTEN
    for number, text in enumerate(YAML.findall(page.read_text()))
    if KEYS.search(text)
]
RUNNABLE = [
    each
    for each in EXAMPLES
    if "\nworkload:" in each.values[1] and "clock: real" not in each.values[1]
]
REFERENCE = re.compile(r"(?<![\w/.-])docs/[a-z0-9_/-]+(?:\.[a-z]+)?(?![\w{*])")
UNBUILT = [*sorted(SITE.glob("records/*.md")), *sorted(SITE.glob("learn/teacher/*.md"))]
MEANINGS = ("meaning", "what", "counts", "about", "what must hold")  # heads of columns


def reference():
    """The pages, as the extension makes them; Sphinx is not needed."""
    sys.path.insert(0, str(SITE / "_ext"))
    try:
        import reference
    finally:
        sys.path.remove(str(SITE / "_ext"))
    return {name: page() for name, page in reference.PAGES.items()}


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_an_example_is_a_valid_file(page, text, tmp_path):
    for name, other in files(page).items():
        (tmp_path / name).write_text(other)
    source = yaml_source.parse(text, "example.yaml")
    file = tmp_path / "example.yaml"
    file.write_text(text)
    if "experiment" in source.data:
        sweep.load(file)
    elif "workload" in source.data:
        spec.of(source)
    elif "topology" in source.data:
        resolve.resolve(validate(TopologyFile, source), source, name="example", seed=1)
    else:
        profile.load(file)


def test_every_entry_of_the_reference_has_a_description():
    for name, page in reference().items():
        for head, _, *rows in tables(page):
            about = next((n for n, cell in enumerate(head) if cell in MEANINGS), None)
            for row in rows if about is not None else ():
                assert row[about], f"{name}: {row[0]}"


def tables(page):
    """Each as lists of cells."""
    for block in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
        yield [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in block.splitlines()
        ]


def test_the_reference_shows_each_verb_and_key():
    pages = reference()
    assert "## lab run" in pages["verbs"]
    for key in ("`transports`", "`kind: open-loop`", "`algorithm`", "`blackout`"):
        assert key in pages["experiments"]
    assert "`rx_wrong_icrc`" in pages["counters"]


def test_each_transport_states_the_default_of_its_timeout():
    assert "the transport's own timer" not in reference()["transports"]


@pytest.mark.parametrize(("page", "text"), RUNNABLE)
def test_an_experiment_of_the_site_passes(page, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.yaml").write_text(text)
    done = CliRunner().invoke(app, ["run", "example.yaml", "--seed", "1", "-q", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["verdict"] == "passed"


def test_the_failover_is_what_the_demo_prints():
    text = (SITE / "explanation/shift.md").read_text()
    assert "lab demo failover --clock virtual --steps 20" in text
    printed = demo.failover_lines(failover.run_on("virtual", Options(steps=20)))
    assert "\n".join(["```", *printed[:11], "```"]) in text


def naming():
    """Tracked files that name something in docs/."""
    command = ["git", "grep", "-lIF", "docs/", ":!tests/docs"]
    listed = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()  # none without git


@pytest.mark.parametrize("file", naming())
def test_what_a_file_names_in_docs_exists(file):
    """A page of the reference exists when the site is built."""
    named = set(REFERENCE.findall((PROJECT_ROOT / file).read_text()))
    named -= {f"docs/reference/{name}.md" for name in reference()}
    assert [name for name in named if not (PROJECT_ROOT / name).exists()] == []


@pytest.mark.parametrize("page", UNBUILT, ids=lambda page: page.name)
def test_a_link_of_a_page_outside_the_site_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("rule", suites.rules(), ids=lambda rule: rule.name)
def test_a_clause_names_a_section_of_its_page(rule):
    for page, section in re.findall(r"docs/([\w/-]+)\.md, ([^,;]+)", rule.clause):
        headings = re.findall(r"^#+ (.*)$", (SITE / f"{page}.md").read_text(), re.MULTILINE)
        assert section in headings
