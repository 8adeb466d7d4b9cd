# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab ssh`, called as launchers call ssh(1)."""

import secrets
import subprocess
import sys

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import prepare_verbs

LAUNCHED_S = 120


@pytest.fixture(scope="module")
def name():
    plan = topology.load("two-hosts", name=f"t{secrets.token_hex(3)}")
    with lab.owned(plan):
        prepare_verbs()
        yield plan.name


def ssh(lab_name, *words, given="given"):
    argv = [sys.executable, "-m", "softroce_lab.cli", "ssh", "--lab", lab_name, *words]
    return subprocess.run(argv, cwd=PROJECT_ROOT, input=given, capture_output=True, text=True,
                          timeout=60)  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("h2",),
        ("-x", "-q", "-T", "h2"),
        ("-o", "BatchMode=yes", "-oPort=1", "-l", "somebody", "-p", "22", "somebody@h2"),
        ("h2.eth1", "-o", "BatchMode=yes", "-p22"),
        ("--", "h2", "--"),
    ],
)
def test_a_shell_of_the_host_gets_the_joined_words_and_the_input(name, words):
    done = ssh(name, *words, "cat; echo  two", "words '$((1 + 1))'", "$(hostname); exit 7")
    assert done.stdout == "giventwo words $((1 + 1)) h2\n"
    assert done.returncode == 7


def test_an_address_names_its_host_and_n_withholds_the_input(name):
    address = topology.load("two-hosts").node("h1").address
    assert ssh(name, "-n", address, "hostname; cat").stdout == "h1\n"


def test_without_a_command_a_shell_reads_the_input(name):
    assert ssh(name, "h1", given="hostname\n").stdout == "h1\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-N", "h1"), "-N"),
        (("h1", "-L", "1:h2:1", "true"), "-L"),
        (("-x", "-q"), "no host"),
        (("h9", "true"), "h1, h2"),
    ],
)
def test_what_it_cannot_do_is_refused(name, words, why):
    done = ssh(name, *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_from_host_to_host_everything_is_the_other_ones(name):
    """A launcher at h1 hands its environment to h2."""
    there = "hostname; ibv_devinfo -v -d softroce0 | grep -i 'GID.*0.*ffff'"
    line = f"{sys.executable} -m softroce_lab.cli ssh h2 {there!r}"
    host, gid = ssh(name, "h1", line).stdout.splitlines()
    assert host == "h2"
    assert gid.split(":ffff:")[1].startswith(topology.load("two-hosts").node("h2").address)


def test_open_mpi_starts_a_rank_at_each_host(tmp_path):
    prepare_verbs()
    agent = f"{sys.executable} -m softroce_lab.cli ssh"
    launch = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "-H", "h1,h2,h3,h4"]
    script = "echo $(hostname) $(ibv_devices | grep -o softroce0)"
    file = tmp_path / "four.yaml"
    file.write_text("name: four\ntopology: {generator: {kind: star, hosts: 4}}\n")
    with lab.owned(topology.load(str(file), name=f"t{secrets.token_hex(3)}")) as up:
        argv = [sys.executable, "-m", "softroce_lab.cli", "exec", "--verbs", "--lab", up.plan.name]
        done = subprocess.run([*argv, "h1", "--", *launch, "sh", "-c", script], cwd=PROJECT_ROOT,
                              capture_output=True, text=True, timeout=LAUNCHED_S)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"h{number} softroce0" for number in range(1, 5)]
