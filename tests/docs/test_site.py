# SPDX-License-Identifier: GPL-2.0-or-later
"""The site: its examples load, its reference lacks no description, its places in the code exist."""

import re
import sys

import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.sweep import spec as sweep
from softroce_lab.faults import profile
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import validate
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.topology import resolve
from softroce_lab.topology.model import TopologyFile

SITE = PROJECT_ROOT / "docs" / "site"
WRITTEN = [page for page in sorted(SITE.rglob("*.md")) if page.parent.name != "reference"]
YAML = re.compile(r"^```yaml\n((?!- ).*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in WRITTEN
    for number, text in enumerate(YAML.findall(page.read_text()))
]
ARCHITECTURE = (SITE / "contributing" / "architecture.md").read_text()
STEP = re.compile(r"^\| \d+ \| .* \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
NAMED = re.compile(r"((?:`\w+`(?:, | and | or )?)+) (?:in|\()\s*`([\w/.]+)`")
MEANINGS = ("meaning", "what", "counts", "about", "what must hold")  # heads of columns
PLACE = re.compile(r"`((?:softroce_lab|native|xdp|tests|docs)/[a-z0-9_/.]*)`")


def reference():
    """The pages, as the extension makes them; Sphinx is not needed."""
    sys.path.insert(0, str(SITE / "_ext"))
    try:
        import reference
    finally:
        sys.path.remove(str(SITE / "_ext"))
    return {name: page() for name, page in reference.PAGES.items()}


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_a_valid_file(text, tmp_path):
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


@pytest.mark.parametrize(("file", "function"), STEP.findall(ARCHITECTURE))
def test_a_step_names_a_function_of_its_file(file, function):
    assert re.search(rf"\b{function}\(", (PROJECT_ROOT / file).read_text())


@pytest.mark.parametrize(("names", "file"), NAMED.findall(ARCHITECTURE))
def test_a_name_is_one_of_its_file(names, file):
    if file.endswith("/"):
        return
    text = (PROJECT_ROOT / file).read_text()
    for name in re.findall(r"`(\w+)`", names):
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("place", sorted(set(PLACE.findall(ARCHITECTURE))))
def test_a_place_exists(place):
    assert (PROJECT_ROOT / place).exists()
