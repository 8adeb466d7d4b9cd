# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiment files: what they may say, and how mistakes in them are told."""

import os
import re
import subprocess
import sys

import pytest

from softroce_lab import paths
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.spec_model import ExperimentFile, json_schema
from softroce_lab.inputs import yaml_source
from softroce_lab.workloads.message import INT32
from softroce_lab.workloads.schedule import Send

SHIPPED = [name for name, _ in spec.shipped()]

PLAIN = """\
name: mine
topology:
  generator: {kind: star, hosts: 4}
transports: [csa_ud]
workload: {kind: all-to-all, bytes: 64KiB}
"""


def of(text):
    return spec.of(yaml_source.parse(text, "x.yaml"))


def refused(text):
    with pytest.raises(UserError) as caught:
        of(text)
    return str(caught.value)


def with_line(line, before="workload"):
    return PLAIN.replace(f"{before}:", f"{line}\n{before}:", 1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- What is said is what there is -------------------------------------------------------------


def test_defaults():
    experiment = of(PLAIN)
    assert (experiment.clock, experiment.payload, experiment.seeds) == ("virtual", "none", (1,))
    assert experiment.deadline_ns == 10 * 10**9
    assert experiment.topology == "inline"
    assert [t.label for t in experiment.transports] == ["csa_ud"]
    assert experiment.workload(1).message_count == 12
    assert experiment.plan(1).name == "mine"


def sends(work):
    """All sends of a workload."""
    vertices = [each for graph in work.schedule().of.values() for each in graph]
    return [each for each in vertices if isinstance(each, Send)]


def test_all_keys():
    experiment = of("""\
name: all
topology: leaf-spine
lb: spray
mtu: 1500
transports:
  - rc
  - {name: csa_ud, options: {parity: 0}}
  - {name: csa_ud, congestion_control: bdp, label: mine}
  - {name: csa_ud, framing: uc_immediate}
  - sdr_sr
workload: {kind: ring-all-reduce, bytes: 1MB, message: 100kB, dtype: int32, repeat: 3, every: 1ms,
           skew: 10us, hosts: [h4, h1, h2], placement: in-order}
depth: 2
faults:
  - spine-loss-1pct
  - {name: second, links: "*->h1", delay: 1ms}
seeds: [7, 8]
clock: real
payload: verify
deadline: 20s
""")
    labels = ["rc", "csa_ud+parity=0", "mine", "csa_ud+uc_immediate", "sdr_sr"]
    assert [t.label for t in experiment.transports] == labels
    assert [t.frames for t in experiment.transports] == ["ud"] * 3 + ["uc_immediate"] * 2
    assert [t.shows_messages for t in experiment.transports] == [False, True, True, False, False]
    assert experiment.transports[1].options == {"parity": 0}
    assert experiment.transports[2].congestion_control == "bdp"
    plan = experiment.plan(7)
    assert (plan.seed, plan.mtu, plan.load_balancing) == (7, 1500, "spray")
    assert {fault.rule for fault in plan.faults} == {"spine-loss", "second"}
    work = experiment.workload(7)
    assert (work.ranks, work.dtype, work.name) == ((3, 0, 1), INT32, "ring-all-reduce")
    assert {message.key[0] for message in work.messages()} == {0, 1, 2}
    assert max(each.at_ns for each in sends(work)) > 2_000_000
    document = experiment.document()
    assert document["workload"]["bytes"] == 1_000_000
    assert document["faults"] == ["spine-loss-1pct", "second"]


def test_a_seed_is_the_fabrics_the_faults_and_the_permutations():
    text = with_line("seeds: 2").replace("all-to-all", "permutation").replace("4}", "16}")
    experiment = of(text)
    plans, works = zip(*((experiment.plan(n), experiment.workload(n)) for n in (1, 2)), strict=True)
    assert [plan.seed for plan in plans] == [1, 2]
    pairs = [{(m.source, m.destination) for m in work.messages()} for work in works]
    assert pairs[0] != pairs[1]


def test_placement_is_drawn_from_the_seed():
    text = PLAIN.replace("64KiB", "64KiB, placement: random").replace("hosts: 4", "hosts: 16")
    experiment = of(text)
    assert sorted(experiment.workload(1).ranks) == list(range(16))
    assert experiment.workload(1).ranks != experiment.workload(2).ranks


@pytest.mark.parametrize(
    ("keys", "ranks"),
    [("", (0, 2)), (", from: h3", (2, 0)), (", to: h1", (1, 0)), (", from: h2, to: h1", (1, 0))],
)
def test_point_to_point_goes_to_the_farthest(keys, ranks):
    text = PLAIN.replace("all-to-all, bytes: 64KiB", f"point-to-point, bytes: 64KiB{keys}")
    text = text.replace("star, hosts: 4", "dumbbell, hosts_per_side: 2")
    assert of(text).workload(1).ranks == ranks


FILE = PLAIN.replace("{kind: all-to-all, bytes: 64KiB}", "{kind: file, path: data, message: 4KiB}")


def test_a_file_is_found_beside_the_experiment(tmp_path):
    (tmp_path / "data").write_bytes(bytes(10_000))
    (tmp_path / "x.yaml").write_text(FILE)
    loaded = spec.load(tmp_path / "x.yaml")
    work = loaded.workload(1)
    assert (work.path, work.size_bytes, work.depth) == (str(tmp_path / "data"), 10_000, 4)
    assert (work.message_count, work.ranks, work.hashed) == (3, (0, 1), True)
    assert loaded.payload == "verify"
    unhashed = spec.load(tmp_path / "x.yaml", [("payload", "none"), ("workload.bytes", "5000B")])
    assert (unhashed.workload(1).hashed, unhashed.workload(1).size_bytes) == (False, 5000)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("", "x.yaml:5:30: cannot read"),
        (", repeat: 2", "'repeat' does not belong here"),
        (", hosts: 2", "'hosts' does not belong here"),
    ],
)
def test_files_that_cannot_be_sent_are_refused(folder, more, complaint):
    assert complaint in refused(FILE.replace("path: data", f"path: data{more}"))


