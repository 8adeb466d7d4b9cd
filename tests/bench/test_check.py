# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench check` in a short form, and the talks that it records."""

import numpy as np
import pytest

from softroce_lab.bench import recorded_talk
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packets import Has, Kind
from tests.bench.test_engine_and_path import bench, document
from tests.native.frames import CAPTURES


def test_check(tmp_path):
    figures = document(tmp_path, "check", "--packets", "300")
    assert [each["name"] for each in figures["captures"]] == ["rc", "csa_ud"]
    for each in figures["captures"]:
        assert each["packets"] >= 300
        assert not each["failed"]
        for cost in (each["read"], each["check"]):
            assert cost["cpu_seconds"] > 0
            assert 1 << 20 < cost["peak_bytes"] < 1 << 30
    assert list(tmp_path.iterdir()) == []


def test_a_capture_of_one_s_own(tmp_path):
    result = bench(tmp_path, "check", str(CAPTURES / "rxe_ud.pcap"))
    assert result.returncode == 0, result.stderr
    assert "154 packets" in result.stdout


def test_what_is_no_capture_is_refused(tmp_path):
    result = bench(tmp_path, "check", "/dev/null")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "/dev/null" in result.stderr


@pytest.mark.parametrize("talk", recorded_talk.TALKS)
def test_a_recorded_talk_has_losses_and_recovers_from_them(tmp_path, talk):
    path = tmp_path / "talk.pcap"
    written = recorded_talk.write(path, 12_000, talk)
    capture = capture_file.read(path)
    assert capture.notes == ()
    packets = capture.packets
    assert len(packets) == written >= 12_000
    assert np.all(packets["kind"] == Kind.ROCE)
    assert np.all(packets["has"] & Has.ICRC_GOOD)
    if talk == "rc":
        naks = packets[packets["has"] & Has.AETH != 0]["syndrome"] >> 5 == 3
        assert naks.sum() >= 2
    else:
        assert np.count_nonzero(packets["lab_attempt"]) >= 5


def test_a_seed_tells_what_is_lost(tmp_path):
    files = [tmp_path / "first", tmp_path / "second", tmp_path / "other"]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        recorded_talk.write(file, 3_000, "csa_ud", seed=seed)
    first, second, other = (file.read_bytes() for file in files)
    assert first == second != other
