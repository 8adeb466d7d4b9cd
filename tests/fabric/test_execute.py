# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab exec` becomes another program, so it is tried as a command."""

import os

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab


@pytest.fixture
def running(two_hosts):
    lab.up(two_hosts).close()
    return two_hosts


def test_it_runs_at_the_node(running, run_lab):
    result = run_lab("exec", "--lab", running.name, "h2", "--", "ip", "-br", "-4", "address")
    assert running.node("h2").address in result.stdout


def test_the_exit_status_is_the_commands(running, run_lab):
    result = run_lab("exec", "h1", "--lab", running.name, "--", "sh", "-c", "exit 42")
    assert result.returncode == 42


def test_only_the_network_namespace_changes(running, run_lab):
    kinds = ["mnt", "pid", "net"]
    argv = ["readlink", *(f"/proc/self/ns/{kind}" for kind in kinds)]
    result = run_lab("exec", "--lab", running.name, "h1", "--", *argv)
    mounts, pids, network = result.stdout.split()
    assert (mounts, pids) == (os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/pid"))
    assert network != os.readlink("/proc/self/ns/net")


def test_an_unknown_node_is_refused_with_the_known_ones(running, run_lab):
    result = run_lab("exec", "--lab", running.name, "h9", "--", "true")
    assert result.returncode == 2
    assert "no node h9" in result.stderr
    assert "h1, h2, s1" in result.stderr


def test_an_unknown_lab_is_refused(running, run_lab):
    result = run_lab("exec", "--lab", "nowhere", "h1", "--", "true")
    assert result.returncode == 2
    assert "no lab called nowhere" in result.stderr


def test_an_unknown_program_is_refused(running, run_lab):
    result = run_lab("exec", "--lab", running.name, "h1", "--", "/no/such")
    assert result.returncode == 2
    assert "cannot run /no/such: No such file" in result.stderr


def test_an_empty_word_is_no_program(running, run_lab):
    result = run_lab("exec", "--lab", running.name, "h1", "--", "")
    assert result.returncode == 2
    assert "lab: the command is an empty word" in result.stderr


def test_several_labs_need_a_name(running, run_lab):
    other = topology.load("two-hosts", name=f"{running.name}b")
    with lab.up(other) as second:
        result = run_lab("exec", "h1", "--", "true")
        assert result.returncode == 2
        assert "several labs are up" in result.stderr
        assert running.name in result.stderr
        second.down()