def test_a_topology_may_lie_beside_the_experiment(folder):
    below = folder / "below"
    below.mkdir()
    (below / "net.yaml").write_text("name: n\ntopology: {generator: {kind: star, hosts: 3}}\n")
    file = below / "x.yaml"
    file.write_text(re.sub(r"topology:\n.*\n", "topology: net.yaml\n", PLAIN))
    assert len(spec.load(file).plan(1).hosts) == 3


# --- Names ---------------------------------------------------------------------------------------


def test_a_name_is_looked_for_here_first(folder):
    shipped = spec.load("incast")
    (folder / "incast.yaml").write_text(PLAIN)
    assert (spec.load("incast").name, shipped.name) == ("mine", "incast")


def test_a_name_that_is_nowhere(folder):
    with pytest.raises(UserError, match="no experiment called 'incats'\n  hint: did you mean 'inc"):
        spec.load("incats")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_experiment_fits_together(name):
    experiment = spec.load(name)
    assert experiment.name == name
    assert all(experiment.workload(seed).message_count < 5000 for seed in experiment.seeds)
    assert dict(spec.shipped())[name]
    compared = {each.name for each in experiment.transports}
    if len(compared) > 1 and not name.endswith("-sprayed"):  # hosts spread packets, not switches
        assert experiment.plan(experiment.seeds[0]).load_balancing == "flow"


def test_editors_are_told_all_keys():
    assert set(json_schema()["properties"]) == set(ExperimentFile.written_keys())


