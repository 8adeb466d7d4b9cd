# SPDX-License-Identifier: GPL-2.0-or-later
"""A submission that does anything but decide gets its verdict, and harms nothing.

Each runs in bubblewrap, and with rlimits alone; what only one of them prevents says so.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.learn import crew, folder, grading, judge, labs, seeds, trial
from softroce_lab.learn.crew import Crew, Policy
from softroce_lab.learn.sandbox import seccomp, wire
from tests.learn import submissions

WAYS = pytest.mark.parametrize("shut_in", [True, False], ids=["bubblewrap", "rlimits"])
LEFT = "/tmp/softroce-lab-was-here"  # noqa: S108
HOOK = "    def packets_to_retransmit(self, first_missing, sent, count):\n"


@pytest.fixture
def where(tmp_path):
    return submissions.laid_out(1, tmp_path / "lab")


def verdict(where, body, *, shut_in, top="", task="goes-back"):
    """Of a policy whose hook does this before it returns what is right."""
    if shut_in and not submissions.SHUT_IN:
        pytest.skip(crew.lacks_bubblewrap())
    if not shut_in and not seccomp.available():
        pytest.skip("no filter of system calls on this machine")
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = submissions.changed(submissions.solution(1), (HOOK, HOOK + lines))
    source = source.replace("import numpy as np\n", f"import numpy as np\n{top}\n", 1)
    (where / "policy.py").write_text(source)
    (item,) = submissions.judged(where, task=task, shut_in=shut_in).items
    return item


@WAYS
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import os; os.fork()", "PermissionError"),
        ("import subprocess; subprocess.run(['/bin/true'])", "PermissionError"),
        ("import socket; socket.socket()", "PermissionError"),
        ("import os; os.kill(os.getppid(), 9)", "PermissionError"),
        (f"open('{LEFT}', 'w')", "PermissionError"),
        ("open('policy.py', 'a')", "PermissionError"),
        ("open('policy.py', 'r+')", "PermissionError"),
        (f"import os; os.mkdir('{LEFT}')", "PermissionError"),
        ("import os; os.unlink(__file__)", "PermissionError"),
        ("x = []\nwhile True:\n    x.append(bytearray(1 << 26))", "MemoryError"),
        ("return self.packets_to_retransmit(first_missing, sent, count)", "RecursionError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended its process"),
        ("import ctypes; ctypes.string_at(0)", "ended its process"),
        ("return 'all of them'", "packets"),
        ("return np.array([10**6], dtype=np.uint32)", "packet 1000000 of a message of"),
    ],
    ids=lambda value: re.sub(r"\W+", " ", str(value))[:24],
)
def test_it_gets_a_verdict(where, body, reason, shut_in):
    before = sorted(where.iterdir())
    item = verdict(where, body, shut_in=shut_in)
    assert item.state == "fails"
    assert reason in item.text, item.text
    assert "policy.py" in item.text
    assert sorted(where.iterdir()) == before
    assert not Path(LEFT).exists()


@WAYS
def test_one_that_loops_is_ended(where, shut_in):
    item = verdict(where, "while True: pass", shut_in=shut_in)
    assert item.state == "fails"
    assert re.search(r"policy.py:\d+: on_feedback did not return within 5 s", item.text)


@WAYS
def test_one_that_hides_from_its_guard_is_ended(where, shut_in, monkeypatch):
    monkeypatch.setattr(crew, "ANSWER_S", 3.0)
    body = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    item = verdict(where, body, shut_in=shut_in)
    assert (item.state, "did not return" in item.text) == ("fails", True)


def test_the_rest_of_the_machine_is_not_there(where, tmp_path):
    """Neither its files, nor what tasks want, nor teachers' pages."""
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    places = [secret, Path("/etc/passwd"), crew._ROOM / "labs/sack.py", crew._ROOM / "content",
              submissions.PROJECT_ROOT / "docs/learn/teacher/lab1.md"]  # fmt: skip
    assert all(place.exists() for place in places)
    body = f"import os\nfound = [p for p in {[str(p) for p in places]!r} if os.path.exists(p)]\n"
    item = verdict(where, body + "if found: raise ValueError(found)", shut_in=True)
    assert item.state == "holds", item.text
    item = verdict(where, "import softroce_lab.learn.judge", shut_in=True)
    assert "ModuleNotFoundError" in item.text or "ImportError" in item.text or "No" in item.text
    assert item.state == "fails"


