# SPDX-License-Identifier: GPL-2.0-or-later
"""A submission that does anything but decide gets its verdict, harms nothing, and learns nothing.

Many of these are attempts of hostile reviewers; some of them worked once.
"""

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.learn import folder, isolation, judge, labs, remote, trial
from softroce_lab.learn.isolation import Policy, Workers
from softroce_lab.learn.lab import hidden_seeds, task_dice
from softroce_lab.learn.sandbox import wire
from tests.learn import submissions
from tests.learn.submissions import inserted, judged_task, needs_bubblewrap

LEFT = Path("/var/tmp/softroce-lab-was-here")  # noqa: S108


@pytest.fixture
def where(tmp_path):
    return submissions.laid_out(1, tmp_path / "lab", student="ada")


def verdict(where, body, top="", task="tail"):
    (where / "policy.py").write_text(inserted(body, top))
    return judged_task(where, task)


# --- What is refused -------------------------------------------------------------------------

REFUSED = {
    "os.fork()": "BlockingIOError",
    "subprocess.run(['/bin/true'])": "BlockingIOError",
    "threading.Thread(target=print).start()": "RuntimeError",
    "socket.create_connection(('1.1.1.1', 53), 1)": "OSError",
    "socket.create_connection(('127.0.0.1', 22), 1)": "ConnectionRefusedError",
    "os.setuid(0)": "PermissionError",
    "os.kill(os.getppid(), 9)": "PermissionError|None",  # the first process of a namespace
    "fcntl.ioctl(2, 0x5412, b'x')": "OSError|PermissionError",  # types into a terminal
    f"open('{LEFT}', 'w')": "OSError|FileNotFoundError|PermissionError",
    "open('/dev/shm/x', 'w')": "OSError|PermissionError",
    "open('policy.py', 'a')": "OSError|PermissionError",
    "os.mkdir('/x')": "OSError|PermissionError",
    "os.unlink(__file__)": "OSError|PermissionError",
    "open('/etc/passwd')": "FileNotFoundError|PermissionError",
    "open('/proc/1/environ')": "FileNotFoundError",
    "import softroce_lab.learn.judge": "ModuleNotFoundError|FileNotFoundError",
    "import softroce_lab.transports.shift.qp": "ModuleNotFoundError|FileNotFoundError",
}


@needs_bubblewrap
def test_escapes_are_refused(where, tmp_path, capfd):
    """All in one run. What a student or teacher may see, other hosts' files too, is not there."""
    (tmp_path / "secret").touch()
    hidden = [tmp_path / "secret", isolation._ROOM / "labs/sack.py", isolation._ROOM / "content",
              submissions.PROJECT_ROOT / "docs/learn/teacher/lab1.md"]  # fmt: skip
    assert all(path.exists() for path in hidden)
    body = (
        "import fcntl, os, socket, subprocess, threading\n"
        f"assert not any(map(os.path.exists, {[*map(str, hidden)]!r}))\n"
        "assert os.getuid() != 0 and socket.if_nameindex() == [(1, 'lo')]\n"
        f"for text in {list(REFUSED)!r}:\n"
        "    error = None\n"
        "    try: exec(text)\n"
        "    except Exception as raised: error = type(raised).__name__\n"
        "    print('ESCAPE', error, text)"
    )
    before = sorted(where.iterdir())
    (where / "policy.py").write_text(inserted(body))
    item = judged_task(where, "tail", prints=True)
    assert item.state == "holds", item.text
    printed = re.findall(r"^ESCAPE (\w+) (.*)$", capfd.readouterr().err, re.M)
    assert {text for _, text in printed} == set(REFUSED)
    assert [pair for pair in printed if not re.fullmatch(REFUSED[pair[1]], pair[0])] == []
    assert sorted(where.iterdir()) == before
    assert not LEFT.exists()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("x = []\nwhile True:\n    x.append(bytearray(1 << 26))", "MemoryError"),
        ("return self.packets_to_retransmit(first_missing, sent, count)", "RecursionError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended its process"),
        ("import ctypes; ctypes.string_at(0)", "ended its process"),
        ("return 'all of them'", "packets"),
        ("return np.array([10**6], dtype=np.uint32)", "packet 1000000 of a message of"),
        ("while True: pass", r"policy.py:\d+: on_feedback did not return within 5 s"),
    ],
    ids=lambda value: re.sub(r"\W+", " ", value)[:24],
)
def test_a_hook_that_does_not_decide_gets_a_verdict(where, body, reason):
    item = verdict(where, body)
    assert (item.state, item.points) == ("fails", 0)
    assert re.search(reason, item.text), item.text
    assert "policy.py" in item.text


