# SPDX-License-Identifier: GPL-2.0-or-later
"""The messenger of `shift`: what becomes of a run whose backup nobody drives any more."""

import types

import pytest

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.shift_messenger import OtherRail, ShiftMessenger
from softroce_lab.transports.shift.rails import Rails


def test_a_run_ends_when_the_thread_of_its_backup_has_failed():
    with Rails() as rails:
        first, second = (pair.side(0) for pair in rails.pairs)
        messenger = ShiftMessenger(first, OtherRail(second, 0))
        messenger._pump = types.SimpleNamespace(error=None)
        assert messenger.completions() == []
        messenger._pump.error = ValueError("a mistake")
        with pytest.raises(RunError, match=r"drives the backup ended: ValueError.'a mistake'"):
            messenger.completions()
        messenger._pump = None
