# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench shift`: a connection with a backup beside one without."""

import json
import os

import pytest

from softroce_lab.bench.failover import counted, instructions, measure
from softroce_lab.bench.failover.instructions import Count
from softroce_lab.cli.development import bench_shift
from softroce_lab.errors import RunError
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
    # A plain QP ends after 134 ms of silence, for as long as which a busy machine may stand still.
    for left in reversed(range(3)):
        try:
            outcome = measure.run(options, lambda _: None)
            break
        except RunError:
            if not left:
                raise
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
    counts = {"trip": Count(1000, 995, (0.995, 0.994, 0.996))}
    outcome = measure.Outcome(one, one, cpu, (failover,), 78_000, one, "generic", counts)
    monkeypatch.setattr(measure, "run", lambda options, say: outcome)
    bench_shift.shift()
    words = capsys.readouterr().out
    assert "78,000 bytes" in words
    assert "1.9 ms" in words
    assert "0.9950 (0.9940 to 0.9960), 995" in words
    assert outcome.document()["instructions"]["trip"]["ratio"] == 0.995


# ---------------------------------------------------------------- instructions


@pytest.mark.skipif(instructions.lack() is not None, reason="needs valgrind")
def test_instructions_stay_within_what_was_aimed_for():
    """At most 1.01 of a plain queue pair's a message, and 1.05 of its set-up."""
    found = instructions.measure()
    print({name: each.document() for name, each in found.items()})
    assert found["trip"].ratio <= 1.01
    assert found["write"].ratio <= 1.01
    assert found["setup"].ratio <= 1.05


def dump(folder, number, name, total):
    text = f"desc: Trigger: Client Request: {name}\nfn=f\n1 2\ntotals: {total}\n"
    (folder / f"out.{number}").write_text(text)


def test_dumps_are_read_in_the_order_of_their_numbers(tmp_path):
    dump(tmp_path, 1, "warm plain trip", 10**9)
    number = 1
    for turn in range(counted.ROUNDS):
        for part in counted.MESSAGES:
            for kind, more in (("plain", 0), ("shift", turn)):
                number += 1
                dump(tmp_path, number, f"{kind} {part}", 100 + more)
    found = instructions.counts(tmp_path)
    assert found["trip"].ratios == (1.0, 1.01, 1.02, 1.03, 1.04)
    assert found["write"].shift == 102 / counted.MESSAGES["write"]
    (tmp_path / f"out.{number}").unlink()
    with pytest.raises(RunError, match="4 counts of setup, not 5"):
        instructions.counts(tmp_path)


def test_without_valgrind_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(instructions.shutil, "which", lambda name: None)
    assert "apt install valgrind" in instructions.lack()
    assert instructions.measure() == {}


def test_outside_of_valgrind_requests_do_nothing():
    assert counted.Callgrind().count("nothing", lambda: 5) == 5
