# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench event-log` in a short form: the document and what stays behind, not the cost."""

from tests.bench.test_engine_and_path import bench, document, holds, positive

WORKLOADS = {"write", "send", "trip"}


def test_the_document(tmp_path, nothing_left):
    found = document(tmp_path, "event-log", "--rounds", "2", "--seconds", "0.05", "--trips", "50")
    assert found["schema_version"] == 1
    assert set(found["on_over_off"]) == set(found["logged"]) == WORKLOADS
    for name, ratio in found["on_over_off"].items():
        assert holds(found["on_over_off_interval_95"][name], ratio)
    assert positive(found["messages_per_second"].values())
    for logged in found["logged"].values():
        assert logged["events"] > 0
        assert logged["bytes"] > 50 * logged["events"]
    assert found["rounds"] == 2
    assert list(tmp_path.iterdir()) == []


def test_in_words(tmp_path, nothing_left):
    result = bench(tmp_path, "event-log", "--rounds", "1", "--seconds", "0.05", "--trips", "20")
    assert result.returncode == 0, result.stderr
    assert "on / off" in result.stdout
    assert "lost" in result.stdout
