# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench shift`: a connection with a backup beside one without."""

import json
import os

import pytest

from softroce_lab.bench.failover import measure
from softroce_lab.cli.development import bench_shift
from softroce_lab.statistics import median_interval


def test_in_memory():
    hoard = [bytes(4096) for _ in range(50_000)]  # 200 MB that would serve all backups here
    del hoard
    memory_bytes, cpu = measure.in_fresh_memory(3)
    assert 1_000 < memory_bytes < 1_000_000
    assert cpu.keys() == {"cpu_write_ratio", "cpu_trip_ratio", "cpu_setup_ratio"}
    assert all(ratio.median > 0 for ratio in cpu.values())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_over_a_lab():
    options = measure.Options(
        rounds=2, trips=20, chains=3, failovers=1, setup_qps=20, name=f"benchshift{os.getpid()}"
    )
    outcome = measure.run(options, lambda _: None)
    document = json.loads(json.dumps(outcome.document()))
    for name in ("rate_ratio", "latency_ratio", "failover_ns", "memory_per_backup_bytes"):
        assert document[name] > 0
    (failover,) = document["failovers"]
    assert failover["detection_ns"] > 0
    assert document["failover_ns"] == failover["handshake_ns"] + failover["first_good_ns"]


def test_in_words(capsys, monkeypatch):
    one = median_interval([1.0])
    failover = measure.Failover(60_000_000, 400_000, 1_500_000)
    cpu = {"cpu_trip_ratio": one}
    outcome = measure.Outcome(one, one, cpu, (failover,), 78_000, one, "generic")
    monkeypatch.setattr(measure, "run", lambda options, say: outcome)
    bench_shift.shift()
    words = capsys.readouterr().out
    assert "78,000 bytes" in words
    assert "1.9 ms" in words
