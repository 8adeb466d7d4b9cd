# SPDX-License-Identifier: GPL-2.0-or-later
"""Attempts to get points without a solution, to harm the judge, or to learn the secret.

Each is a thing that a hostile reviewer tried; some of them worked once.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softroce_lab.learn import crew, evidence, folder, grading, judge, labs, seeds
from softroce_lab.learn.sandbox import seccomp, wire
from softroce_lab.paths import PROJECT_ROOT
from tests.learn import submissions

WAYS = pytest.mark.parametrize("shut_in", [True, False], ids=["bubblewrap", "rlimits"])
HOOK = "    def packets_to_retransmit(self, first_missing, sent, count):\n"
needs_bubblewrap = pytest.mark.skipif(not submissions.SHUT_IN, reason=str(crew.lacks_bubblewrap()))


@pytest.fixture
def where(tmp_path):
    return submissions.laid_out(1, tmp_path / "lab", student="ada")


def policy(body, top=""):
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = submissions.changed(submissions.solution(1), (HOOK, HOOK + lines))
    return source.replace("import numpy as np\n", f"import numpy as np\n{top}\n", 1)


def verdict(where, body, *, shut_in=submissions.SHUT_IN, top="", task="tail"):
    if shut_in and not submissions.SHUT_IN:
        pytest.skip(crew.lacks_bubblewrap())
    if not shut_in and not seccomp.available():
        pytest.skip("no filter of system calls on this machine")
    (where / "policy.py").write_text(policy(body, top))
    (item,) = submissions.judged(where, task=task, shut_in=shut_in).items
    return item


# --- Nothing is no solution ------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 5])
def test_who_does_nothing_has_nothing(tmp_path, number):
    """Also in labs in which nothing is lost in a task."""
    source = (
        "from softroce_lab.recovery.policy import MessagePolicy\n"
        f"class {labs.find(number).policy}(MessagePolicy):\n    name = 'mine'\n"
    )
    found = submissions.judged(submissions.laid_out(number, tmp_path / "lab", source))
    assert found.points == 0
    (item,) = (each for each in found.items if "nothing is lost in it" in each.text)
    assert "it counts once the policy " in item.text
    for task in labs.find(number).tasks:
        assert task.needs in ("", *(each.id for each in labs.find(number).tasks))


# --- Everything, again and again, without being told -------------------------------------------

BLIND = """import numpy as np
from softroce_lab.recovery.policy import DetectGaps, Feedback, MessagePolicy, Retransmit, SetTimer
class {name}(MessagePolicy):
    name = "blind"
    def wait(self, send, now_ns):
        return SetTimer(send, now_ns + 3 * self.rtt_ns(send)[0])
    def on_first_packet(self, receive, now_ns):
        return {first}
    def on_sent(self, send, now_ns):
        return [self.wait(send, now_ns)]
    def on_send_timer(self, send, now_ns):
        {again}
        return [Retransmit(send, packets, copies={copies}), self.wait(send, now_ns)]
