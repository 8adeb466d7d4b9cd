# SPDX-License-Identifier: GPL-2.0-or-later
"""A run in a process of its own: its result is as without, and its end is an error."""

import os
import signal
import time

import numpy as np
import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.transports import own_process
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.paths import PROJECT_ROOT

FILE = "/x/mine.py"


def call(run):
    seen = []
    return own_process.call(FILE, run, seen.append), seen


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os._exit(7), "exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
    ],
)
def test_an_end_outside_of_a_hook_names_the_file(end, how):
    with pytest.raises(PolicyError) as caught:
        call(lambda progress: end())
    assert str(caught.value) == f"{FILE}: the process of the run ended: {how}"


def test_a_process_that_closed_its_pipe_and_goes_on_is_ended():
    def run(progress):
        os.closerange(3, 1000)
        time.sleep(600)

    with pytest.raises(PolicyError, match="killed by SIGKILL"):
        call(run)


def test_no_process_stays_behind(tmp_path):
    def run(progress):
        progress(os.getpid())
        time.sleep(600)

    class EnoughError(Exception):
        pass

    pids = []

    def progress(pid):
        pids.append(pid)
        raise EnoughError

    with pytest.raises(EnoughError):
        own_process.call(FILE, run, progress)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_users_run_is_as_in_this_process():
    """The tutorial's policy, both ways: the same messages, links and events."""
    mine = f"{PROJECT_ROOT}/examples/transports/gap_nack.py:GapNack"
    chosen = spec.with_transports(spec.load("point-to-point"), [mine])
    (transport,) = chosen.transports
    own = virtual.run(chosen, transport, 1, lambda _: None, with_acts=True)
    here = virtual.VirtualRun(chosen, transport, 1, lambda _: None, with_acts=True).go()
    assert np.array_equal(own.messages, here.messages)
    assert list(own.links) == list(here.links)
    assert own.counters == here.counters
    assert all(np.array_equal(own.events[name], here.events[name]) for name in here.events)
    assert own.verdict == "passed"
