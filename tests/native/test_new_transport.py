# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport more is a file of its own and a word in a list: made here, built, and run.

`sample` is `ud_rto` with an option. `answering` is `irn` with a rule for trimmed packets: it
retransmits each of them at once.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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
TRIMS = """
name: trims
topology:
  generator: {kind: star, hosts: 3, access: {rate: 1Gbit limit 8 trim, delay: 1us}}
transports: [{name: NAME, timeout: 50ms}]
workload: {kind: incast, to: h1, bytes: 256KiB}
"""
ANSWERING = """ private:
  bool answers_trimming() const override { return true; }
  void payload_lost(SendMessage& message, const Feedback& feedback) override {
    Session::retransmit(message, feedback.packet, RetransmitReason::nak);
  }

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
    """The list with its words, and the files."""
    listed = (TRANSPORT / "registry.cpp").read_text()
    assert listed.count("  T(srnic) ") == 1
    listed = listed.replace("  T(srnic) ", "  T(sample) T(answering) T(srnic) ")
    own = (TRANSPORT / f"{LIKE}.cpp").read_text().replace(LIKE, "sample")
    option = (
        '.options = {{.name = "patience", .usual = std::int64_t{3}, .help = "in SRTT", '
        ".least = 1, .most = 9}}, .has_rto"
    )
    assert own.count(".has_rto") == 1
    own = own.replace(".has_rto", option)
    own = own.replace("timing().rto_srtt *", 'option<std::int64_t>("patience") *')
    answering = (TRANSPORT / "irn.cpp").read_text()
    assert answering.count(" private:\n") == 1
    answering = answering.replace(" private:\n", ANSWERING)
    answering = answering.replace("irn_transport", "answering_transport")
    answering = answering.replace('"irn"', '"answering"')
    files = [folder / f"{name}.cpp" for name in ("registry", "sample", "answering")]
    for file, text in zip(files, (listed, own, answering), strict=True):
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


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Runs `lab` with the module that has both transports."""
    folder = tmp_path_factory.mktemp("module")
    module = built(folder, native_build.of_the_module("_native"))
    return lambda *arguments: subprocess.run(
        [sys.executable, "-c", RUN, module, *arguments], cwd=folder, check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_a_new_transport_touches_two_files(lab, tmp_path):
    """It has knobs and options, checks them, and recovers."""
    file = tmp_path / "x.yaml"
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


def test_a_transport_that_answers_trimming_repairs_each_cut_without_its_timer(lab, tmp_path):
    """A retransmission that is cut, too, needs the timer in `irn`, and a NACK more here."""

    def makespan_ns(name):
        file = tmp_path / f"{name}.yaml"
        file.write_text(TRIMS.replace("NAME", name))
        done = lab("run", file, "--json")
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        assert run["verdict"] == "passed"
        return run["makespan_ns"]

    timeout_ns = 50_000_000
    assert makespan_ns("answering") < timeout_ns < makespan_ns("irn")
