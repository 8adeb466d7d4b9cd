# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep on a Dask cluster of this machine: the same rows, and no hanging."""

import contextlib
import socket
import sys
import time

import pytest

from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment import code_version, reporter
from softroce_lab.experiment.sweep import campaign, spec
from softroce_lab.experiment.sweep import cluster as sweep_cluster
from softroce_lab.experiment.sweep import pool as sweep_pool
from softroce_lab.experiment.sweep.campaign import Options
from softroce_lab.experiment.sweep.pool import Work
from tests import own_policy
from tests.experiment.sweep.sweep_works import current_thread

distributed = pytest.importorskip("distributed")

SWEEP = """\
name: many
experiment:
  topology: {generator: {kind: star, hosts: 2, access: {delay: 1us}}}
  transports: [csa_ud, rc]
  workload: {kind: point-to-point, bytes: 64KiB}
over: {workload.bytes: [16KiB, 64KiB]}
seeds: 2
"""
ENDS_S = 60


class Silent(reporter.Silent):
    def begin(self, runs):
        pass

    def done(self, task, row):
        pass


@contextlib.contextmanager
def cluster(workers):
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=2, processes=False, dashboard_address=":0",
        protocol="tcp", silence_logs="critical",
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def scheduler():
    with cluster(1) as made:
        yield made.scheduler_address


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.yaml").write_text(SWEEP)
    return spec.load("many")


def test_a_cluster_gives_the_rows_of_this_machine(scheduler, many, monkeypatch):
    there = campaign.run(many, Options(scheduler=scheduler), Silent())
    assert there.passed
    monkeypatch.setattr(
        campaign, "_pool", lambda crew, jobs: contextlib.nullcontext(sweep_pool.OneByOne())
    )
    here = campaign.run(many, Options(fresh=True), Silent())
    costs = ("wall_s", "cpu_s")
    rows = [
        [{name: value for name, value in row.items() if name not in costs} for row in each.rows]
        for each in (there, here)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 8


def test_as_many_runs_at_a_time_as_there_are_threads(scheduler):
    with sweep_cluster.cluster(scheduler) as pool:
        assert pool.slots == 2
    with sweep_cluster.cluster(scheduler, 5) as pool:
        assert pool.slots == 5


def test_a_cluster_whose_workers_go_is_given_up(many):
    with cluster(1) as made, sweep_cluster.cluster(made.scheduler_address) as pool:
        made.scale(0)
        end = time.monotonic() + ENDS_S
        while made.scheduler_info["workers"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        with pytest.raises(RunError, match="the cluster has no workers any more"):
            list(sweep_pool.carry_out(many.tasks("")[:1], Work(), pool, sweep_pool.unfinished))


def test_workers_with_other_code_are_refused(scheduler, monkeypatch):
    monkeypatch.setattr(code_version, "fingerprint", current_thread)
    with (
        pytest.raises(EnvironmentLackError, match="has another softroce_lab than this machine"),
        sweep_cluster.cluster(scheduler),
    ):
        pass


@pytest.mark.parametrize(
    "address", ["nonsense", "tcp://127.0.0.1", "gopher://127.0.0.1:1", "tcp://127.0.0.1:port"]
)
def test_what_is_no_address(address):
    with pytest.raises(UserError, match="is no address of a scheduler"):  # noqa: SIM117
        with sweep_cluster.cluster(address):
            pass


def test_where_nobody_answers(monkeypatch):
    monkeypatch.setattr(sweep_cluster, "CONNECT_S", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        for _ in range(2):  # nobody listens; then somebody who says nothing
            with pytest.raises(EnvironmentLackError, match="no Dask scheduler answers at"):  # noqa: SIM117
                with sweep_cluster.cluster(f"tcp://127.0.0.1:{port}"):
                    pass
            listening.listen()


def test_a_scheduler_without_workers():
    with (
        cluster(0) as made,
        pytest.raises(EnvironmentLackError, match="has no workers"),
        sweep_cluster.cluster(made.scheduler_address),
    ):
        pass


def test_without_distributed_it_says_how_to_get_it(many, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentLackError, match=r"pip install 'softroce-lab\[cluster\]'"):
        campaign.run(many, Options(scheduler="tcp://127.0.0.1:1"), Silent())


OWN = own_policy.named("Own")


@pytest.mark.parametrize("on", ["cluster", "processes"])
def test_a_transport_from_a_file(scheduler, many, tmp_path, on):
    """In every process that carries runs out."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "many.yaml").write_text(SWEEP.replace("[csa_ud, rc]", "[./own.py:Own, ud_rto]"))
    options = Options(scheduler=scheduler) if on == "cluster" else Options(jobs=2)
    rows = campaign.run(spec.load("many"), options, Silent()).rows
    assert {row["verdict"] for row in rows} == {"passed"}
    figures = [
        [row["makespan_ns"] for row in rows if row["transport"] == name]
        for name in ("Own", "ud_rto")
    ]
    assert figures[0] == figures[1]
    assert len(figures[0]) == 4
