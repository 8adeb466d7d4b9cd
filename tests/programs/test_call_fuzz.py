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


@pytest.mark.full("verbs-calls")
def test_no_order_of_calls_ends_the_program(pair, full, tmp_path):
    """Random calls of verbs, destroyed while in use; long: 30 million under sanitizers."""
    library = built_with_sanitizers() if full else paths.verbs_library()
    program, settings = tmp_path / "call_fuzz", tmp_path / "settings"
    settings.write_text(ALONE)
    losses = tmp_path / "losses"
    losses.mkdir()
    subprocess.run(["cc", "-Wall", "-Werror", *(SANITIZE if full else ()), SOURCE, "-o", program,
                    library, "-lpthread"], check=True, timeout=RUN_S)  # fmt: skip
    environment = {
        **os.environ, "SOFTROCE_VERBS": str(settings), "LD_LIBRARY_PATH": str(library.parent),
        "SOFTROCE_LOSSES": str(losses),
        "ASAN_OPTIONS": "detect_leaks=0",  # the device stays for the life of the process
    }  # fmt: skip
    for seed in range(1, SEEDS[full] + 1):
        done = subprocess.run(
            [program, str(seed), str(STEPS[full]), str(THREADS)], env=environment,
            capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stderr}"
        succeeded, failed = map(int, re.fullmatch(r"done (\d+) (\d+)\n", done.stdout).groups())
        assert succeeded > failed > 100  # of calls on objects that were there
    records = [program_losses.read(each) for each in losses.iterdir()]
    assert len(records) == SEEDS[full]
    assert all((each["kind"] == program_losses.MESSAGE).any() for each in records)
