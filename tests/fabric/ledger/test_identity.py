# SPDX-License-Identifier: GPL-2.0-or-later
import dataclasses
import signal
import subprocess
import sys
import time

import pytest

from softroce_lab.fabric.ledger.identity import ProcessIdentity


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_there_is_no_identity_without_a_process(sleeper):
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(sleeper.pid)


@pytest.mark.parametrize("other", [{"start_ticks": 1}, {"boot": "an earlier one"}])
def test_another_process_of_the_same_number_is_spared(sleeper, other):
    past = dataclasses.replace(ProcessIdentity.of(sleeper.pid), **other)
    assert not past.is_alive()
    past.signal(signal.SIGKILL)
    assert past.wait(0)
    assert past.end(0.1)
    time.sleep(0.05)
    assert sleeper.poll() is None


def test_a_zombie_is_dead(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    sleeper.kill()
    assert identity.wait(60)
    assert not identity.is_alive()
    assert sleeper.wait() == -signal.SIGKILL


def test_waiting_is_bounded(sleeper):
    begun = time.monotonic()
    assert not ProcessIdentity.of(sleeper.pid).wait(0.05)
    assert 0.04 < time.monotonic() - begun < 60


def test_who_ignores_sigterm_meets_sigkill():
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as stubborn:
        stubborn.stdout.readline()
        assert ProcessIdentity.of(stubborn.pid).end(0.2)
        assert stubborn.wait() == -signal.SIGKILL
