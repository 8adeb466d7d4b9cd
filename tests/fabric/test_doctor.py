# SPDX-License-Identifier: GPL-2.0-or-later
import json
import os
from pathlib import Path

from softroce_lab.fabric import doctor


def test_this_machine_can_do_it():
    lacking = [f for f in doctor.examine() if f.required and not f.found]
    assert lacking == []


def test_it_leaves_nothing(eventually):
    def state():
        mounts = Path("/proc/self/mountinfo").read_text()
        return mounts, sorted(os.listdir("/run")), Path("/proc/net/dev").read_text().count(":")

    before, home = state(), Path("/proc/thread-self/ns/net").stat().st_ino
    doctor.examine()
    assert state() == before
    assert Path("/proc/thread-self/ns/net").stat().st_ino == home


def test_without_rights_it_finds_out_and_exits_with_3(run_lab, nobody):
    result = run_lab("doctor", "--json", user=nobody)
    document = json.loads(result.stdout)
    assert result.returncode == 3
    assert not document["healthy"]
    missing = {c["capability"]: c for c in document["capabilities"] if not c["found"]}
    assert missing["the rights of root"]["tried"]
    for name in ("network namespaces", "AF_XDP sockets"):
        assert not missing[name]["tried"]
        assert missing[name]["how"] == missing["the rights of root"]["how"]
