# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments of programs as they are written: what is refused, and where."""

import re

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.gates import expect
from softroce_lab.inputs import yaml_source

HEAD = """\
name: mine
topology: {generator: {kind: star, hosts: 3}}
clock: real
"""


def of(commands, head=HEAD):
    text = f"{head}workload:\n  kind: program\n  commands: {commands}\n"
    return spec.of(yaml_source.parse(text, "x.yaml"))


def refused(commands, head=HEAD):
    with pytest.raises(UserError) as caught:
        of(commands, head)
    error = caught.value
    return error.line, error.column, error.what


def test_commands_by_host():
    found = of("{h3: {run: a}, h1: {run: b, after: h3, status: 2}}")
    work = found.workload(1)
    assert (work.ranks, work.name, found.transports[0].label) == ((2, 0), "program", "program")
    assert (work.commands[0].after, work.commands[0].status, work.commands[2].run) == (2, 2, "a")
    assert (work.message_count, list(work.messages()), work.buffer_bytes) == (0, [], 0)


def test_the_environment_of_all_is_overruled():
    text = (
        HEAD + "workload: {kind: program, environment: {A: all, B: all}, commands: "
        "{h1: {run: a, environment: {B: own}}}}\n"
    )
    command = spec.of(yaml_source.parse(text, "x.yaml")).workload(1).commands[0]
    assert command.environment == {"A": "all", "B": "own"}


@pytest.mark.parametrize(
    ("commands", "line", "column", "what"),
    [
        ("{h9: {run: a}}", 6, 18, "no host 'h9'"),
        ("{h1: {run: ' '}}", 6, 18, "expected a command"),
        ("{h1: {run: a, after: h2}}", 6, 33, "no command of 'h2'"),
        ("{h1: {run: a, after: h1}}", 6, 33, "h1 waits for h1: none of them can begin"),
        ("{h1: {run: a, prints: '('}}", 6, 34, "is no regular expression"),
        ("{h1: {run: a, listens: 70000}}", 6, 35, "65535"),
        ("{h1: {run: a, environment: {LD_LIBRARY_PATH: x}}}", 6, 39, "the lab sets that one"),
        ("{h1: {run: a, environment: {SOFTROCE_TRANSPORT: x}}}", 6, 39, "the lab sets that one"),
        ("{}", 6, 3, "no commands and no launcher"),
    ],
)
def test_mistakes_have_their_place(commands, line, column, what):
    found = refused(commands)
    assert found[0] == line
    assert what in found[2]
    assert abs(found[1] - column) <= 8  # of the value, or of its key


def test_the_virtual_clock_is_refused():
    assert refused("{h1: {run: a}}", HEAD.replace("real", "virtual")) == (
        3, 8, "programs run on the real clock alone"
    )  # fmt: skip
    assert refused("{h1: {run: a}}", HEAD.replace("clock: real\n", ""))[2].startswith("programs")


def test_there_is_no_workload_to_show():
    done = CliRunner().invoke(app, ["run", "program", "--plan"])
    assert done.exit_code == 2
    assert "programs decide themselves" in str(done.exception) + done.stderr


# --- Launchers and figures ------------------------------------------------------------------------


def launched(keys, head=HEAD):
    return spec.of(yaml_source.parse(f"{head}workload: {{kind: program, {keys}}}\n", "x.yaml"))


def test_a_launcher_is_told_hosts_and_ranks():
    work = launched("launcher: mpirun, hosts: [h3, h1], ranks_per_host: 2, run: 'a $B c'").workload(
        1
    )
    [(first, command)] = work.commands.items()
    assert (first, command.hosts, work.ranks) == (2, (2, 0), (2, 0))
    assert command.run == "mpirun --host h3:2,h1:2 -n 4 bash -c 'a $B c'"


def test_the_environment_of_a_launcher_is_overruled():
    text = "launcher: /opt/bin/mpiexec, run: a, environment: {UCX_TLS: ud_v}"
    [command] = launched(text).workload(1).commands.values()
    assert command.run == "/opt/bin/mpiexec -hosts h1:1,h2:1,h3:1 -n 3 bash -c a"
    assert command.environment["UCX_TLS"] == "ud_v"
    assert command.environment["FI_PROVIDER"] == "verbs;ofi_rxm"


def test_torchrun_runs_at_each_host():
    text = "launcher: torchrun, hosts: [h2, h3], ranks_per_host: 2, run: a b, prints: c"
    commands = launched(text).workload(1).commands
    common = "--master-addr h2 --master-port 29500 --no-python bash -c 'a b'"
    assert [(each.hosts, each.run, each.prints) for each in commands.values()] == [
        ((host,), f"torchrun --nnodes 2 --nproc-per-node 2 --node-rank {rank} {common}", prints)
        for rank, (host, prints) in enumerate([(1, "c"), (2, None)])
    ]


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("launcher: srun, run: a", "no launcher 'srun'"),
        ("launcher: mpirun", "'launcher' without 'run'"),
        ("launcher: mpirun, run: a, commands: {h1: {run: a}}", "'commands' beside 'launcher'"),
        ("launcher: mpirun, run: a, rail: 1", "'rail' beside 'launcher'"),
        ("launcher: mpirun, run: a, hosts: [h1, h9]", "no host 'h9'"),
        ("run: a, commands: {h1: {run: a}}", "'run' beside 'commands'"),
        ("hosts: 2, commands: {h1: {run: a}}", "'hosts' beside 'commands'"),
        ("launcher: mpirun, run: a, figures: ['took [0-9]+']", "has no named group"),
        ("launcher: mpirun, run: a, figures: ['(?P<a>1)', '(?P<a>2)']", "'a' stands twice"),
    ],
)
def test_what_a_launcher_does_not_go_with(keys, what):
    with pytest.raises(UserError, match=re.escape(what)):
        launched(keys).workload(1)


def test_gates_of_printed_figures():
    text = HEAD + "expect: {printed.p50_us: '< 40 us', median printed.bw_gbps: '> 1 Gbit'}\n"
    gates = expect.gates(launched("launcher: mpirun, run: a", text).raw.expect)
    assert [gate.bound for gate in gates] == [40, 1]
    bad = HEAD + "expect: {printed.p50_us / printed.max_ms: '< 1'}\n"
    with pytest.raises(UserError, match="different units"):
        launched("launcher: mpirun, run: a", bad)