def test_its_network_has_only_a_loopback(where):
    if not submissions.SHUT_IN:
        pytest.skip(crew.lacks_bubblewrap())
    asks = [sys.executable, "-c", "import socket; print(*socket.if_nameindex())"]
    done = subprocess.run([*crew._bubblewrap(where), *asks], capture_output=True, text=True)
    assert done.stdout == "(1, 'lo')\n", done.stderr


@WAYS
def test_hosts_share_nothing_but_packets(where, shut_in):
    """What one host's policy keeps in its module is not there for the other one's."""
    top = "SEEN = set()"
    body = "if len(SEEN) > 1: raise ValueError('two hosts in one process')"
    source = submissions.changed(
        submissions.solution(1), (HOOK, HOOK + f"        {body}\n"),
        ("    def on_first_packet(self, receive, now_ns):\n",
         "    def on_first_packet(self, receive, now_ns):\n        SEEN.add('receiver')\n"),
        ("    def on_feedback(self, send, now_ns):\n",
         "    def on_feedback(self, send, now_ns):\n        SEEN.add('sender')\n"),
    )  # fmt: skip
    (where / "policy.py").write_text(source.replace("import numpy", f"{top}\nimport numpy", 1))
    if shut_in and not submissions.SHUT_IN:
        pytest.skip(crew.lacks_bubblewrap())
    (item,) = submissions.judged(where, task="tail", shut_in=shut_in).items
    assert item.state == "holds", item.text


def test_one_that_changes_its_own_judge_changes_nothing(where):
    """The simulator, the tasks and the guard of actions are in another process."""
    top = (
        "from softroce_lab.experiment.virtual import VirtualRun\n"
        "VirtualRun.go = lambda self: None\n"
        "from softroce_lab.experiment.transports import guard\n"
        "guard._Guard.check = lambda *_: None"
    )
    item = verdict(where, "return np.arange(0)", shut_in=submissions.SHUT_IN, top=top)
    assert (item.state, item.points) == ("fails", 0)


def test_forged_frames_are_no_actions(where):
    forged = wire.encode(["done", [["Retransmit", True, 7, "all", False, 1]]])
    body = (
        f"import os\nfor fd in range(3, 20):\n    try: os.write(fd, {forged!r})\n"
        "    except OSError: pass"
    )
    item = verdict(where, body, shut_in=submissions.SHUT_IN)
    assert item.state == "fails"


@pytest.mark.parametrize(
    "body",
    [
        "import random\nsent -= random.randrange(30)",
        "import time\nsent -= time.perf_counter_ns() % 30",
        "import os\nsent -= os.urandom(1)[0] % 30",
    ],
)
def test_one_that_is_not_deterministic_says_so(where, body):
    """It draws one of thirty each time, for two runs that draw the same are right."""
    item = verdict(where, body, shut_in=submissions.SHUT_IN)
    assert item.state == "fails"
    assert "two runs with the same seed (1) differ" in item.text


def test_runs_are_those_of_lab_run(tmp_path):
    """A policy decides the same in a process of its own and in that of `lab run`."""
    from softroce_lab.experiment.transports import written
    from softroce_lab.experiment.virtual import VirtualRun

    where = submissions.laid_out(3, tmp_path / "lab", submissions.solution(3))
    (task,) = (each for each in labs.find(3).tasks if each.id == "tail")
    file = task.build(seeds.of_seed(task.id, 5))
    chosen = written.of_argument(f"{where / 'policy.py'}:SackSender")
    expected = VirtualRun(trial.experiment(file), chosen, 5, lambda _: None).go()
    policy = Policy((where / "policy.py").read_bytes(), "SackSender")
    with Crew(policy, shut_in=submissions.SHUT_IN) as members:
        found = trial.of_policy(file, 5, members)
    assert found.run.messages.tolist() == expected.messages.tolist()
    assert found.run.counters == expected.counters


