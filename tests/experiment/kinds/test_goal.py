# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL files as workloads of experiments: what runs, when, and what is refused."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.capturing import NOTHING
from softroce_lab.experiment.kinds.collectives import algorithms
from softroce_lab.inputs import yaml_source
from softroce_lab.workloads.collectives.collective import ALGORITHMS
from softroce_lab.workloads.goal import writer
from tests.workloads.goal.texts import binomial_tree, ranks

FABRIC = """\
name: goal
topology:
  generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4,
              access: {rate: 100Gbit, delay: 1us}, core: {rate: 100Gbit, delay: 1us}}
lb: flow
"""
TIMES = ["posted_ns", "first_sent_ns", "first_received_ns", "received_ns", "completed_ns"]
NAMED = ["source", "destination", "operation", "step", "message", "bytes", "status", *TIMES]
GOAL = "{kind: goal, file: some.goal}"
TWO = ranks("send 10b to 1", "recv 10b from 0")


def experiment(folder, workload, **more):
    """With this workload, which begins in line 6; it lies in this folder."""
    text = FABRIC + f"workload: {workload}\n"
    text += "".join(f"{key}: {value}\n" for key, value in ({"transports": "[rc]"} | more).items())
    return spec.of(yaml_source.parse(text, str(folder / "mine.yaml")))


def run(made):
    """The only transport's run, on the virtual clock."""
    return virtual.run(made, made.transports[0], 1, lambda _: None, NOTHING)


def rows(found):
    """The names of messages, and all their times."""
    assert found.verdict == "passed", found.reasons
    return sorted(found.messages[NAMED].tolist())


KINDS = [
    f"kind: collective, op: {op}, algorithm: {algorithm}, bytes: 96kB, message: 5kB"
    for op in (*ALGORITHMS, "all-to-all")
    for algorithm in algorithms(op)
] + [
    f"kind: {kind}, bytes: 20kB, message: 7kB"
    for kind in ("point-to-point", "permutation", "incast", "all-to-all")
]
OTHERS = {
    "moe": "{kind: moe, tokens: 64, hidden: 64, experts: 16, top_k: 2, skew: 0.5, token_time: 1us}",
    "training": "{kind: training, layers: 4, forward: 20us, jitter: 10%, gradient: 40kB, "
    "activation: 4kB, microbatches: 2, parallel: {tensor: 2, pipeline: 2}, steps: 2}",
    "open-loop": "{kind: open-loop, load: 40%, sizes: [1kB, 20kB], duration: 100us, "
    "incast: {degree: 3, share: 20%, bytes: 4kB}}",
    "jobs": "{kind: jobs, jobs: [{name: a, workload: {kind: open-loop, load: 40%, sizes: [9kB], "
    "duration: 50us, hosts: [h1, h2, h5]}}, {name: b, workload: {kind: permutation, bytes: 90kB, "
    "message: 9kB, hosts: [h3, h4, h6]}}]}",
    "collective": "{kind: collective, op: all-reduce, bytes: 96kB, message: 5kB, repeat: 3, "
    "every: 30us, skew: 3us}",
}


def assert_the_same_again(made, folder, transport):
    """The workload, written as GOAL and read again, takes the same times to the nanosecond."""
    folder.joinpath("some.goal").write_text("\n".join(writer.lines(made.workload(1))))
    hosts = [made.plan(1).plain_hosts[host].name for host in made.workload(1).ranks]
    goal = f"{{kind: goal, file: some.goal, hosts: [{', '.join(hosts)}]}}"
    again = experiment(folder, goal, transports=f"[{transport}]", depth=made.depth)
    assert rows(run(again)) == rows(run(made))


