# SPDX-License-Identifier: GPL-2.0-or-later
"""What students get wrong: each mistake is found, by a task that names it, with the right reason.

A change replaces texts of the model solution.
"""

import re

import pytest

from softroce_lab.learn import folder, labs
from tests.learn import submissions

_RETURN_1 = "return np.arange(first_missing, sent)"
_NEVER = "never sent again|nothing was ever sent again"

LAB_1 = {
    "off by one": (
        "goes-back", [(_RETURN_1, "return np.arange(first_missing + 1, sent)")],
        r"the receiver lacks packet (\d+), and you went back to packet (\d+) only",
    ),
    "stops one early": (
        "goes-back",
        [(_RETURN_1, "return np.arange(first_missing, max(sent - 1, first_missing + 1))")],
        r"you stopped at packet \d+, but packets up to \d+ had been sent",
    ),
    "retransmits everything": (
        "goes-back", [(_RETURN_1, "return np.arange(0, sent)")],
        r"you went back to packet 0, but the receiver lacks packet \d+ first",
    ),
    "selective repeat": (
        "goes-back", [(_RETURN_1, "return np.array([first_missing])")],
        "go-back-N sends them all again",
    ),
    "infinite timer": (
        "tail", [("wait_ns = max(", "wait_ns = 10**15 + max(")], _NEVER,
    ),
    "gives up early": (
        "dark",
        [("        return [RequestStatus(send), self.timer(send, now_ns)]",
          "        send.memory = (send.memory or 0) + 1\n"
          "        if send.memory > 3:\n            return []\n"
          "        return [RequestStatus(send), self.timer(send, now_ns)]")],
        _NEVER,
    ),
    "ignores whose packets they are": (
        "goes-back",
        [(_RETURN_1,
          "self.seen = getattr(self, 'seen', set())\n"
          "        fresh = [p for p in range(first_missing, sent) if p not in self.seen]\n"
          "        self.seen.update(fresh)\n        return np.array(fresh, dtype=np.uint32)")],
        "no packet was sent again|you went back to|you left some out|you stopped at",
    ),
}  # fmt: skip

_LOST = "return [Retransmit(send, missing[overtaken & self.overdue(send, state, missing, now_ns)])]"
_TIMEOUT = "return [Retransmit(send, lost), self.timer(send, now_ns)]"

LAB_3 = {
    "off by one": (
        "tail",
        [("        return [Retransmit(send, lost),", "        return [Retransmit(send, lost[1:]),"),
         (_LOST, _LOST.replace("now_ns)])]", "now_ns)][1:])]"))],
        _NEVER,
    ),
    "retransmits everything": (
        "losses", [(_LOST, "return [Retransmit(send, np.arange(state.sent))]")],
        r"packets were sent again and only [\d,]+ were lost.*which the receiver has",
    ),
    "no reordering window": (
        "reordering",
        [("newest_ns - srtt_ns // 2", "newest_ns"),
         (_LOST, "return [Retransmit(send, missing[overtaken])]")],
        "nothing was lost.*Leave it a reordering window",
    ),
    "every SACK retransmits": (
        "losses",
        [(_LOST,
          "return [Retransmit(send, missing[missing < np.flatnonzero(arrived).max()])]")],
        "packets were sent again and only .*sent again already",
    ),
    "only the timer": (
        "losses", [(_LOST, "return []")],
        "half of the lost packets took .* round trips.*do not wait for the timer",
    ),
    "once only": (
        "twice",
        [(_TIMEOUT, "lost = lost[state.attempts[lost] < 2]\n        " + _TIMEOUT),
         (_LOST, _LOST.replace("missing[", "missing[(state.attempts[missing] < 2) & "))],
        r"packet \d+ of message .* sent again 1 times; it is still missing",
    ),
    "gives up early": (
        "dark",
        [(_TIMEOUT,
          "if send.timeouts_without_progress > 3:\n            return []\n        " + _TIMEOUT)],
        _NEVER + "|sent again . times; it is still missing",
    ),
    "ignores generations": (
        "many",
        [(_TIMEOUT,
          "self.seen = getattr(self, 'seen', {})\n"
          "        seen = self.seen.setdefault(send.id % self.view.message_slots, set())\n"
          "        lost = np.array([p for p in lost if p not in seen], dtype=np.uint32)\n"
          "        seen.update(lost.tolist())\n        " + _TIMEOUT)],
        _NEVER + "|sent again . times; it is still missing",
    ),
}  # fmt: skip