"""
ALL = 'packets = np.arange(send.count, dtype="u4")'
OLD = "packets = self.missing(send)"
NOBODY = "before any feedback of the receiver: nobody said that one is missing"


@pytest.mark.parametrize(
    ("number", "first", "again", "copies", "reason"),
    [
        (1, "[]", ALL, 1, NOBODY),
        (1, "[Feedback(receive)]", OLD, 1, "which was never lost: it was on its way when"),
        (6, "[]", ALL, 16, NOBODY),
        (6, "[Feedback(receive)]", ALL, 16, "packet 0 again, which the receiver has"),
    ],
)
def test_who_repeats_everything_has_nothing(tmp_path, number, first, again, copies, reason):
    """All is delivered so, in the end; but it is no answer to a loss."""
    lab = labs.find(number)
    source = BLIND.format(name=lab.policy, first=first, again=again, copies=copies)
    where = submissions.laid_out(number, tmp_path / "lab", source)
    tasks = [item for item in submissions.judged(where).items if item.task is not None]
    assert len(tasks) == len(lab.tasks)
    for item in tasks:
        assert (item.state, item.points) == ("fails", 0), item
        assert reason in item.text, item.text


@pytest.mark.parametrize("number", [3, 4])
def test_who_repeats_everything_gets_no_task_that_asks_no_more(tmp_path, number):
    """An outage is survived so, and all paths are used: these count with another task only."""
    source = BLIND.format(name=labs.find(number).policy, first="[]", again=ALL, copies=1)
    if number == 4:
        source = source.replace("return [Retransmit", "return [PathWeights(send.peer, [1] * "
                                "self.view.paths), Retransmit").replace("SetTimer\n",
                                "SetTimer, PathWeights\n", 1)  # fmt: skip
    found = submissions.judged(submissions.laid_out(number, tmp_path / "lab", source))
    assert found.points == 0, submissions.states(found)


def test_a_packet_that_is_under_way_again_is_no_loss(tmp_path):
    """Lab 1 without its guard: each report goes back, also those that are older."""
    begin = "if state.retransmit_pending or state.sent_ns[first_missing] > now_ns - srtt_ns:"
    source = submissions.changed(submissions.solution(1), (begin, "if False:"))
    where = submissions.laid_out(1, tmp_path / "lab", source)
    (item,) = submissions.judged(where, task="goes-back").items
    assert item.state == "fails"
    assert "nobody can know yet that it is missing again" in item.text


# --- Frames that the worker never sends ------------------------------------------------------

RAW = {
    "an endless array": wire._HEAD.pack(48, 0) + b'["done",{"@":["<u4",0,%d]}]' % 10**20,
    "an array for a word": wire.encode([crew.np.zeros(3, "<u4")]),
    "a path of a peer that is none": wire.encode(["ask", "sent_on_paths", 10**30]),
    "a peer that is none": wire.encode(["ask", "peer_state", 10**30]),
    "a state that is none": wire.encode(["ask", "all seeds", 1]),
    "arrays for hooks": wire.encode(["ready", None, [crew.np.zeros(3, "<u4")] * 2]),
    "a failure that is none": wire.encode(["failed", {}, [], {}]),
    "actions that are none": wire.encode(["done", [{}, [], [1], ["PathWeights", True, {}, [1]]]]),
    "a flight into the past": wire.encode(["done", [["SetTimer", True, 0, -1]]]),
    "not a number": wire._HEAD.pack(20, 0) + b'["done",[["SetTimer"',
}


@pytest.mark.parametrize("name", RAW)
def test_a_forged_frame_gets_a_verdict(where, name):
    """Whatever comes over the pipe, the judge answers with a verdict, not with a traceback."""
    body = (
        f"import os\nfor fd in range(3, 20):\n    try: os.write(fd, {RAW[name]!r})\n"
        "    except OSError: pass"
    )
    assert verdict(where, body).state in ("fails", "holds")


def test_one_that_never_stops_asking_is_ended(where, monkeypatch):
    monkeypatch.setattr(crew, "TRIAL_S", 2.0)
    question = wire.encode(["ask", "peer_state", 0])
    body = (
        f"import os\nwhile True:\n    for fd in range(3, 9):\n"
        f"        try: os.write(fd, {question!r})\n        except OSError: pass"
    )
    begun = time.monotonic()
    item = verdict(where, "try:\n" + "\n".join(f"    {line}" for line in body.splitlines())
                   + "\nexcept BaseException: os._exit(3)")  # fmt: skip
    assert item.state == "fails"
    assert time.monotonic() - begun < 60


@needs_bubblewrap
def test_the_channel_found_in_a_frame_is_no_way_out(where):
    """Through its caller's frames a policy reaches the channel; all it can send is actions."""
    body = (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "import gc\nfrom softroce_lab.learn.sandbox.wire import Channel\n"
        "(channel,) = [each for each in gc.get_objects() if type(each) is Channel]\n"
        "channel.send(['done', []])\nchannel.send(['holds', 100])"
    )
    item = verdict(where, body)
    assert (item.state, item.points) == ("fails", 0)


def test_a_failure_of_the_judge_is_of_one_submission(where, monkeypatch):
    monkeypatch.setattr(judge, "judge", lambda *_: 1 / 0)
    found = grading.one(str(where), judge.How(submissions.SHUT_IN))
    assert (found.points, found.most) == (0, 0)
    assert "the judge itself failed" in found.next_step


def ended(path, how):
    """A judge, which is killed for one folder."""
    if path.endswith("bad"):
        os.kill(os.getpid(), signal.SIGKILL)
    return judge.Verdict(path, 1, "ada", ())


def test_a_judge_that_dies_is_of_one_submission():
    folders = [Path("a"), Path("bad"), Path("b"), Path("c")]
    found = grading.grade(folders, judge.How(submissions.SHUT_IN), 2, by=ended)
    assert [each.folder for each in found] == ["a", "bad", "b", "c"]
    assert ["not decided, the judge was ended" in each.next_step for each in found] == [
        False, True, False, False
    ]  # fmt: skip


def test_the_same_folder_twice_has_no_twin():
    twice = [judge.Verdict("a", 1, "ada", (), "shape")] * 2
    assert grading.twins(twice) == ({}, {})


# --- What is printed, and where ----------------------------------------------------------------