@pytest.mark.parametrize("transport", ["rc", "csa_ud"])
@pytest.mark.parametrize("repeat", ["repeat: 1", "repeat: 3, every: 30us, skew: 3us"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_and_read_again_takes_exactly_the_same_times(
    kind, repeat, transport, tmp_path
):
    made = experiment(tmp_path, f"{{{kind}, {repeat}}}", transports=f"[{transport}]")
    assert_the_same_again(made, tmp_path, transport)


@pytest.mark.parametrize("transport", ["rc", "csa_ud"])
@pytest.mark.parametrize("kind", OTHERS)
def test_each_kind_of_workload_is_written_and_read_again(kind, transport, tmp_path):
    made = experiment(tmp_path, OTHERS[kind], transports=f"[{transport}]", depth=256)
    assert_the_same_again(made, tmp_path, transport)


def test_what_is_written_loses_the_same_packets(tmp_path):
    more = {
        "transports": "[csa_ud]",
        "faults": '[{name: lossy, links: "leaf*<->spine*", loss: 2%}]',
    }
    made = experiment(tmp_path, "{kind: ring-all-reduce, bytes: 400kB, message: 20kB}", **more)
    tmp_path.joinpath("some.goal").write_text("\n".join(writer.lines(made.workload(1))))
    before, after = run(made), run(experiment(tmp_path, GOAL, **more))
    assert before.messages["retransmitted"].sum() > 10
    assert rows(after) == rows(before)


def verified(tmp_path, program, transport):
    """The messages of a GOAL program that ran, every byte right."""
    tmp_path.joinpath("some.goal").write_text(program)
    found = run(experiment(tmp_path, GOAL, transports=f"[{transport}]", payload="verify"))
    assert (found.verdict, found.verified) == ("passed", True)
    return found.messages


@pytest.mark.parametrize("transport", ["rc", "csa_ud"])
def test_a_tree_of_loggopsim_sends_what_it_says(transport, tmp_path):
    messages = verified(tmp_path, binomial_tree(8), transport)
    assert sorted(zip(messages["source"], messages["destination"], strict=True)) == sorted(
        (rank - (1 << rank.bit_length() - 1), rank) for rank in range(1, 8)
    )
    assert set(messages["bytes"]) == {1}
    arrived = {0: 0} | dict(zip(messages["destination"], messages["received_ns"], strict=True))
    for source, posted_ns in zip(messages["source"], messages["posted_ns"], strict=True):
        assert posted_ns == arrived[source]


def test_computations_take_their_time_and_share_a_processor(tmp_path):
    """Two of 5 us on one processor and one of 7 us on another one: 10 us, then the send."""
    text = ranks(
        "a: calc 5000\nb: calc 5000\nc: calc 7000 cpu 1\ns: send 10b to 1\n"
        "s requires a\ns requires b\ns requires c",
        "recv 10b from 0",
    )
    tmp_path.joinpath("some.goal").write_text(text)
    assert run(experiment(tmp_path, GOAL)).messages["posted_ns"].tolist() == [10_000]


@pytest.mark.parametrize(
    ("workload", "at", "what"),
    [
        ("{kind: goal, file: none.goal}", "none", "none.goal cannot be read: No such file"),
        ("{kind: goal, file: .}", ".}", "cannot be read: Is a directory"),
        ("{kind: goal, file: large.goal}", "large", "has 9 ranks, and there are 8 hosts"),
        ("{kind: goal, file: some.goal, hosts: 2}", "2", "has 3 ranks, and there are 2 hosts"),
        ("{kind: goal, file: some.goal, bytes: 5kB}", "bytes", "the GOAL file has sizes"),
        ("{kind: goal}", "{", "without a program"),
        ("{kind: goal, file: some.goal, program: x}", "program", "'program' beside 'file'"),
        ("{kind: goal, program: ''}", "''", "line 1, column 1: expected 'num_ranks'"),
        ("{kind: goal, program: num_ranks 2}", "num_r", "no rank sends anything"),
        (
            '{kind: goal, program: "num_ranks 2\\nrank 2 {}"}',
            '"num',
            "column 6: there is no",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(workload, at, what, tmp_path):
    tmp_path.joinpath("large.goal").write_text(binomial_tree(9))
    tmp_path.joinpath("some.goal").write_text(binomial_tree(3))
    with pytest.raises(UserError, match=what) as refused:
        experiment(tmp_path, workload)
    column = len("workload: ") + workload.rindex(at) + 1
    assert (refused.value.line, refused.value.column) == (6, column)


def test_a_mistake_in_a_goal_file_has_its_place_there(tmp_path):
    tmp_path.joinpath("some.goal").write_text(TWO)
    tmp_path.joinpath("bad.goal").write_text(ranks("l1: calc 1\nl1 requires l1", "calc 1"))
    with pytest.raises(UserError, match="no rank sends") as refused:
        experiment(tmp_path, "{kind: goal, file: bad.goal}")
    tmp_path.joinpath("bad.goal").write_text(TWO.replace("10b to 1", "10 to 1"))
    with pytest.raises(UserError, match="expected 'b', found 'to'") as refused:
        experiment(tmp_path, "{kind: goal, file: bad.goal}")
    place = (str(tmp_path / "bad.goal"), 3, 9)
    assert (refused.value.file, refused.value.line, refused.value.column) == place
    mine = tmp_path / "mine.yaml"
    mine.write_text(FABRIC + f"transports: [rc]\nworkload: {GOAL}\n")
    with pytest.raises(UserError, match="expected 'b', found 'to'") as refused:
        spec.load(mine, [("workload.file", "bad.goal")])
    assert (refused.value.file, refused.value.line, refused.value.column) == place


def test_a_program_may_stand_in_the_experiment(tmp_path):
    """And does what it does in a file of its own."""
    tmp_path.joinpath("some.goal").write_text(TWO)
    mine = tmp_path / "mine.yaml"
    block = "".join(f"    {line}\n" for line in TWO.splitlines())
    mine.write_text(f"{FABRIC}transports: [rc]\nworkload:\n  kind: goal\n  program: |\n{block}")
    inline, apart = spec.load(mine), experiment(tmp_path, GOAL, transports="[rc]")
    assert run(inline).messages.tolist() == run(apart).messages.tolist()
