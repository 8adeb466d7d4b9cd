# SPDX-License-Identifier: GPL-2.0-or-later
"""Manifests edited by hand: a value of another type is refused with its file and key."""

import copy
import json
import random
import shutil

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results.recorded import MANIFEST, Recorded
from tests.results.made import run
from tests.results.page.test_assemble import swept  # noqa: F401 - a fixture
from tests.results.programs_made import programs

VERBS = {
    "show": ["results", "show", "DIR"],
    "list": ["results", "ls", "PARENT"],
    "compare": ["results", "compare", "DIR", "WHOLE"],
    "explain": ["results", "explain", "DIR"],
    "plot": ["results", "plot", "DIR", "--kind", "fct", "-o", "OUT"],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One message of two transports, with a loss; and what a run of jobs has."""
    jobs = (
        "workload={kind: jobs, jobs: [{name: flows, workload: {kind: open-loop, load: 30%, "
        "sizes: hadoop, duration: 50us, hosts: [h1, h2]}}, {name: ring, workload: "
        "{kind: ring-all-reduce, bytes: 16KiB, hosts: [h3, h4]}}]}"
    )
    return run("ring-all-reduce", tmp_path_factory.mktemp("small"), jobs, "seeds=[1]",
               transports=("irn", "rc"))  # fmt: skip


def lab(verb, folder, whole, out):
    places = {"DIR": str(folder), "PARENT": str(folder.parent), "WHOLE": str(whole)}
    return CliRunner().invoke(app, [places.get(each, each.replace("OUT", str(out / "a.svg")))
                                    for each in VERBS[verb]])  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("faults", "x", "faults: a valid list was expected, not 'x'"),
        ("seeds", ["x"], "seeds.0: a valid integer was expected, not 'x'"),
        ("runs.0.seed", "x", "runs.0.seed: a valid integer was expected, not 'x'"),
        ("runs.0.seed", -1, "runs.0.seed: greater than or equal to 0 was expected, not -1"),
        ("runs.1.fct_p99_ns", "1 ms", "runs.1.fct_p99_ns: a whole number, 0 or more, was expected"),
        ("runs.0.jobs.ring.makespan_ns", [], "runs.0.jobs.ring.makespan_ns: a whole number"),
        ("runs.0.slowdown.0.size_class", "huge", "runs.0.slowdown.0.size_class: one of <=10kB"),
        ("runs.0.path_mtu", 0, "runs.0.path_mtu: greater than or equal to 1 was expected"),
        ("experiment", 7, "experiment: a valid dictionary was expected, not 7"),
        ("environment.costs", [], "environment.costs: a valid dictionary was expected"),
        ("hosts", {"h1": 1}, "hosts: a valid list was expected"),
    ],
)
def test_the_file_and_the_key_are_named(small, tmp_path, key, value, what):
    folder = shutil.copytree(small, tmp_path / "edited")
    write(folder, changed(json.loads((folder / MANIFEST).read_text()), key.split("."), value))
    for verb in VERBS.keys() - {"list"}:
        found = lab(verb, folder, small, tmp_path)
        assert found.exit_code == ExitCode.USAGE, verb
        assert f"{folder / MANIFEST}: " in found.stderr, verb
        assert what in found.stderr, verb
    listed = lab("list", folder, small, tmp_path)
    assert listed.exit_code == 0
    assert "damaged" in listed.output


def write(folder, manifest):
    (folder / MANIFEST).write_text(json.dumps(manifest))


def changed(manifest, place, value):
    """A copy with another value at a place, or without it: `...`."""
    found = copy.deepcopy(manifest)
    at = found
    for part in place[:-1]:
        at = at[int(part) if isinstance(at, list) else part]
    last = int(place[-1]) if isinstance(at, list) else place[-1]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return found


def places(value, above=()):
    """Of all values in a document, those of long lists and wide mappings by their first ones."""
    if above:
        yield above
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*above, key))
    elif isinstance(value, list):
        for number in range(min(len(value), 1)):
            yield from places(value[number], (*above, str(number)))


def refused(folder):
    """Whether the manifest is refused, which names the file."""
    try:
        Recorded(folder)
    except UserError as error:
        return str(folder / MANIFEST) in str(error)
    return False


VALUES = ("x", -3, [], {}, [{}], None, 0.5, ...)


def edited(folder, out, whole, verbs):
    """Each value replaced by some of another type, or left out: no verb ends in a traceback.

    How many edits are not refused with the file's name; each of these is tried by a drawn verb.
    """
    manifest = json.loads((folder / MANIFEST).read_text())
    copied = shutil.copytree(folder, out / "edited")
    draw, taken = random.Random(1), 0
    for place in places(manifest):
        for value in draw.sample(VALUES, 2):
            write(copied, changed(manifest, place, value))
            if refused(copied):
                continue
            taken += 1
            verb = draw.choice(sorted(verbs))
            found = lab(verb, copied, whole, out)
            ended = found.exception is None or isinstance(found.exception, SystemExit)
            assert ended, (verb, place, value, found.exception)
    return taken


def test_no_edit_of_a_run_ends_in_a_traceback(small, tmp_path):
    assert edited(small, tmp_path, small, VERBS) > 100


def test_no_edit_of_a_run_of_programs_ends_in_a_traceback(tmp_path):
    made = programs(tmp_path).directory
    assert edited(made, tmp_path, made, ("show", "list", "compare")) > 30


def test_no_edit_of_a_sweep_ends_in_a_traceback(swept, tmp_path):  # noqa: F811
    assert edited(swept, tmp_path, swept, ("show", "list", "compare", "plot")) > 20
