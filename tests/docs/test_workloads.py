# SPDX-License-Identifier: GPL-2.0-or-later
"""The pictures of docs/workloads.md are what the algorithms do."""

import collections
import json
import re
import typing

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.kinds.table import AnyWorkload
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.workloads.collectives.collective import ALGORITHMS
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, PointToPoint, Scatter
from softroce_lab.workloads.message import ADD

PAGE = (PROJECT_ROOT / "docs" / "workloads.md").read_text()
RANKS = 4


def grid(cells):
    """Rows of ranks, columns of steps; cells: (rank, step) -> text."""
    steps = 1 + max(step for _, step in cells)
    rows = [["step", *map(str, range(steps))]]
    for rank in range(RANKS):
        rows.append([f"rank {rank}", *(cells.get((rank, step), "-") for step in range(steps))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"    {line}\n" for line in lines)


def of_algorithm(op, algorithm):
    """`>1 c0+`: to rank 1, chunk 0, which it adds to its own."""
    found = collections.defaultdict(list)
    for each in ALGORITHMS[op][algorithm].transfers(RANKS):
        last = each.first + each.chunks - 1
        chunks = f"c{each.first}" if each.chunks == 1 else f"c{each.first}-{last}"
        added = "+" if each.combine is ADD else ""
        found[each.source, each.step].append(f">{each.destination} {chunks}{added}")
    return grid({place: ", ".join(texts) for place, texts in found.items()})


def of_flows(workload):
    """`>1`: to rank 1; all in one step."""
    found = collections.defaultdict(list)
    for flow in workload.flows():
        found[flow.source, 0].append(f">{flow.destination}")
    return grid({place: " ".join(texts) for place, texts in found.items()})


def of_exchange():
    """Step i of a rank is its i-th peer."""
    flows = collections.defaultdict(list)
    for flow in Exchange(tuple(range(RANKS)), 1, 1).flows():
        flows[flow.source].append(f">{flow.destination}")
    return grid({(rank, step): to for rank, each in flows.items() for step, to in enumerate(each)})


PICTURES = {
    **{
        f"{op}, {algorithm}": of_algorithm(op, algorithm)
        for op, each in ALGORITHMS.items()
        for algorithm in each
    },
    "all-to-all, pairwise": of_exchange(),
    "point-to-point": of_flows(PointToPoint(tuple(range(RANKS)), 1, 1)),
    "permutation": of_flows(Permutation(tuple(range(RANKS)), 1, 1, seed=1)),
    "incast": of_flows(Incast(tuple(range(RANKS)), 1, 1)),
    "scatter": of_flows(Scatter(tuple(range(RANKS)), 1, 1)),
    "all-to-all": of_flows(AllToAll(tuple(range(RANKS)), 1, 1)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_done(name):
    shown = re.search(rf"^{re.escape(name)}:\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    assert shown, f"{name}:\n\n{PICTURES[name]}"
    assert shown[1] == PICTURES[name]


SNIPPETS = re.findall(r"`(\{kind: [^`]*\})`", PAGE)
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
ALIKE = {  # kinds that the page says take the same keys
    "flows.yaml": ("point-to-point", "permutation", "incast", "scatter", "all-to-all"),
    "collective.yaml": ("collective", "ring-all-reduce", "ring-reduce-scatter", "ring-all-gather"),
}
[PROGRAM] = re.findall(r"```\n(num_ranks.*?)```", PAGE, re.DOTALL)
FABRIC = """\
name: snippet
topology: {generator: {kind: star, hosts: HOSTS, access: {rate: 100Gbit, delay: 1us}}}
transports: [csa_ud]
"""


def written(folder, workload, hosts):
    folder.joinpath("trace.goal").write_text(PROGRAM)
    file = folder / "snippet.yaml"
    file.write_text(FABRIC.replace("HOSTS", str(hosts)) + workload)
    return str(file)


def lab(*arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_each_kind_with_a_section_has_a_snippet():
    kinds = {YAML(typ="safe").load(each)["kind"] for each in SNIPPETS}
    assert kinds == {"collective", "open-loop", "moe", "training", "goal"}


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_is_a_workload(snippet, tmp_path):
    """Of 32 hosts: an incast of the page has 16 senders."""
    hosts = 2 if "goal" in snippet else 32
    file = written(tmp_path, f"workload: {snippet}\n", hosts)
    assert lab("run", file, "--dry-run")


def of_kinds():
    """Each whole file of the page, once for each kind that it stands for."""
    for name, text in FILES.items():
        [kind] = re.findall(r"kind: ([a-z-]+)", text.partition("workload:")[2])[:1]
        for other in ALIKE.get(name, (kind,)):
            changed = text.replace(f"kind: {kind}", f"kind: {other}")
            if other.startswith("ring-"):
                changed = changed.replace("op: all-reduce, algorithm: double-tree, ", "")
            yield other, name, changed


WHOLE = list(of_kinds())


def test_every_kind_has_a_whole_file():
    kinds = {kind for kind, _, _ in WHOLE}
    union = typing.get_args(typing.get_args(AnyWorkload)[0])
    known = {typing.get_args(each.model_fields["kind"].annotation)[0] for each in union}
    assert kinds == known


SIMULATED = [each for each in WHOLE if each[0] != "program"]
"""tests/programs/test_workload.py runs the file of programs."""


@pytest.mark.parametrize(("kind", "name", "text"), SIMULATED, ids=[each[0] for each in SIMULATED])
def test_a_whole_file_runs_as_it_is(kind, name, text, tmp_path):
    (tmp_path / name).write_text(text)
    found = json.loads(
        lab("run", str(tmp_path / name), "--seed", "1", "-q", "--json", "-o", str(tmp_path))
    )
    assert found["verdict"] == "passed"
    assert not any("too rare" in note for note in found["notes"])
    if kind == "jobs":
        assert set(found["runs"][0]["jobs"]) == {"training", "incast"}


def test_the_program_runs(tmp_path):
    file = written(tmp_path, "workload: {kind: goal, file: trace.goal}\n", 2)
    assert "passed" in lab("run", file, "-q", "-o", str(tmp_path))
