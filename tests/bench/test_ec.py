# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench ec` in a short form: the document, not the speed."""

from softroce_lab import _native
from tests.bench.test_engine_and_path import bench, document, holds

CODES = {"mds", "xor", "mds_decode", "xor_decode"}
SHORT = ("--rounds", "2", "--size", "1MiB", "--working-set", "1B", "--k", "8", "--m", "2")


def test_ec(tmp_path):
    figures = document(tmp_path, "ec", *SHORT)
    measured = CODES | ({"isal_mds", "isal_xor"} if _native.has_isal else set())
    assert {name for name in figures if name.endswith("_bytes_per_second")} == {
        f"{name}_bytes_per_second" for name in measured
    }
    for name in measured:
        assert holds(figures["interval_95"][name], figures[f"{name}_bytes_per_second"]), name
    assert set(figures["ratios_to_isal"]) == ({"mds", "xor"} if _native.has_isal else set())
    assert (figures["working_set_bytes"], figures["chunk_bytes"]) == (8 << 16, 1 << 16)


def test_ec_in_words(tmp_path):
    result = bench(tmp_path, "ec", *SHORT)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[:4]] == [
        "mds", "xor", "mds_decode", "xor_decode",
    ]  # fmt: skip


def test_a_code_that_is_none_is_refused(tmp_path):
    result = bench(tmp_path, "ec", "--k", "2", "--m", "3")
    assert result.returncode == 2
    assert "m is 3, more than k = 2" in result.stderr
    assert "multiples of 64" in bench(tmp_path, "ec", "--chunk", "100B").stderr
