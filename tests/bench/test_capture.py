# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench capture` in a short form: the document and what stays behind, not the speed."""

from tests.bench.test_engine_and_path import bench, document, holds

SHORT = ("--rounds", "1", "--seconds", "0.2", "--rate", "5000", "--flood", "0.1")


def test_capture(tmp_path, nothing_left):
    figures = document(tmp_path, "capture", *SHORT)
    assert (figures["schema_version"], figures["snap_bytes"]) == (1, 128)
    paced, flood = figures["paced"], figures["flood"]
    assert paced["sent"] == 1000 >= paced["received"]
    assert paced["captured"] + paced["missed"] == paced["received"]
    assert paced["in_file"] == paced["captured"] > 0
    assert 0 < paced["frames_per_second"] < 5500
    assert paced["file_bytes"] > 128 * paced["captured"]
    assert holds(flood["ratio_interval_95"], flood["ratio"])
    assert flood["rounds"] == 1
    assert flood["received"] >= flood["missed"] >= 0
    assert set(flood["frames_per_second"]) == {"captured", "plain"}
    assert list(tmp_path.iterdir()) == []


def test_capture_in_words(tmp_path):
    result = bench(tmp_path, "capture", *SHORT, "--snap", "0")
    assert result.returncode == 0, result.stderr
    assert "paced: " in result.stdout
    assert " missed" in result.stdout
    assert "ratio" in result.stdout


def test_what_makes_no_sense_is_refused(tmp_path):
    for arguments, words in ((("--snap", "5000"), "snap length"), (("--rate", "1e12"), "too many")):
        result = bench(tmp_path, "capture", *arguments)
        assert result.returncode == 2
        assert words in result.stderr
