# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments of programs as they are written: what is refused, and where."""

import re

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment import frozen, spec
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry.rundir import RunDirectory
from softroce_lab.transports import registry

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
    assert (work.ranks, work.name, found.transports[0].label) == ((2, 0), "program", "rc")
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


# --- Transports -----------------------------------------------------------------------------------

ONE = "{h1: {run: a}}"


def over(transports, commands=ONE):
    return of(commands, f"{HEAD}transports: {transports}\n")


def test_transports_and_their_settings():
    found = over("[rc, {name: csa_ud, options: {parity: 0}, window: 64}, sdr_ec]")
    labels = ["rc", "csa_ud+parity=0+window=64", "sdr_ec"]
    assert [each.label for each in found.transports] == labels
    assert [each.frames for each in found.transports] == ["ud"] * 3  # of sdr_ec not the default
    assert [found.place_of(each) for each in found.transports] == [
        ("transports", number) for number in range(3)
    ]


@pytest.mark.parametrize(
    ("transports", "at", "what"),
    [
        ("[rc, oracle]", "oracle", "oracle exists on the virtual clock only"),
        ("[rc, {name: lossless}]", "lossless", "lossless exists on the virtual clock only"),
        ("[{name: sdr_ec, framing: uc_immediate}]", "uc_imm", "programs need the framing ud"),
        ("[{name: rc, window: 64}]", "64", "rc takes no options here"),
        ("[{name: rc, congestion_control: dcqcn}]", "dcqcn", "rc takes no options here"),
        ("[shift]", "shift", "shift needs two devices of a host"),
        ("[csa_ud, irm]", "irm", "unknown transport 'irm'"),
        ("[irn, irn]", "irn", "two transports are called 'irn'"),
        ("[{name: csa_ud, options: {parity: 99}}]", "99", "option 'parity'"),
    ],
)
def test_transports_that_programs_cannot_use(transports, at, what):
    with pytest.raises(UserError, match=re.escape(what)) as caught:
        over(transports)
    error = caught.value
    column = f"transports: {transports}".rindex(at) + 1
    assert (error.file, error.line, error.column) == ("x.yaml", 4, column)


def test_a_policy_of_the_users_own_is_refused(tmp_path):
    assert CliRunner().invoke(app, ["new", "transport", str(tmp_path / "own.py")]).exit_code == 0
    [name] = re.findall(r"^class (\w+)", (tmp_path / "own.py").read_text(), re.MULTILINE)
    file = tmp_path / "mine.yaml"
    what = f"own.py:{name}: a program cannot use a policy of your own"
    text = "workload: {kind: program, commands: {h1: {run: a}}}\n"
    for written, column in ((f"[./own.py:{name}]", 14), (f"[{{policy: ./own.py:{name}}}]", 23)):
        file.write_text(f"{HEAD}transports: {written}\n{text}")
        with pytest.raises(UserError, match=re.escape(what)) as caught:
            spec.load(file)
        assert (caught.value.line, caught.value.column) == (4, column)
    file.write_text(HEAD + text)
    with pytest.raises(UserError, match=re.escape(what)):
        spec.with_transports(spec.load(file), [f"{tmp_path}/own.py:{name}"])


def test_backups_are_of_rc_alone():
    shift = '{h1: {run: a, environment: {SOFTROCE_SHIFT: "1"}}}'
    assert over("[rc]", shift).transports[0].label == "rc"
    what = "csa_ud with SOFTROCE_SHIFT in 'environment': only RC has backups"
    with pytest.raises(UserError, match=what) as caught:
        over("[rc, csa_ud]", shift)
    assert (caught.value.line, caught.value.column) == (4, 18)


def test_transports_of_the_command_line():
    whole = over("[rc, {name: csa_ud, window: 64}]")
    chosen = spec.with_transports(whole, ["csa_ud", "small=sdr_ec"])
    assert [each.label for each in chosen.transports] == ["csa_ud+window=64", "small"]
    assert chosen.transports[1].frames == "ud"
    with pytest.raises(UserError, match="oracle exists on the virtual clock only"):
        spec.with_transports(whole, ["oracle"])


def test_a_frozen_experiment_has_the_same_transports(tmp_path):
    whole = over(f"[{', '.join(registry.transports())}]")
    directory = RunDirectory.create("frozen", under=tmp_path)
    frozen.write(directory, whole)
    again = spec.load(directory.path / frozen.FILE)
    assert again.transports == whole.transports
    assert over("[rc]").transports == of(ONE).transports


def test_a_sweep_chooses_the_transports(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "name: several\n"
        "experiment:\n"
        "  topology: {generator: {kind: star, hosts: 2}}\n"
        "  clock: real\n"
        "  workload: {kind: program, commands: {h1: {run: a}}}\n"
        "transports: all\n"
    )
    tasks = sweep_spec.load(file).tasks("code")
    assert [each.transport.label for each in tasks] == registry.transports()


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
