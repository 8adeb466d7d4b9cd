# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench` as a command, in a short form: the document and what stays behind, not the speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab.bench import up

BENCH_S = 120.0  # one that takes longer hangs
RATIOS = {"switch_over_raw", "loss_over_switch", "csa_ud_over_raw", "csa_ud_over_udp"}
MEASURED = {"raw", "switch", "loss", "csa_ud", "tcp", "udp"}


def bench(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "bench", *arguments],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BENCH_S,
        check=False,
    )


def document(folder, *arguments):
    result = bench(folder, *arguments, "--json", "--quiet")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def positive(values):
    return all(value > 0 for value in values)


def holds(interval, median):
    """Whether a median, rounded to four places or to a whole number, is in its interval."""
    low, high = interval
    rounding = 0.5 if isinstance(median, int) else 0.51e-4
    return 0 < low <= high and low - rounding <= median <= high + rounding


def test_engine(tmp_path, nothing_left):
    figures = document(tmp_path, "engine", "--rounds", "2", "--size", "8MiB")
    assert figures["schema_version"] == 1
    assert figures["rounds"] == 2
    for name in ("bare_packets_per_second", "pair_packets_per_second", "ratio"):
        assert figures[name] > 0
        assert holds(figures["interval_95"][name.removesuffix("_packets_per_second")],
                     figures[name])  # fmt: skip
    assert figures["cpu"] in os.sched_getaffinity(0)
    assert figures["environment"]["kernel"] == os.uname().release
    assert list(tmp_path.iterdir()) == []


def test_engine_in_words(tmp_path):
    result = bench(tmp_path, "engine", "--rounds", "1", "--size", "8MiB")
    assert result.returncode == 0, result.stderr
    assert "round 1 of 1" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["bare", "pair", "ratio"]


def test_path(tmp_path, nothing_left):
    figures = document(tmp_path, "path", "--rounds", "1", "--seconds", "0.1", "--transfer", "8MiB")
    assert figures["schema_version"] == 1
    assert set(figures["ratios"]) == set(figures["ratios_interval_95"]) == RATIOS
    for name, ratio in figures["ratios"].items():
        assert ratio > 0
        assert holds(figures["ratios_interval_95"][name], ratio), name
    assert figures["pair_packets_per_second"] > 0
    for field in ("frames_per_second", "payload_bps"):
        assert set(figures[field]) == MEASURED
        assert positive(figures[field].values()), figures[field]
    assert figures["rounds"] == 1
    assert figures["xdp_mode"] in ("native", "generic")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("engine", "--size", "8"), "8"),
        (("engine", "--size", "8 parsecs"), "parsecs"),
        (("engine", "--rounds", "0"), "rounds"),
        (("engine", "--cpu", "4095"), "may not use CPU 4095"),
        (("path", "--transfer", "much"), "much"),
        (("path", "--seconds", "0"), "seconds"),
        (("path", "--xdp", "offload"), "offload"),
        (("policy", "ud_rto"), "ud_rto is what the others are compared with"),
        (("policy", "tcp"), "unknown transport 'tcp'"),
        (("policy", "csa_ud", "--transfer", "0"), "0 bytes"),
    ],
)
def test_bad_input(tmp_path, nothing_left, arguments, words):
    result = bench(tmp_path, *arguments)
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


SHAPES = {"fat_tree_k4", "star_100"}


def test_up(tmp_path, nothing_left):
    figures = document(tmp_path, "up", "--rounds", "1")
    assert (figures["schema_version"], figures["rounds"]) == (1, 1)
    assert set(figures["shapes"]) == set(figures["first_up_s"]) == SHAPES
    for shape, medians in figures["shapes"].items():
        assert set(medians) == {"up_s", "down_s"}
        for name, median in medians.items():
            assert 0 < median < 30
            assert holds(figures["shapes_interval_95"][shape][name], median)
        assert 0 < figures["first_up_s"][shape] < 60
    measured = figures["mininet"]["shapes"]
    assert set(measured) == SHAPES or figures["mininet"]["used"].startswith("not measured: ")
    assert figures["version_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_first_lab_of_a_shape_alone_compiles(nothing_left, monkeypatch):
    made, turn = [], up._Lab.turn

    def watched(lab, version_s):
        cache = Path(lab._environment["LAB_CACHE"])
        before = set(cache.rglob("*"))
        taken = turn(lab, version_s)
        made.append(set(cache.rglob("*")) - before)
        return taken

    monkeypatch.setattr(up._Lab, "turn", watched)
    monkeypatch.setattr(up._Mininet, "turn", lambda *_: [])
    up.run(up.Options(rounds=1, shapes=["fat_tree_k4"]), lambda _: None)
    first, second = made
    assert first
    assert not second


def test_up_of_one_shape_in_words(tmp_path, nothing_left):
    result = bench(tmp_path, "up", "--rounds", "1", "--shape", "fat-tree-k4")
    assert result.returncode == 0, result.stderr
    assert "round 1 of 1" in result.stderr
    assert "fat-tree-k4" in result.stdout
    assert "star-100" not in result.stdout
    assert "Mininet: " in result.stdout