def test_nothing_of_it_needs_the_real_clock():
    program = (
        "import sys, softroce_lab.cli.run, softroce_lab.experiment.spec as s\n"
        "s.load('incast')\n"
        "print([m for m in sys.modules if m.startswith(('softroce_lab.fabric.', 'bcc', 'scapy'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=paths.PROJECT_ROOT, env=os.environ | {"PYTHONPATH": str(paths.PROJECT_ROOT)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == "[]"


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (with_line("transport: rc"), "x.yaml:5:1: 'transport' does not belong here"),
        (with_line("sed: 1"), "x.yaml:5:1: unknown key 'sed'\n  hint: did you mean 'seeds'?"),
        (with_line("seeds: 0"), "x.yaml:5:8: 0 seeds"),
        (with_line("seeds: [1, 1]"), "x.yaml:5:8: seed 1 stands twice"),
        (with_line("seeds: [-1]"), "x.yaml:5:9: seeds -1 is below 0"),
        (with_line(f"seeds: [7, {1 << 64}]"), f"x.yaml:5:12: seeds {1 << 64} is above"),
        (with_line("seeds: some"), "x.yaml:5:8: expected how many seeds, or a list"),
        (with_line("clock: atomic"), "x.yaml:5:8: expected 'virtual' or 'real', found 'atomic'"),
        (with_line("deadline: 0s"), "x.yaml:5:11: time '0s' is nothing at all"),
        (with_line("deadline: 1000001s"), "x.yaml:5:11: 1,000,001 s: a run lasts 1,000,000 s"),
        (with_line("stalls: [{host: h1, at: 1us, for: 9300000s}]"), "9,300,000 s: a run lasts"),
        (PLAIN.replace("hosts: 4", "hosts: 4, access: {rate: 1Gbit, delay: 126ms}"),
         "x.yaml:3:3: a round trip takes 504 ms; csa_ud: 500 ms at most\n  hint: shorter delays"),
        (with_line("deadline: 10"), "x.yaml:5:11: time '10' has no unit"),
        (with_line("depth: 0"), "x.yaml:5:8: depth 0 is below 1"),
        (with_line("message_slots: 2048").replace("csa_ud", "sdr_sr"),
         "x.yaml:5:16: sdr_sr has 1024 slots at most, in its framing"),
        (with_line("message_slots: 6"), "x.yaml:5:1: 6 is no power of two"),
        (with_line("message_slots: 2"), "x.yaml:5:1: 2 slots for a depth of 4"),
        (with_line("depth:"), "x.yaml:5:1: 'depth' has no value"),
        (with_line("rnic: lru-51"), "x.yaml:5:7: no RNIC model is called 'lru-51'\n  hint: did"),
        (PLAIN.replace("csa_ud", '{name: rc, label: "a\\nb"}'), "'a\\nb' cannot be shown"),
        (PLAIN.replace("csa_ud", "csa_du"), "x.yaml:4:14: unknown transport 'csa_du'\n  hint: did"),
        (PLAIN.replace("csa_ud", "csa_ud, csa_ud"), "x.yaml:4:22: two transports are called"),
        (
            PLAIN.replace("csa_ud", "{name: rc, options: {parity: 0}}"),
            "x.yaml:4:35: unknown option 'parity'",
        ),
        (
            PLAIN.replace("csa_ud", "{name: rc, congestion_control: bpd}"),
            "x.yaml:4:45: unknown congestion control 'bpd'\n  hint: did you mean 'bdp'",
        ),
        (
            PLAIN.replace("csa_ud", "{name: csa_ud, framing: uc}"),
            "x.yaml:4:38: unknown framing 'uc'\n  hint: known: ud, uc_immediate",
        ),
        (
            PLAIN.replace("csa_ud", "{name: rc, framing: ud}"),
            "x.yaml:4:34: rc has its own packets, and no framing to choose",
        ),
        (PLAIN.replace("[csa_ud]", "[]"), "x.yaml:4:13: expected at least 1 entry"),
        (
            PLAIN.replace("all-to-all", "all-to-some"),
            "x.yaml:5:11: unknown kind 'all-to-some'\n  hint: did you mean 'all-to-all'?",
        ),
        (PLAIN.replace("64KiB", "64"), "x.yaml:5:37: size '64' has no unit"),
        (PLAIN.replace("64KiB", "64KiB, to: h1"), "x.yaml:5:44: unknown key 'to'"),
        (PLAIN.replace("64KiB", "64KiB, hosts: 5"), "x.yaml:5:51: 5 hosts, and the topology has 4"),
        (PLAIN.replace("64KiB", "64KiB, hosts: [h1, h9]"), "x.yaml:5:56: the topology has no host"),
        (PLAIN.replace("64KiB", "64KiB, hosts: [h1, h1]"), "x.yaml:5:44: a host stands twice"),
        (PLAIN.replace("64KiB", "64KiB, hosts: 1"), "x.yaml:5:51: a workload has two"),
        (PLAIN.replace("64KiB", "64KiB, hosts: [h1]"), "x.yaml:5:51: a workload has two hosts"),
        (PLAIN.replace("64KiB", "64KiB, hosts: all"), "x.yaml:5:51: expected how many hosts, or"),
        (PLAIN.replace("64KiB", "64KiB, hosts: [h1, 2]"), "x.yaml:5:56: expected text, found 2"),
        (PLAIN.replace("64KiB", "64KiB, every: 1s"), "x.yaml:5:44: 'every' without a repeat"),
        (PLAIN.replace("64KiB", "64KiB, message: 0B"), "x.yaml:5:53: size '0B' is not between"),
        (
            PLAIN.replace("all-to-all, bytes: 64KiB", "ring-all-reduce, bytes: 8B"),
            "x.yaml:5:42: ring cuts the vector into 4 chunks of an element at least",
        ),
        (
            PLAIN.replace("all-to-all, bytes: 64KiB", "ring-all-reduce, bytes: 9B"),
            "x.yaml:5:35: 9 bytes are no whole elements of float32",
        ),
        (
            PLAIN.replace("all-to-all, bytes", "point-to-point, from: h1, to: h1, bytes"),
            "x.yaml:5:48: h1 would send to itself",
        ),
        (PLAIN.replace("star", "sun"), "x.yaml:3:14: unknown kind 'sun'"),
        (PLAIN.replace("hosts: 4", "hosts: 1"), "x.yaml:3:3: the workload needs 2 hosts"),
        (with_line("faults: [{name: a, on: 'h1->s1'}]"),
         "x.yaml:5:20: 'on' does not belong here\n  hint: links, nodes or ports say where"),
        (with_line("faults: [spine-lass]"), "x.yaml:5:10: no fault profile called 'spine-lass'"),
        (with_line("faults: [spine-loss-1pct]"), "pattern 'leaf*<->spine*' matches no link"),
        (
            with_line("faults: [lost-tail, {name: a, links: 'x->y', loss: 1%}]"),
            "x.yaml:5:38: pattern 'x->y' matches no link",
        ),
        (with_line("lb: adaptive\nclock: real"), "x.yaml:5:5: lb: adaptive chooses the"),
    ],
)  # fmt: skip
def test_a_mistake_is_pointed_at(text, complaint):
    assert complaint in refused(text)


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (paths.TOPOLOGIES / "leaf-spine.yaml", "a topology, not an experiment\n  hint: lab up"),
        (paths.SWEEPS / "reach.yaml", "a sweep, not an experiment\n  hint: lab run"),
        (paths.FAULTS / "grey-link.yaml", "a fault profile, not an experiment\n  hint: lab fault"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_name(file, complaint):
    with pytest.raises(UserError, match=f"this is {complaint}"):
        spec.load(file)


def test_a_folder_is_no_experiment(folder):
    (folder / "below").mkdir()
    with pytest.raises(UserError, match=r"^below is a folder\n  hint: name a file in it, or"):
        spec.load("below")
    with pytest.raises(UserError, match=r"below: cannot be read: Is a directory$"):
        spec.load(folder / "below")


def test_a_mistake_in_a_named_topology_is_pointed_at_there(folder):
    (folder / "net.yaml").write_text("name: n\ntopology: {generator: {kind: star, hosts: 0}}\n")
    text = re.sub(r"topology:\n.*\n", "topology: net\n", PLAIN)
    assert refused(text).startswith("net.yaml:2:43: hosts 0 is below 1")
    text = text.replace("net", "nit")
    assert refused(text).startswith("x.yaml:2:11: no topology called 'nit'")


# --- Otherwise than the file says ----------------------------------------------------------------


def changed(*texts, name="ring-all-reduce"):
    return spec.load(name, [spec.parse_override(text) for text in texts])


def test_overrides():
    experiment = changed(
        "workload.bytes=2MiB", "seeds=[5, 6]", "transports.1=srnic", "topology=fat-tree-k4",
        "faults=[]", "workload.hosts=6",
    )  # fmt: skip
    assert experiment.seeds == (5, 6)
    assert [transport.name for transport in experiment.transports] == ["csa_ud", "srnic", "rc"]
    assert experiment.workload(5).hosts == 6
    assert experiment.workload(5).buffer_bytes == 2 << 20
    assert experiment.topology == "fat-tree-k4"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("workload.bytes=5", "workload.bytes: size '5' has no unit"),
        ("workload.bites=5kB", "workload.bites: unknown key 'bites'\n  hint: did you mean 'byt"),
        ("transports.7=rc", "'transports.7' names nothing in the experiment"),
        ("transports.-1=rc", "'transports.-1' names nothing in the experiment"),
        (f"transports.{'9' * 5000}=rc", "' names nothing in the experiment"),
        (f"transports.{'9' * 5000}.name=rc", "' names nothing in the experiment"),
        ("name.x=rc", "'name.x' names nothing in the experiment"),
        ("=5", "'=5' sets nothing"),
        ("seeds", "'seeds' sets nothing"),
        ("seeds=[1", "broken YAML"),
    ],
)
def test_a_wrong_override_is_named(text, complaint):
    with pytest.raises(UserError) as caught:
        changed(text)
    assert str(caught.value).partition(": broken")[0].startswith(complaint) or complaint in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["seeds=3", "workload.bytes=5", "depth=2"], "workload.bytes"),
        (["seeds=3", "workload.hosts=2", "workload.bytes=4B"], "workload.bytes"),
        (["workload.bytes=5", "seeds=0"], "workload.bytes, seeds"),
    ],
)
def test_of_several_overrides_the_wrong_one_is_named(texts, named):
    with pytest.raises(UserError, match=f"^{named}: "):
        changed(*texts)