def _instead(method, body):
    """Replace a method's body of the model solution: what comes first returns."""
    return [(f"    def {method}:\n", f"    def {method}:\n{body}\n")]


def _body(method):
    return lambda body: _instead(method, "        " + body)


_CHECK_AT = _body("check_at(self, first_ns, now_ns, arrived, count, srtt_ns, rttvar_ns)")
_WEIGHTS = _body("weights(self, sent, lost)")
_RTO = _body("rto_ns(self, base_rtt_ns, srtt_ns, rttvar_ns)")
_COPIES = _body("copies(self, loss, packets)")

LAB_2 = {
    "a long timer": ("tail", _CHECK_AT("return now_ns + 6 * srtt_ns"), "it can look when they"),
    "gives up early": (
        "twice", _CHECK_AT("if arrived + 4 > count: return now_ns + 10**12"), "look again",
    ),
    "polls": ("clean", _CHECK_AT("return now_ns + 2000"), "the receiver looked [0-9,]+ times for"),
    "division by zero": (
        "tail", _CHECK_AT("return now_ns + count // (now_ns - first_ns)"),
        r"policy.py:\d+: on_first_packet .*ZeroDivisionError|ZeroDivisionError",
    ),
}  # fmt: skip

LAB_4 = {
    "as it was": ("grey", _WEIGHTS("return [2] * len(sent)"), "of all packets took the path"),
    "counts": (
        "grey", _WEIGHTS("return [max(200 - each, 1) for each in lost]"), "not the number",
    ),
    "never again": (
        "even",
        _WEIGHTS("return [0 if l else 1 for l in lost] if not all(lost) else [1] + [0] * 7"),
        "a path is bad only if",
    ),
    "no path": ("grey", _WEIGHTS("return [0] * len(sent)"), r"policy.py.*no weights of"),
}  # fmt: skip

LAB_5 = {
    "base": ("deep", _RTO("return 4 * base_rtt_ns"), "they waited in a queue"),
    "no margin": ("deep", _RTO("return srtt_ns"), "they waited in a queue"),
    "little margin": ("shallow", _RTO("return srtt_ns + rttvar_ns // 4"), "although they had"),
    "too long": ("tail", _RTO("return 50 * srtt_ns"), "should be a few RTTs"),
}  # fmt: skip

LAB_6 = {
    "as it was": ("few", _COPIES("return 0 + 1"), "too few"),
    "off by one": (
        "few", [("                return number\n", "                return number + 1\n")],
        "more than needed",
    ),
    "fixed": ("many", _COPIES("return 2"), "too few|more than needed"),
    "the mean": (
        "few", [("(1 - loss**number) ** packets >= 0.99", "packets * loss**number < 1")],
        "too few",
    ),
}  # fmt: skip

_STEPS = 'return ["stop", "receives", "move"]'
_EXECUTED = r"h2 counts \d+ of the notifications in flight\. request \d+ \(\w+\) was posted again, "
_EXECUTED += "although it was executed"
_ON_MOVE = _body("on_move(self, requests, executed)")

LAB_7 = {
    "repeats all": ("counted", _ON_MOVE("return [], requests"), _EXECUTED),
    "repeats nothing": (
        "lost", _ON_MOVE("return requests, []"), "was called done, and nobody knows",
    ),
    "harmless writes": (
        "counted",
        [("        return done, again",
          "        writes = [each for each in done if not each.notifies]\n"
          "        return [each for each in done if each.notifies], writes + again")],
        _EXECUTED + ".*so (request .* wrote again|.*twice)",
    ),
    "notifications first": (
        "lost",
        [("        return done, again",
          "        return done, sorted(again, key=lambda each: not each.notifies)")],
        r"was posted again before request \d+",
    ),
    "as it was": ("order", [(_STEPS, 'return ["move", "receives", "stop"]')], "before the stop"),
    "move before stop": (
        "order", [(_STEPS, 'return ["move", "stop", "receives"]')],
        "executes what arrives late.*so .*(twice|wrote again)",
    ),
    "receives last": (
        "order", [(_STEPS, 'return ["stop", "move", "receives"]')], "no receive is posted yet",
    ),
    "receives of a queue pair in service": (
        "order", [(_STEPS, 'return ["receives", "stop", "move"]')],
        "still belong to the failed queue pair",
    ),
    "no stop": ("order", [(_STEPS, 'return ["receives", "move"]')], "without 'stop'"),
    "no word": ("order", [(_STEPS, 'return ["stop", "receives"]')], "without 'move'.*never ended"),
    "gives up": (
        "lost", [("        return done, again", "        return done, None")],
        "the failure surfaced, although everything left may be posted again",
    ),
    "adds twice": (
        "once", [('(each.once or each.kind == "ADD")', "each.once")],
        r"\(ADD\) must not be executed twice",
    ),
    "ignores the mark": (
        "once", [('(each.once or each.kind == "ADD")', 'each.kind == "ADD"')],
        r"once\) must not be executed twice",
    ),
    "ignores begun": (
        "once", [("each.begun and (", "(")], "the failure surfaced, although everything left",
    ),
    "forgets results": (
        "once", [(' if each.kind not in ("READ", "ADD")', "")],
        r"\(READ\) was called done, and its result is lost",
    ),
    "another object": (
        "lost", _ON_MOVE("return [], [1, 2]"), r"policy.py:\d+: on_move returned no two lists",
    ),
    "unknown step": ("order", [(_STEPS, 'return ["halt"]')], "'halt', which is no step"),
}  # fmt: skip

