# SPDX-License-Identifier: GPL-2.0-or-later
"""Random verbs from several threads, against an RNIC that reaches itself alone (call_fuzz.c).

The long form builds the library with AddressSanitizer and UndefinedBehaviorSanitizer.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.telemetry import program_losses
from tests.programs.test_loopback import ALONE

SOURCE = Path(__file__).with_name("call_fuzz.c")
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BUILD_S, RUN_S = 3600, 150
SEEDS, STEPS, THREADS = (3, 200), (10_000, 50_000), 3  # short, long
WITH_STATISTICS = (
    "device softroce{0}\nguid {1}\ngid ::ffff:10.0.{0}.1\npath_mtu 1024\nstatistics {2}{0}\n"
)


def built_with_sanitizers():
    """The library; slow, and quick the second time."""
    made = PROJECT_ROOT / "build/verbs-asan"
    for argv in (
        ["cmake", "-G", "Ninja", "-DSOFTROCE_SANITIZE=ON", "-S",
         PROJECT_ROOT / "native/verbs", "-B", made],
        ["cmake", "--build", made, "--target", "ibverbs"],
    ):  # fmt: skip
        subprocess.run(argv, check=True, capture_output=True, timeout=BUILD_S)
    return made / "libibverbs.so.1"


@pytest.fixture
def fuzz(pair, full, tmp_path):
    """Runs all seeds, with these words and variables."""
    library = built_with_sanitizers() if full else paths.verbs_library()
    program = tmp_path / "call_fuzz"
    subprocess.run(["cc", "-Wall", "-Werror", *(SANITIZE if full else ()), SOURCE, "-o", program,
                    library, "-lpthread"], check=True, timeout=RUN_S)  # fmt: skip

    def run(*words, **variables):
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(library.parent), **variables,
            "ASAN_OPTIONS": "detect_leaks=0",  # the device stays for the life of the process
        }  # fmt: skip
        for seed in range(1, SEEDS[full] + 1):
            done = subprocess.run(
                [program, str(seed), str(STEPS[full]), str(THREADS), *words], env=environment,
                capture_output=True, text=True, timeout=RUN_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stderr}"
            succeeded, failed = map(int, re.fullmatch(r"done (\d+) (\d+)\n", done.stdout).groups())
            assert succeeded > failed > 100  # of calls on objects that were there

    return run


@pytest.mark.full("verbs-calls")
def test_no_order_of_calls_ends_the_program(fuzz, full, tmp_path):
    """Random calls of verbs, destroyed while in use; long: 30 million under sanitizers."""
    settings, losses = tmp_path / "settings", tmp_path / "losses"
    settings.write_text(ALONE)
    losses.mkdir()
    fuzz(SOFTROCE_VERBS=str(settings), SOFTROCE_LOSSES=str(losses))
    records = [program_losses.parse(each.read_bytes()) for each in losses.iterdir()]
    assert len(records) == SEEDS[full]
    assert all((each["kind"] == program_losses.MESSAGE).any() for each in records)


@pytest.mark.full("verbs-calls-with-backups")
def test_no_order_of_calls_of_queue_pairs_with_backups_ends_the_program(fuzz, tmp_path):
    """The same with SHIFT; long: 30 million under sanitizers."""
    files = [tmp_path / f"settings{number}" for number in range(2)]
    for number, file in enumerate(files):
        file.write_text(WITH_STATISTICS.format(number, number + 1, tmp_path / "statistics"))
    moved = tmp_path / "statistics0.shift"
    variables = {"SOFTROCE_VERBS": ":".join(map(str, files)), "SOFTROCE_SHIFT": "1"}
    fuzz(moved, **variables)
    assert not list(tmp_path.glob("*.backup*")) + list(tmp_path.glob("*.shift"))
