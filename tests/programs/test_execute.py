# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab exec` becomes another program, so it is tried as a command."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.cli import exec as lab_exec
from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts import program_transport
from softroce_lab.fabric import lab
from softroce_lab.fabric.net import host, syscalls
from softroce_lab.fabric.observe import view
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.programs import execute


@pytest.fixture
def running(two_hosts):
    lab.up(two_hosts).close()
    return two_hosts


def test_it_runs_at_the_node_and_ends_as_the_command(running, run_lab):
    script = "ip -br -4 address; exit 42"
    result = run_lab("exec", "--lab", running.name, "h2", "--", "sh", "-c", script)
    assert running.node("h2").address in result.stdout
    assert result.returncode == 42


def test_without_a_command_it_is_a_shell(running):
    command = [sys.executable, "-m", "softroce_lab.cli", "exec", "--lab", running.name, "h2"]
    result = subprocess.run(command, cwd=PROJECT_ROOT, input="ip -br -4 address\nexit 5\n",
                            capture_output=True, text=True, timeout=60)  # fmt: skip
    assert result.returncode == 5
    assert running.node("h2").address in result.stdout


def test_processes_files_and_mounts_stay(running, run_lab):
    maps = f"/run/softroce_lab/{running.name}/bpf"
    script = f"readlink /proc/self/ns/pid /proc/self/ns/net; ls {maps}; cat /proc/self/mounts"
    pids, network, *rest = run_lab("exec", "--lab", running.name, "h1", "--", "sh", "-c",
                                   script).stdout.splitlines()  # fmt: skip
    assert pids == os.readlink("/proc/self/ns/pid")
    assert network != os.readlink("/proc/self/ns/net")
    assert "counters" in rest
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    assert [line for line in mounts if line not in rest] == []


def test_a_node_has_its_hostname_and_its_shared_memory(running, run_lab):
    def at(node, script):
        return run_lab("exec", "--lab", running.name, node, "--", "sh", "-c", script).stdout

    look = "hostname; ls /dev/shm; ipcs -m"
    before = socket.gethostname(), os.listdir(host.SHM)
    at("h1", "touch /dev/shm/softroce-test; ipcmk -M 16")
    same, other = at("h1", look), at("h2", look)
    assert (same.split()[0], other.split()[0]) == ("h1", "h2")
    assert ("softroce-test" in same, "0x" in same) == (True, True)
    assert ("softroce-test" in other, "0x" in other) == (False, False)
    assert (socket.gethostname(), os.listdir(host.SHM)) == before


def test_a_host_whose_namespaces_are_gone_is_named(running, run_lab, traces):
    syscalls.umount(str(traces.directory / "hosts"))
    result = run_lab("exec", "--lab", running.name, "h1", "--", "true")
    assert result.returncode == 1
    assert f"lab down {running.name}, and up again" in result.stderr


def test_hosts_have_names_there_and_nowhere_else(running, run_lab):
    before = Path("/etc/hosts").read_bytes()
    result = run_lab("exec", "--lab", running.name, "h1", "--", "getent", "ahostsv4", "h2")
    assert result.stdout.split()[0] == running.node("h2").address
    rail = run_lab("exec", "--lab", running.name, "h1", "--", "getent", "ahostsv6", "h2.eth1")
    assert rail.stdout.split()[0] == running.node("h2").ports[0].address6
    assert Path("/etc/hosts").read_bytes() == before
    assert list(Path("/run").glob("softroce_lab-hosts-*")) == []


def test_every_rail_has_a_name_and_the_first_is_the_hosts():
    plan = topology.load("dual-rail")
    lines = execute.hosts_text(plan, "127.0.0.1 localhost\n").splitlines()
    first, second = plan.node("h1").ports
    assert lines[0] == "127.0.0.1 localhost"
    assert f"{first.address} h1 h1.{first.name}" in lines
    assert f"{second.address6} h1.{second.name}" in lines
    text = "\n".join(lines)
    assert execute.hosts_text(plan, text) == text


@pytest.mark.parametrize(
    "arguments", [("h1", "ping", "-c", "1", "h2"), ("--lab", "x", "h1", "id", "-u")]
)
def test_options_of_the_command_want_dashes(run_lab, arguments):
    result = run_lab("exec", *arguments)
    assert result.returncode == 2
    start = arguments.index("h1")
    assert f"lab exec h1 -- {' '.join(arguments[start + 1 :])}" in result.stderr


@pytest.mark.parametrize(
    "flags", [("--verbs",), ("--transport", "irn"), ("--transport=irn", "--preload")]
)
def test_the_line_with_dashes_keeps_the_options_of_exec(run_lab, flags):
    result = run_lab("exec", *flags, "h1", "id", "-u")
    assert result.returncode == 2
    assert "lab exec has no option -u" in result.stderr
    assert f"lab exec {' '.join(flags)} h1 -- id -u" in result.stderr