WRONG = {1: LAB_1, 2: LAB_2, 3: LAB_3, 4: LAB_4, 5: LAB_5, 6: LAB_6, 7: LAB_7}
CASES = [(number, name) for number, mistakes in WRONG.items() for name in mistakes]


@pytest.mark.parametrize(("number", "name"), CASES, ids=lambda value: str(value))
def test_a_mistake_is_named(number, name, tmp_path):
    task, changes, reason = WRONG[number][name]
    policy = submissions.changed(submissions.solution(number), *changes)
    where = submissions.laid_out(number, tmp_path / "lab", policy)
    item = submissions.judged_task(where, task)
    assert (item.state, item.points) == ("fails", 0)
    assert re.search(reason, item.text), item.text
    assert f"--task {task} --seed {item.seed}" in item.replay


# By lab: a task, the hole, what of its arguments is recorded, and what it returns for others.
RECORDED = {
    1: ("goes-back", "packets_to_retransmit", "args", "np.arange(0)"),
    2: ("tail", "check_at", "args", "args[1] + 10**12"),
    4: ("grey", "weights", "args", "[2] * len(args[0])"),
    5: ("deep", "rto_ns", "args", "4 * args[0]"),
    6: ("few", "copies", "args", "1"),
    7: (
        "counted",
        "on_move",
        "[(each.number, each.kind, each.bytes) for each in args[0]], args[1]",
        "([], args[0])",
    ),
}


@pytest.mark.parametrize("number", RECORDED)
def test_answers_recorded_with_the_public_seeds_fail_with_hidden_ones(number, tmp_path, capfd):
    """Hard-coded: right for what the public seeds ask, a hand-out's answer for all else."""
    task, hole, asked, otherwise = RECORDED[number]
    solution = submissions.changed(
        submissions.solution(number), (f"    def {hole}(self, ", f"    def _right_{hole}(self, ")
    )
    begin = f"    def _right_{hole}(self, "
    where = submissions.laid_out(number, tmp_path / "lab")

    def judged(body, **options):
        method = f"    def {hole}(self, *args):\n        {body}\n\n"
        (where / "policy.py").write_text(submissions.changed(solution, (begin, method + begin)))
        return submissions.judged_task(where, task, **options)

    found = judged(
        f"print('ASKED', repr(({asked})), flush=True); return self._right_{hole}(*args)",
        prints=True,
    )
    assert found.state == "holds"
    lines = {line[6:] for line in capfd.readouterr().err.splitlines() if line[:6] == "ASKED "}
    assert lines
    hard_coded = (
        f"return self._right_{hole}(*args) if repr(({asked})) in {lines!r} else {otherwise}"
    )
    assert judged(hard_coded).state == "holds"
    item = judged(hard_coded, secret=submissions.SECRET)
    assert (item.state, item.points) == ("fails", 0)
    assert item.text.startswith(f"hidden seed {item.seed}: ")
    assert "the public seeds pass" in item.text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("about ten", "'about ten' is no number"),
        ("nan", "'nan' is no number"),
        ("1e9", "is not right"),
        ("", "write your number behind 'q3 ='"),
    ],
)
def test_a_wrong_answer(written, text, tmp_path):
    where = submissions.laid_out(1, tmp_path / "lab")
    submissions.answer(where, labs.find(1), q3=written)
    (item,) = (item for item in submissions.judged(where).items if item.id == "q3")
    assert item.points == 0
    assert text in item.text


