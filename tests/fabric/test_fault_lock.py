# SPDX-License-Identifier: GPL-2.0-or-later
import threading

import pytest

from softroce_lab.errors import RunError
from softroce_lab.fabric import fault_lock


def test_who_waited_for_a_lab_that_goes_down_is_told(tmp_path):
    fault_lock.create(tmp_path)
    reported = []

    def wait():
        try:
            with fault_lock.changing(tmp_path):
                reported.append("nothing")
        except RunError as error:
            reported.append(error.what)

    waiting = threading.Thread(target=wait)
    with fault_lock.ending(tmp_path, reported.append):
        waiting.start()
        waiting.join(0.05)
        assert reported == []
        (tmp_path / fault_lock.FILE).unlink()
    waiting.join()
    assert reported == [f"the lab {tmp_path.name} went down meanwhile"]


def test_a_process_that_hangs_is_waited_for_so_long_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(fault_lock, "PATIENCE_S", 0.05)
    fault_lock.create(tmp_path)
    output = []
    with fault_lock.changing(tmp_path):
        with pytest.raises(RunError, match="another process"), fault_lock.changing(tmp_path):
            pass
        with fault_lock.ending(tmp_path, output.append):
            assert len(output) == 1