# ---------------------------------------------------------------- --transport

HANDED_ON = ("printenv", execute.TRANSPORT)


def exec_over(pair, *words, **variables):
    """`lab exec` with these words, at a lab whose library of verbs is built."""
    argv = [sys.executable, "-m", "softroce_lab.cli", "exec", "--lab", pair.name, *words]
    return subprocess.run(argv, cwd=PROJECT_ROOT, env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=60)  # fmt: skip


def test_the_transport_reaches_the_program_as_a_text(pair):
    argument = "csa_ud,parity=2,window=64"
    result = exec_over(pair, "--transport", argument, "h1", "--", *HANDED_ON)
    wanted = program_transport.text(program_transport.of_argument(argument), pair.lab.plan)
    assert (result.stdout, result.stderr) == (f"{wanted}\n", "")
    devices = exec_over(pair, f"--transport={argument}", "h1", "--", "ibv_devinfo", "-l")
    assert ("softroce0" in devices.stdout, devices.stderr) == (True, "")


def test_a_launcher_hands_the_transport_on(pair):
    line = f"{sys.executable} -m softroce_lab.cli ssh h2 hostname '&&' {' '.join(HANDED_ON)}"
    result = exec_over(pair, "--transport", "irn", "h1", "--", "sh", "-c", line)
    host, text = result.stdout.splitlines()
    assert (host, text.partition(",")[0]) == ("h2", "transport=irn")


def test_rc_changes_nothing(pair):
    given = {execute.TRANSPORT: "transport=csa_ud"}
    result = exec_over(pair, "--transport", "rc", "h1", "--", *HANDED_ON, **given)
    assert (result.returncode, result.stdout) == (1, "")
    devices = exec_over(pair, "--transport", "rc", "h1", "--", "ibv_devinfo", "-l", **given)
    assert ("softroce0" in devices.stdout, devices.stderr) == (True, "")


@pytest.mark.parametrize(
    ("flags", "what", "hint"),
    [
        (("csa_du",), "unknown transport 'csa_du'", "did you mean 'csa_ud'?"),
        (("oracle",), "oracle exists on the virtual clock only", "another transport"),
        (("lossless",), "lossless exists on the virtual clock only", "another transport"),
        (("./own.py:Own",), "./own.py:Own: a program cannot use a policy of your own", "built-in"),
        (("csa_ud,framing=uc_immediate",), "programs need the framing ud", "leave framing out"),
        (("csa_ud,parity=9",), "option 'parity': unknown value '9'", "one of: auto"),
        (("csa_ud", "--shift"), "--transport csa_ud with --shift: only RC has backups", "leave"),
    ],
)
def test_a_transport_that_programs_cannot_have_is_refused(run_lab, flags, what, hint):
    """Whether a lab is up or not."""
    result = run_lab("exec", "--transport", *flags, "h1", "--", "true")
    assert result.returncode == 2
    assert what in result.stderr
    assert hint in result.stderr


def test_a_kernel_host_has_no_transport(monkeypatch):
    monkeypatch.setenv("LAB", "none")
    seen = view.View(topology.load("kernel-peer"))
    with pytest.raises(UserError, match="k1 is a kernel host") as caught:
        lab_exec.run_at(seen, "k1", ["true"], with_rnic=True)
    assert "--transport out" in caught.value.hint


@pytest.mark.parametrize(
    ("where", "node", "word", "why"),
    [
        (None, "h9", "true", "no node h9"),
        (None, "h9", "true", "h1, h2, s1"),
        ("nowhere", "h1", "true", "no lab called nowhere"),
        (None, "h1", "", "lab: the command is an empty word"),
    ],
)
def test_what_is_not_there_is_refused(running, run_lab, where, node, word, why):
    result = run_lab("exec", "--lab", where or running.name, node, "--", word)
    assert result.returncode == 2
    assert why in result.stderr


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("/no/such", 127, "No such file or directory"),
        ("no-such-program", 127, "No such file or directory"),
        ("/etc/hosts", 126, "Permission denied"),
        ("/etc", 126, "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_run_ends_as_in_a_shell(running, run_lab, program, code, why):
    result = run_lab("exec", "--lab", running.name, "h1", "--", program)
    assert result.returncode == code
    assert f"cannot run {program}: {why}" in result.stderr


def test_several_labs_need_a_name(running, run_lab):
    other = topology.load("two-hosts", name=f"{running.name}b")
    with lab.up(other) as second:
        result = run_lab("exec", "h1", "--", "true")
        assert result.returncode == 2
        assert "several labs are up" in result.stderr
        assert running.name in result.stderr
        result = run_lab("perf", "send_lat", "h1", "h2")
        assert (result.returncode, result.stdout) == (2, "")
        assert "several labs are up" in result.stderr
        second.down()