def test_hosts_share_nothing_but_packets(where):
    """What one host's policy keeps in its module is not there for the other one's."""
    source = submissions.changed(
        inserted("if len(SEEN) > 1: raise ValueError('two hosts in one process')", "SEEN = set()"),
        ("    def on_first_packet(self, receive, now_ns):\n",
         "    def on_first_packet(self, receive, now_ns):\n        SEEN.add('receiver')\n"),
        ("    def on_feedback(self, send, now_ns):\n",
         "    def on_feedback(self, send, now_ns):\n        SEEN.add('sender')\n"),
    )  # fmt: skip
    (where / "policy.py").write_text(source)
    item = judged_task(where, "tail")
    assert item.state == "holds", item.text


def test_one_that_changes_its_own_judge_changes_nothing(where):
    """The simulator, the tasks and the judge's check of actions are in another process."""
    top = (
        "from softroce_lab.experiment.virtual import VirtualRun\n"
        "VirtualRun.go = lambda self: None\n"
        "from softroce_lab.experiment.transports import guard\n"
        "guard._Guard.check = lambda *_: None"
    )
    assert verdict(where, "return np.arange(0)", top).points == 0


def test_one_that_is_not_deterministic_says_so(where):
    """It draws one of thirty each time, for two runs that draw the same are right."""
    item = verdict(where, "import random\nsent -= random.randrange(30)", task="goes-back")
    assert item.state == "fails"
    assert "two runs with the same seed (1) differ" in item.text


# --- What a process sends --------------------------------------------------------------------


ARRAY = remote.np.zeros(3, "<u4")
READY = wire.encode(["ready", None, ["on_send_posted", "on_receive_posted"]])
FRAMES = {
    "an endless array": wire._LENGTH.pack(48) + b'["done",{"@":["<u4",0,%d]}]' % 10**20,
    "an array for a word": wire.encode([ARRAY]),
    "a path of a peer that is none": wire.encode(["ask", "sent_on_paths", 10**30]),
    "a peer that is none": wire.encode(["ask", "peer_state", 10**30]),
    "a state that is none": wire.encode(["ask", "all seeds", 1]),
    "a failure that is none": wire.encode(["failed", {}, [], {}]),
    "actions that are none": wire.encode(["done", [{}, [], [1], ["PathWeights", True, {}, [1]]]]),
    "a packet that is none": wire.encode(["done", [["Retransmit", True, 7, "all", False, 1]]]),
    "a flight into the past": wire.encode(["done", [["SetTimer", True, 0, -1]]]),
    "more than can be": wire._LENGTH.pack(wire.MAX_BYTES + 1),
    "less than its length": wire._LENGTH.pack(20) + b'["done",[["SetTimer"',
    "ready again": READY,
}