# --- Where bubblewrap is not -----------------------------------------------------------------


def test_grade_refuses_without_bubblewrap(monkeypatch):
    monkeypatch.setattr(crew, "lacks_bubblewrap", lambda: "bubblewrap is not installed")
    with pytest.raises(EnvironmentLackError, match="cannot be shut in") as refused:
        grading.safe_way(trust=False)
    assert "--trust" in refused.value.hint
    assert grading.safe_way(trust=True) is False


# --- Folders of strangers --------------------------------------------------------------------


def test_links_are_not_followed(where, tmp_path):
    (tmp_path / "other.py").write_text("x = 1")
    (where / "policy.py").unlink()
    (where / "policy.py").symlink_to(tmp_path / "other.py")
    with pytest.raises(UserError, match="cannot be read"):
        folder.read(where)
    found = grading.one(str(where), judge.How(submissions.SHUT_IN))
    assert (found.points, "cannot be read" in found.items[0].text) == (0, True)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a folder"])
def test_what_is_no_file_is_refused(where, make):
    (where / "policy.py").unlink()
    make(where / "policy.py")
    with pytest.raises(UserError, match=r"no regular file|cannot be read"):
        folder.read(where)


def test_a_file_without_end_is_refused(where):
    (where / "policy.py").write_bytes(b"#" * (folder.MOST_BYTES + 1))
    with pytest.raises(UserError, match="longer than"):
        folder.read(where)


@pytest.mark.parametrize(
    ("line", "what"),
    [("p1 : 7", "is not NAME = NUMBER"), ("lab = one", "'lab = N' is missing")],
)
def test_answers_that_cannot_be_read(where, line, what):
    text = (
        (where / "answers.txt").read_text().replace("lab = 1", line if "lab" in line else "lab = 1")
    )
    (where / "answers.txt").write_text(text + ("" if "lab" in line else line))
    with pytest.raises(UserError, match=what):
        folder.read(where)


def test_start_overwrites_nothing(where):
    with pytest.raises(UserError, match="nothing is overwritten"):
        folder.start(1, where, "example")


@pytest.mark.parametrize("source", [b"\x00", b"(" * 5000, b"def f(:", "é".encode("latin-1"), b""])
def test_a_program_that_is_none_has_a_shape(source):
    assert re.fullmatch("[0-9a-f]{64}", folder.shape(source))


@pytest.mark.parametrize("source", ["x = (", "raise ValueError('no')", "import nothing", "X = 1"])
def test_a_program_that_cannot_be_read_is_named(where, source):
    (where / "policy.py").write_text(source)
    (item,) = submissions.judged(where, task="tail").items
    assert item.state == "fails"
    assert "policy.py" in item.text


def test_the_filter_refuses_what_is_not_listed():
    program = (
        "import os\nfrom softroce_lab.learn.sandbox import seccomp\n"
        "assert seccomp.install()\n"
        "for call in (os.fork, lambda: os.kill(1, 0), lambda: open('/tmp/x', 'w'), os.setsid,\n"
        "             lambda: os.chmod('/tmp', 0o777), lambda: os.memfd_create('x'), os.pipe):\n"
        "    try:\n        call()\n    except PermissionError:\n        continue\n"
        "    os._exit(7)\n"
        "import threading\n"
        "thread = threading.Thread(target=print, args=('a thread is allowed',))\n"
        "thread.start(); thread.join()\n"
    )
    if not seccomp.available():
        pytest.skip("unknown machine")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a thread is allowed\n"), done.stderr


def bubblewrap_runs():
    """Whether this machine permits a sandbox at all."""
    line = ["bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(line, check=False).returncode == 0


def test_bubblewrap_is_found_where_it_is():
    assert (crew.lacks_bubblewrap() is None) == bubblewrap_runs()


def test_a_hook_may_ask_how_far_a_send_is(where):
    body = "assert self.view.send_progress(1 << 40) is None"
    item = verdict(where, body, shut_in=submissions.SHUT_IN)
    assert item.state == "holds", item.text
