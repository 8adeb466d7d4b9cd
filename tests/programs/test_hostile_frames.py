# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody sends a program of verbs anything at all: native/fuzz/library_frames.cpp.

Frames come through a port, as in a lab. The long form builds the library with sanitizers, too.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.telemetry import counters_file, program_losses
from tests import native_build
from tests.programs.test_call_fuzz import built_with_sanitizers

SCRIPT = Path(__file__).with_name("hostile_frames.sh")
FRAMES, FULL_FRAMES, RUN_S = 200_000, 10_000_000, 3600
HONEST = 0.5  # frames of the honest peer, at most, for each hostile one
ASAN = "detect_leaks=0:detect_odr_violation=0:quarantine_size_mb=16"  # both have the engine


@pytest.fixture(scope="module")
def harness(pair):
    """`pair` has installed what the build needs."""
    native_build.fuzz("library_frames")
    return native_build.BUILD / "library_frames"


def run(library, harness, folder, *arguments):
    way = paths.native_program("softroce-veth")
    return subprocess.run(
        ["unshare", "--net", "--mount", SCRIPT, way, harness, *map(str, arguments), folder],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(library.parent), "ASAN_OPTIONS": ASAN},
    )  # fmt: skip


@pytest.mark.full("verbs-frames")
def test_no_frame_harms_a_program(harness, full, tmp_path):
    """10 million mutated frames at a live queue pair of libibverbs, under sanitizers."""
    frames = FULL_FRAMES if full else FRAMES
    library = built_with_sanitizers() if full else paths.verbs_library()
    done = run(library, harness, tmp_path, frames, 20261126)
    assert done.returncode == 0, done.stderr[-4000:]
    sent, connections = map(int, re.fullmatch(r"(\d+) frames, (\d+) connections\n",
                                              done.stdout).groups())  # fmt: skip
    assert sent == frames
    assert connections > frames / 2000, done.stdout  # it was alive, and broken again and again
    [kept] = (tmp_path / "kept").iterdir()
    assert kept.name.endswith(".library_frames")
    counts = counters_file.parse(kept.read_bytes()).counts
    lost = counts["rx_dropped"] + counts["rx_ring_full"] + counts["rx_fill_ring_empty"]
    assert frames <= counts["frames_received"] + lost < frames * (1 + HONEST)
    assert lost < 0.01 * frames
    [losses] = (tmp_path / "losses").iterdir()
    found = program_losses.read(losses)
    assert program_losses.NAK_RECEIVED in found["kind"]
    assert found["kind"].max() < len(program_losses.KINDS)
    print(done.stdout, counts["frames_received"], "received", len(found), "records of losses")


def test_the_harness_ends_with_an_error_if_its_arguments_are_wrong(harness, tmp_path):
    assert run(paths.verbs_library(), harness, tmp_path, "many", 1).returncode == 2