def test_a_forged_frame_gets_a_verdict():
    """Whatever comes over the pipe, the judge answers with a verdict, not with a traceback."""
    written = labs.find(1).tasks[2].build(task_dice("tail", 1))
    arrays = wire.encode(["ready", None, [ARRAY] * 2])
    for frames in (arrays, *(READY + frame for frame in FRAMES.values())):
        program = f"import sys; sys.stdout.buffer.write({frames!r}); sys.stdout.flush()"
        with Workers(Policy(b"", "None"), isolated=False) as workers:
            workers._command = [sys.executable, "-c", program]
            failure = trial.run_policy(written, 1, workers).failure()
        assert failure.startswith("policy.py: "), (frames, failure)


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("ANSWER_S", "while True:\n    try:\n        while True: pass\n"
                     "    except BaseException: pass"),
        ("TRIAL_S", "import os\ntry:\n    while True:\n        for fd in range(3, 9):\n"
                    "            try: os.write(fd, QUESTION)\n            except OSError: pass\n"
                    "except BaseException: os._exit(3)"),
    ],
    ids=["hides from its guard", "never stops asking"],
)  # fmt: skip
def test_one_without_an_end_is_ended(where, limit, body, monkeypatch):
    monkeypatch.setattr(isolation, limit, 3.0)
    begun = time.monotonic()
    item = verdict(where, body, f"QUESTION = {wire.encode(['ask', 'peer_state', 0])!r}")
    assert item.state == "fails"
    assert "did not return" in item.text or "ended its process" in item.text
    assert time.monotonic() - begun < 60


def test_actions_without_end_are_ended(where):
    """Each decision is kept for the tasks: 45,000 a hook took the judge gigabytes."""
    body = "        packets = self.packets_to_retransmit(first_missing, state.sent, send.count)\n"
    source = submissions.changed(
        submissions.solution(1),
        (body + "        return [Retransmit(send, packets)]",
         "        return [Retransmit(send, np.zeros(1, 'u4'))] * 45000"),
    )  # fmt: skip
    (where / "policy.py").write_text(source)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    item = judged_task(where, "goes-back")
    assert item.state == "fails"
    assert "more actions than a run needs" in item.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 1 << 20


def test_texts_of_a_policy_move_no_cursor_and_are_bounded(where, capfd):
    body = "raise ValueError('\\x1b[2J\\n20 of 20 points\\r\\x07')"
    item = verdict(where, body)
    assert "20 of 20 points" in item.text
    assert all(char.isprintable() for char in item.text)
    (where / "policy.py").write_text(inserted("print('\\x1b[2J' + 'x' * 9000)"))
    assert judged_task(where, "tail", prints=True).state == "holds"
    printed = capfd.readouterr().err
    assert "\x1b" not in printed
    assert "the policy printed more than is shown" in printed
    assert 60_000 < len(printed) < 200_000


def test_nothing_of_a_policy_stays_behind(where):
    item = verdict(where, "pass", "import atexit, time\natexit.register(time.sleep, 1000)")
    assert item.state == "holds", item.text
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(") ")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        assert parent != os.getpid() or isolation.WORKER.encode() not in command


def test_runs_are_those_of_lab_run(tmp_path):
    """A policy decides the same in a process of its own and in that of `lab run`."""
    from softroce_lab.experiment.transports import written
    from softroce_lab.experiment.virtual import VirtualRun

    where = submissions.laid_out(3, tmp_path / "lab", submissions.solution(3))
    (task,) = (task for task in labs.find(3).tasks if task.id == "tail")
    file = task.build(task_dice(task.id, 5))
    chosen = written.of_argument(f"{where / 'policy.py'}:SackSender")
    expected = VirtualRun(trial.experiment(file), chosen, 5, lambda _: None).go()
    policy = Policy((where / "policy.py").read_bytes(), "SackSender")
    for isolated in {False, submissions.ISOLATED}:
        with Workers(policy, isolated=isolated) as workers:
            made = trial.run_policy(file, 5, workers)
        assert made.run.messages.tolist() == expected.messages.tolist()
        assert made.run.counters == expected.counters


# --- Where bubblewrap is missing -------------------------------------------------------------


