# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody tells a live RC connection anything at all: native/fuzz/hostile_peer.cpp."""

import subprocess

import pytest

from tests import native_build

RUN_S = 1200
FRAMES, FULL_FRAMES = 200_000, 10_000_000


@pytest.fixture(scope="module")
def harness():
    """The harness, built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    native_build.fuzz()
    return native_build.BUILD / "hostile_peer"


@pytest.mark.full("hostile-peer")
def test_no_frame_harms_a_live_connection(harness, full):
    """10 million mutated frames at a live RC connection, under sanitizers."""
    frames, seed = (FULL_FRAMES if full else FRAMES), 20261121
    run = [harness, str(frames), str(seed)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, run))}\n{done.stderr[-4000:]}"
    connections = int(done.stdout.split(" connections")[0].split()[-1])
    assert connections > frames / 1000, done.stdout  # it was alive, and broken again and again
    print(done.stdout)


def test_the_harness_sees_what_it_is_for(harness):
    """It ends with an error if its arguments, or the memory that it watches, are not right."""
    done = subprocess.run([harness, "many", "1"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
