# SPDX-License-Identifier: GPL-2.0-or-later
"""Values, error codes and completions that a program of verbs sees (control_path.c, data_path.c,
extended_path.c).

Each program prints the comparisons that do not hold.
"""

import os
import subprocess
from pathlib import Path

import pytest

from softroce_lab import paths
from tests.programs.pair import TIMEOUT_S

FOLDER = Path(__file__).parent
BOTH_GIDS = "device softroce0\nguid 0x1\ngid ::ffff:10.0.0.1\ngid fd00::1\npath_mtu 1024\n"


@pytest.fixture
def built(tmp_path):
    """Compiles one of the programs."""

    def build(name):
        made = tmp_path / name
        subprocess.run(["cc", "-Wall", "-Werror", FOLDER / f"{name}.c", "-o", made,
                        paths.verbs_library()], check=True, timeout=TIMEOUT_S)  # fmt: skip
        return made

    return build


@pytest.mark.parametrize("name", ["control_path", "data_path", "extended_path"])
def test_all_comparisons_hold(built, name, tmp_path, pair):  # pair: the library is built
    settings = tmp_path / "settings"
    settings.write_text(BOTH_GIDS)
    libraries = str(paths.verbs_library().parent)
    environment = {**os.environ, "SOFTROCE_VERBS": str(settings), "LD_LIBRARY_PATH": libraries}
    done = subprocess.run([built(name)], env=environment, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)  # fmt: skip
    assert (done.stderr, done.stdout, done.returncode) == ("", "done\n", 0)


def test_frames_of_the_port_are_not_in_a_child(built, pair):
    done = pair.run("h1", built("control_path"), "port")
    assert (done.stderr, done.stdout, done.returncode) == ("", "done\n", 0)