def test_without_bubblewrap_a_policy_is_refused(monkeypatch):
    why_not_isolated = isolation.why_not_isolated.__wrapped__
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(isolation, "why_not_isolated", why_not_isolated)
    with pytest.raises(EnvironmentLackError, match="bubblewrap is not installed") as refused:
        isolation.require_isolation()
    assert refused.value.exit_code == 3
    assert "apt install bubblewrap" in refused.value.hint
    assert "--trust" in refused.value.hint
    assert isolation.require_isolation(trust=True) is False
    with pytest.raises(EnvironmentLackError) as refused:
        isolation.require_isolation(may_trust=False)
    assert "--trust" not in refused.value.hint


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="is another user already")
def test_a_user_without_rights_is_isolated_too(nobody):
    program = (
        "import os; os.setgroups([]); os.setgid({0}); os.setuid({0})\n"
        "from softroce_lab.learn import isolation, remote, trial\n"
        "from softroce_lab.learn.isolation import *\n"
        "assert why_not_isolated() is None, why_not_isolated()\n"
        "policy = Policy({1!r}, 'GoBackN')\n"
        "from softroce_lab.learn.labs import find; from softroce_lab.learn.lab import task_dice\n"
        "task = find(1).tasks[2]\n"
        "with Workers(policy, isolated=True) as workers:\n"
        "    print(trial.run_policy(task.build(task_dice(task.id, 1)), 1, workers).failure())\n"
    )
    source = inserted("import os; os.fork()").encode()
    done = subprocess.run(
        [submissions.PROJECT_ROOT / ".venv/bin/python", "-c", program.format(nobody, source)],
        capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    if "Permission denied" in done.stderr or "user namespace" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert "BlockingIOError" in done.stdout, done.stderr


# --- Folders of strangers --------------------------------------------------------------------


def link(path):
    path.with_name("other.py").write_text("x = 1")
    path.symlink_to(path.with_name("other.py"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (link, "cannot be read"),
        (os.mkfifo, "no regular file|cannot be read"),
        (os.mkdir, "no regular file|cannot be read"),
        (lambda path: path.write_bytes(b"#" * (folder.MAX_BYTES + 1)), "longer than"),
    ],
    ids=["a link", "a pipe", "a folder", "without end"],
)
def test_what_is_no_file_is_refused(where, make, why):
    (where / "policy.py").unlink()
    make(where / "policy.py")
    with pytest.raises(UserError, match=why):
        folder.read(where)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("p1 =", "p1 :"), "is not NAME = NUMBER"),
        (("lab = 1", "lab = one"), "'lab = N' is missing"),
        (("student = ada", "student = /"), "'student = NAME' is missing"),
    ],
)
def test_answers_that_cannot_be_read(where, change, why):
    text = submissions.changed((where / "answers.txt").read_text(), change)
    (where / "answers.txt").write_text(text)
    with pytest.raises(UserError, match=why):
        folder.read(where)


@pytest.mark.parametrize("source", [b"\x00", b"(" * 5000, b"def f(:", "é".encode("latin-1"), b""])
def test_a_program_that_is_none_has_a_shape(source):
    assert re.fullmatch("[0-9a-f]{64}", folder.shape(source))


@pytest.mark.parametrize("source", ["x = (", "raise ValueError('no')", "import nothing", "X = 1"])
def test_a_program_that_cannot_be_read_is_named(where, source):
    (where / "policy.py").write_text(source)
    item = judged_task(where, "tail")
    assert item.state == "fails"
    assert "policy.py" in item.text


def test_results_are_written_through_no_link(where, tmp_path):
    """A teacher checks a folder of a student, who has put links where `check` writes."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("failed-tail.svg", folder.LAST):
        (where / name).symlink_to(victim)
    (where / "policy.py").write_text(inserted("return np.arange(0, sent)"))
    options = judge.Options(submissions.ISOLATED, task="tail")
    judge.judge(
        folder.read(where), options,
        lambda task, ran: folder.write_picture(where, task.id, labs.find(1).draw(ran, "a")),
    )  # fmt: skip
    folder.remember_points(where, 1, 0, 20)
    assert victim.read_text() == "mine"
    assert "<svg" in (where / "failed-tail.svg").read_text()
    assert not (where / folder.LAST).is_symlink()


def test_hidden_seeds_do_not_tell_the_secret():
    """They differ by task and lab, and one that is shown is no step to another."""
    seeds = [hidden_seeds(submissions.SECRET, lab, task, 3) for lab in (1, 2) for task in "ab"]
    flat = [seed for some in seeds for seed in some]
    assert len(set(flat)) == len(flat)
    assert seeds[0] != hidden_seeds(b"another", 1, "a", 3)