@WAYS
def test_an_error_s_text_moves_no_cursor(where, shut_in):
    body = "raise ValueError('\\x1b[2J\\n20 of 20 points\\r\\x07')"
    item = verdict(where, body, shut_in=shut_in)
    assert "20 of 20 points" in item.text
    assert all(each.isprintable() for each in item.text)


def test_evidence_goes_through_no_link(where, tmp_path):
    """A teacher checks a folder of a student, who has put links where `check` writes."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("failed-tail.svg", evidence.LAST):
        (where / name).symlink_to(victim)
    (where / "policy.py").write_text(policy("return np.arange(0, sent)"))
    lab = labs.find(1)
    found = judge.judge(
        folder.read(where), judge.How(submissions.SHUT_IN, task="tail"),
        lambda task, trial: evidence.write(where, lab, task, trial),
    )  # fmt: skip
    evidence.remember(where, found)
    assert victim.read_text() == "mine"
    assert "<svg" in (where / "failed-tail.svg").read_text()
    assert not (where / evidence.LAST).is_symlink()


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
    (item,) = submissions.judged(where, task="goes-back").items
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert item.state == "fails"
    assert "more actions than a run needs" in item.text
    assert grown_kib < 1 << 20


# --- What is left behind -----------------------------------------------------------------------


@WAYS
def test_threads_and_exit_handlers_are_ended(where, shut_in):
    top = (
        "import atexit, threading, time\natexit.register(time.sleep, 1000)\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()"
    )
    item = verdict(where, "pass", shut_in=shut_in, top=top)
    assert item.state == "holds", item.text
    assert _workers() == []


def _workers():
    """Processes of this one's whose command is a worker's."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and crew._WORKER.encode() in command:
            found.append(path.name)
    return found


# --- System calls ------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    "body",
    [
        "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')",  # TIOCSTI types into a terminal
        "import fcntl\nfcntl.fcntl(0, fcntl.F_SETOWN, 1)",  # a signal to another process,
        "import fcntl\nfcntl.fcntl(0, 10, 9)",  # F_SETSIG: SIGKILL
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.syscall(0x40000000 + 41, 2, 1, 0) < 0:\n"
        "    raise PermissionError(ctypes.get_errno())",  # x32's socket(2)
    ],
    ids=["types", "owner", "signal", "x32"],
)  # fmt: skip
def test_a_call_that_reaches_others_is_refused(where, body, shut_in):
    item = verdict(where, body, shut_in=shut_in)
    assert item.state == "fails"
    assert "PermissionError" in item.text


@pytest.mark.skipif(not seccomp.available(), reason="no filter of system calls on this machine")
def test_the_secret_is_not_in_proc_where_bubblewrap_is_missing(where, tmp_path):
    """`--trust`: the policy looks into the environment and the memory of all processes."""
    body = (
        "import glob\n"
        "for file in glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: found = open(file, 'rb').read()\n"
        "    except OSError: continue\n"
        "    if b'sesame-' + b'open' in found: raise ValueError('the secret: ' + file)"
    )
    (where / "policy.py").write_text(policy(body))
    done = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "learn", "grade", str(where), "--trust", "-q",
         "--json"],
        env={"PATH": "/nonexistent", "PYTHONPATH": str(PROJECT_ROOT), "HOME": str(tmp_path),
             "SOFTROCE_LAB_SECRET": "sesame-open"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the secret: " not in done.stdout
    assert re.search(r'"id": "tail".*?"state": "holds"', done.stdout, re.S), done.stdout


# --- Numbers of others -------------------------------------------------------------------------


def test_the_student_of_the_texts_has_no_points_for_answers(tmp_path):
    """The texts show that student's numbers."""
    where = submissions.laid_out(7, tmp_path / "lab", student="example", answers=True)
    answers = (where / "answers.txt").read_text().replace("= example", "=  Example ")
    (where / "answers.txt").write_text(answers)
    graded = submissions.judged(where, secret=submissions.SECRET)
    questions = [item for item in graded.items if item.id.startswith("q")]
    assert {item.points for item in questions} == {0}
    assert "your own name" in questions[0].text
    checked = submissions.judged(where)  # who tries the example learns whether it is right
    assert all(item.state == "holds" for item in checked.items if item.id.startswith("q"))


def test_hidden_seeds_do_not_tell_the_secret():
    """They differ by task and lab, and one that is shown is no step to another."""
    found = [seeds.hidden(submissions.SECRET, lab, task, 3) for lab in (1, 2) for task in "ab"]
    flat = [seed for each in found for seed in each]
    assert len(set(flat)) == len(flat)
    assert found[0] != seeds.hidden(b"another", 1, "a", 3)
