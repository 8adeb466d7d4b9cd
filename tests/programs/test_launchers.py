# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments that a launcher starts: MPI on two and four hosts, without loss and with."""

import re

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.hosts.program_words import NO_PACKET
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import prepare_verbs
from tests.programs import packages
from tests.programs.experiments import carried, run

SOURCE = PROJECT_ROOT / "examples/programs/allreduce.c"
BYTES, TIMES = 1 << 20, 10


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds the example for a launcher: its path."""
    prepare_verbs()

    def build(launcher):
        return packages.built_for_mpi(launcher, SOURCE, tmp_path_factory.mktemp("mpi"))

    return build


@pytest.mark.parametrize("launcher", packages.MPI)
@pytest.mark.parametrize(
    ("hosts", "ranks", "gid", "loss"),
    [(2, 1, "0", None), (4, 1, "1", "1%"), (4, 2, "0", "1%"), (4, 4, "0", None)],
)
def test_an_all_reduce_goes_by_roce(built, tmp_path, launcher, hosts, ranks, gid, loss):
    found, recorded = run(
        tmp_path, hosts,
        {
            "launcher": launcher,
            "ranks_per_host": ranks,
            "run": f"{built(launcher)} {BYTES} {TIMES}",
            "prints": f"^{hosts * ranks} ranks, .* all sums right$",
            "figures": [r"median (?P<median_ms>[\d.]+) ms, max (?P<max_ms>[\d.]+)"],
            "environment": {"UCX_RC_TIMEOUT": "100ms", "UCX_IB_GID_INDEX": gid},
        },
        loss,
        expect={"printed.median_ms": "> 0 ms", "printed.max_ms / printed.median_ms": ">= 1"},
    )  # fmt: skip
    carried(found, recorded, 2 * (hosts - 1) * BYTES * TIMES, int(gid))
    assert found["runs"][0]["printed.max_ms"] >= found["runs"][0]["printed.median_ms"]
    program = recorded["programs"]["h1"]
    assert program["environment"]["UCX_RC_TIMEOUT"] == "100ms"
    places = {(each.get("host", "h1"), each["rank"]) for each in program["processes"]}
    assert places == {(f"h{rank // ranks + 1}", rank) for rank in range(hosts * ranks)}
    if loss:
        explained = CliRunner().invoke(app, ["results", "explain", found["run_dir"]]).stdout
        assert re.search(r"process \d+, rank \d\), h\d->h\d, queue pair", explained), explained


def test_a_rank_that_fails_fails_the_run(built, tmp_path):
    launcher = "mpirun.openmpi"
    built(launcher)
    found, _ = run(tmp_path, 2, {"launcher": launcher, "run": "test $OMPI_COMM_WORLD_RANK = 0"})
    [reason] = found["runs"][0]["reasons"]
    assert reason.startswith("h1: ended with 1, not with 0")


@pytest.mark.parametrize(
    ("figure", "reasons"),
    [
        ("(?P<number>2)", ["h1: its output has no figures of '(?P<number>2)'"]),
        ("(?P<number>1)", [f"{host}: {NO_PACKET}" for host in ("h1", "h2")]),
    ],
)
def test_a_figure_that_is_lacking_and_hosts_that_send_nothing(built, tmp_path, figure, reasons):
    launcher = "mpirun.openmpi"
    built(launcher)
    found, _ = run(tmp_path, 2, {"launcher": launcher, "run": "echo 1", "figures": [figure]})
    assert found["runs"][0]["reasons"] == reasons