def test_the_files_own_mistakes_come_first(folder):
    (folder / "x.yaml").write_text(with_line("depth: 0"))
    with pytest.raises(UserError, match=r"^x.yaml:5:8: depth 0 is below 1"):
        changed("seeds=1", name="x")


def test_transports_may_be_chosen():
    controls = ("bdp", "dcqcn", "swift")
    mine = ", ".join(f"{{name: csa_ud, congestion_control: {name}}}" for name in controls)
    experiment = of(PLAIN.replace("csa_ud", mine))
    assert len(spec.with_transports(experiment, ["csa_ud"]).transports) == 3
    two = spec.with_transports(experiment, ["csa_ud+dcqcn", "rc", "rc"])
    assert [transport.label for transport in two.transports] == ["csa_ud+dcqcn", "rc"]
    with pytest.raises(UserError, match=r"unknown transport 'csa_ud.dcqcn'"):
        spec.with_transports(experiment, ["csa_ud-dcqcn"])


@pytest.mark.parametrize(
    ("transport", "size", "complaint"),
    [
        ("rc", "2147483649B", "messages of rc have 2 GiB at most"),
        ("rc", "2GiB", None),
        ("sdr_sr", "257MiB", "messages of sdr_sr have 256 MiB at most"),
        ("sdr_sr", "256MiB", None),
        ("csa_ud", "4GB", None),
    ],
)
def test_messages_that_a_transport_cannot_carry_are_refused(transport, size, complaint):
    text = f"""\
name: long
topology: {{generator: {{kind: star, hosts: 2}}}}
mtu: 1500
transports: [{transport}]
workload: {{kind: point-to-point, bytes: 8GiB, message: {size}}}
"""
    if complaint is None:
        of(text)
        return
    with pytest.raises(UserError, match=complaint) as caught:
        of(text)
    assert caught.value.line == 5
