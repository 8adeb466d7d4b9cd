# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport more is a file of its own and a word in a list: made here, built, and run."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from softroce_lab.paths import PROJECT_ROOT
from tests import native_build

TRANSPORT = PROJECT_ROOT / "native" / "transport"
LIKE = "ud_rto"
EXPERIMENT = """
name: sampled
topology: {generator: {kind: star, hosts: 2}}
faults: [{name: loss, links: "h1->*", loss: 5%}]
transports: [{name: sample, timeout: 5ms, options: {patience: 4}}]
workload: {kind: point-to-point, bytes: 1MiB, message: 64KiB}
"""
RUN = """
import importlib.util, sys
import softroce_lab
spec = importlib.util.spec_from_file_location("softroce_lab._native", sys.argv.pop(1))
module = importlib.util.module_from_spec(spec)
sys.modules["softroce_lab._native"] = softroce_lab._native = module
spec.loader.exec_module(module)
from softroce_lab.cli.app import main
sys.exit(main())
"""


def sources(folder: Path) -> list[Path]:
    """The list with its word, and the file: `ud_rto` by another name, with an option."""
    listed = (TRANSPORT / "registry.cpp").read_text()
    assert listed.count("  T(srnic) ") == 1
    listed = listed.replace("  T(srnic) ", "  T(sample) T(srnic) ")
    own = (TRANSPORT / f"{LIKE}.cpp").read_text().replace(LIKE, "sample")
    option = (
        '.options = {{.name = "patience", .usual = std::int64_t{3}, .help = "in SRTT", '
        ".least = 1, .most = 9}}, .has_rto"
    )
    assert own.count(".has_rto") == 1
    own = own.replace(".has_rto", option)
    own = own.replace("timing().rto_srtt *", 'option<std::int64_t>("patience") *')
    files = [folder / "registry.cpp", folder / "sample.cpp"]
    for file, text in zip(files, (listed, own), strict=True):
        file.write_text(text.replace('#include "', f'#include "{TRANSPORT}/'))
    return files


def built(folder: Path, build: Path) -> Path:
    """The native module with it: what is compiled here goes before what the libraries have."""
    commands = json.loads((build / "compile_commands.json").read_text())
    (like,) = (each for each in commands if each["file"] == str(TRANSPORT / "registry.cpp"))
    objects = []
    for source in sources(folder):
        words = shlex.split(like["command"])
        words[words.index("-o") + 1] = str(source.with_suffix(".o"))
        words[words.index("-c") + 1] = str(source)
        subprocess.run(words, cwd=build, check=True, timeout=600)
        objects.append(str(source.with_suffix(".o")))
    asked = ["ninja", "-C", build, "-t", "commands", "_native"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60)
    link = shlex.split(done.stdout.strip().splitlines()[-1].removeprefix(": && ").split(" && ")[0])
    at = link.index("-o")
    module = folder / Path(link[at + 1]).name
    link[at : at + 2] = ["-o", str(module), *objects]
    subprocess.run(link, cwd=build, check=True, timeout=600)
    return module


def test_a_new_transport_touches_two_files(tmp_path):
    """It has knobs and options, checks them, and recovers."""
    module = built(tmp_path, native_build.of_the_module("_native"))
    file = tmp_path / "x.yaml"

    def lab(*arguments):
        return subprocess.run(
            [sys.executable, "-c", RUN, module, *arguments], cwd=tmp_path, check=False,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    file.write_text(EXPERIMENT)
    done = lab("run", file, "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["transport"], run["verdict"]) == ("sample+patience=4+timeout=5ms", "passed")
    file.write_text(EXPERIMENT.replace("patience: 4", "patience: 40"))
    done = lab("run", file)
    assert done.returncode == 2
    assert "patience" in done.stderr
    assert "from 1 to 9" in done.stderr
