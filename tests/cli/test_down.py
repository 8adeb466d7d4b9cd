# SPDX-License-Identifier: GPL-2.0-or-later
import contextlib
import signal
import time
from pathlib import Path


def test_down_takes_the_lab_away(lab):
    lab.up()
    result = lab.run("down", lab.name)
    assert (result.returncode, result.stdout) == (0, f"{lab.name} down\n")
    assert lab.traces() == []


def test_an_unknown_lab_is_refused_with_the_known_ones(lab):
    lab.up()
    result = lab.run("down", "nowhere")
    assert result.returncode == 2
    assert "no lab called nowhere" in result.stderr
    assert lab.name in result.stderr


def test_a_name_that_leads_elsewhere_is_unknown(lab):
    lab.up()
    result = lab.run("down", f"../softroce_lab/{lab.name}")
    assert result.returncode == 2
    assert lab.traces() != []


def test_a_name_and_all_contradict(lab):
    assert lab.run("down", lab.name, "--all").returncode == 2


def test_an_interrupted_down_finishes(lab):
    lab.up()
    ledger = Path("/run/softroce_lab", lab.name, "ledger.jsonl")
    with lab.start("down", lab.name) as process:
        with contextlib.suppress(FileNotFoundError):  # down was quicker
            while process.poll() is None and "stopping" not in ledger.read_text():
                time.sleep(0.0002)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert lab.traces() == []