@pytest.mark.parametrize("lab", list(labs.SERIES.values()), ids=lambda lab: lab.number)
def test_an_answer_is_right_within_its_tolerance(lab, tmp_path):
    where = submissions.laid_out(lab.number, tmp_path / "lab")
    question = next(one for one in lab.questions if one.kind != "prediction" and one.tolerance)
    right = question.right(folder.read(where).dice)
    for tolerances in (-2, 0.5):
        given = right * (1 + tolerances * question.tolerance)
        submissions.answer(where, lab, **{question.id: f"{given:.12g}"})
        (item,) = (item for item in submissions.judged(where).items if item.id == question.id)
        assert (item.state == "holds") == (abs(tolerances) < 1)


def test_answers_of_another_student_are_wrong(tmp_path):
    where = submissions.laid_out(1, tmp_path / "lab", student="ada", answers=True)
    answers = (where / "answers.txt").read_text().replace("student = ada", "student = grace")
    (where / "answers.txt").write_text(answers)
    wrong = [item.id for item in submissions.judged(where).items if item.state == "fails"]
    assert {"q3", "q5"} <= set(wrong)


def test_the_student_of_the_texts_has_no_points_for_answers(tmp_path):
    """The texts show that student's numbers. Who tries the example learns whether it is right."""
    where = submissions.laid_out(7, tmp_path / "lab", answers=True)
    answers = (where / "answers.txt").read_text().replace("= example", "=  Example ")
    (where / "answers.txt").write_text(answers)
    for secret, state in ((submissions.SECRET, "fails"), (None, "holds")):
        items = submissions.judged(where, secret=secret).items
        assert {item.state for item in items if item.id.startswith("q")} == {state}


# --- Doing nothing, or everything ------------------------------------------------------------

BLIND = """import numpy as np
from softroce_lab.transports.policy import *
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
        more = {more}
        return [*more, Retransmit(send, packets, copies={copies}), self.wait(send, now_ns)]
"""
IDLE = """from softroce_lab.transports.policy import *
class {name}(MessagePolicy):
    name = "idle"
"""
ALL = 'packets = np.arange(send.count, dtype="u4")'
OLD = "packets = self.missing(send)"
WEIGHTS = "[PathWeights(send.peer, [1] * self.view.paths)]"
NOBODY = "before any feedback of the receiver: nobody said that one is missing"


@pytest.mark.parametrize(
    ("number", "source", "reason"),
    [
        *((number, IDLE, "nothing is lost in it: it counts once the policy ")
          for number in (2, 3, 5)),
        (1, (BLIND, "[]", ALL, 1), NOBODY),
        (1, (BLIND, "[Feedback(receive)]", OLD, 1), "which was never lost: it was on its way when"),
        (6, (BLIND, "[]", ALL, 16), NOBODY),
        (6, (BLIND, "[Feedback(receive)]", ALL, 16), "packet 0 again, which the receiver has"),
        (3, (BLIND, "[]", ALL, 1), "who repeats everything survives it, too"),
        (4, (BLIND, "[]", ALL, 1), "who never changes a weight does so, too"),
    ],
)  # fmt: skip
def test_who_does_nothing_or_everything_has_nothing(number, source, reason, tmp_path):
    """All is delivered so, in the end; but it is no answer to a loss."""
    name = labs.find(number).policy
    if source is IDLE:
        source = IDLE.format(name=name)
    else:
        _, first, again, copies = source
        more = WEIGHTS if number == 4 else []
        source = BLIND.format(name=name, first=first, again=again, copies=copies, more=more)
    found = submissions.judged(submissions.laid_out(number, tmp_path / "lab", source))
    assert found.points == 0
    reasons = [reason in item.text for item in found.items if item.task is not None]
    assert all(reasons) if number in (1, 6) else any(reasons)


def test_a_packet_that_is_under_way_again_is_no_loss(tmp_path):
    """Lab 1 without its guard: each report goes back, also those that are older."""
    begin = "if state.retransmit_pending or state.sent_ns[first_missing] > now_ns - srtt_ns:"
    source = submissions.changed(submissions.solution(1), (begin, "if False:"))
    item = submissions.judged_task(submissions.laid_out(1, tmp_path / "lab", source), "goes-back")
    assert item.state == "fails"
    assert "nobody can know yet that it is missing again" in item.text
