# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench policy` in a short form: the document and what stays behind, not the speed."""

from tests.bench.test_engine_and_path import bench, document, holds
from tests.recovery.test_message_policy import ROOT

NACK = f"{ROOT}/examples/transports/nack.py:Nack"


def test_policy(tmp_path, nothing_left):
    figures = document(tmp_path, "policy", NACK, "csa_ud", "--rounds", "1", "--transfer", "8MiB")
    assert (figures["schema_version"], figures["rounds"]) == (1, 1)
    assert set(figures["ratios"]) == set(figures["ratios_interval_95"]) == {"Nack", "csa_ud"}
    for name, ratio in figures["ratios"].items():
        assert ratio > 0
        assert holds(figures["ratios_interval_95"][name], ratio), name
    assert set(figures["goodput_bps"]) == {"ud_rto", "Nack", "csa_ud"}
    assert all(figures["goodput_bps"].values())
    assert list(tmp_path.iterdir()) == []


def test_policy_in_words(tmp_path, nothing_left):
    result = bench(tmp_path, "policy", NACK, "--rounds", "1", "--transfer", "8MiB")
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["ud_rto", "Nack"]
