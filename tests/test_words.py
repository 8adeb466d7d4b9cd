# SPDX-License-Identifier: GPL-2.0-or-later
"""Names, comments and printed texts have the field's words; docs/glossary.md defines them."""

import io
import os
import re
import subprocess
import tokenize

import pytest

from softroce_lab import paths

FORMER = {
    r"re-?sen[dt]s?": "retransmit, retransmitted, retransmissions",
    r"look_at|look_at_peer|looks?_(?:at_)?ns|on_(?:peer_)?look": "set_timer, on_timer, loss check",
    r"early_looks?|look_round": "premature_nacks, nack_round",
    r"received again": "spurious",
    r"barren|fruitless": "timeouts_without_progress, keepalives_unanswered",
    r"alive_ns|alive_most_ns|question_ns|questioned_ns": "keepalive_interval_ns",
    r"turned_away": "rnr_sent",
    r"say_twice|tell_again|heard_ns|heard_at|unheard": "send_redundantly, last_received_ns",
    r"reorder_ns|reorder_least_ns": "reordering_window_ns",
    r"rivals?": "baseline",
    r"misfortunes?": "faults",
    r"errands?": "host_task",
    r"violated": "fail, failed",
    r"keep(?:s|ing)? step|in vain": "synchronised with, spurious",
}
"""Former words, as pieces of names or in printed texts, and those of today."""

OF_PEOPLE = {
    r"told|said|heard|hears?|says": "reported, sent, received, states",
}
"""The same in names and comments. `say` is the parameter that prints progress; `tell` a command.

Names of tests are sentences, and printed texts are for people: both may have these.
"""

ANY = re.compile("|".join(FORMER | OF_PEOPLE), re.IGNORECASE)

MESSAGES = re.compile(r"\b(?:LOOK|ANSWER|BITMAP|PROBE|LookAt(?:Peer)?|TellingPolicy)\b")
"""Former names of control messages and actions, by case: `answer` is an English word."""

ALLOWED = {
    ("softroce_lab/check/renamed.py", "alive_ns"): "maps names of run directories made before",
}
PRODUCT = ("softroce_lab/", "native/", "xdp/")
CODE = ("*.py", "*.cpp", "*.hpp", "xdp/*.c", "xdp/*.h", "softroce_lab/cli/help.txt")


def pieces(name, text):
    """Line, kind and text of names, comments (docstrings too) and one-line strings of a file."""
    if name.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = _KINDS.get(token.type)
            if kind == "text" and token.string.lstrip("rRbBfF").startswith('"""'):
                kind = "comment"
            if kind is not None:
                yield token.start[0], kind, token.string
    else:
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r"//.*|/\*.*?\*/", "", line)
            yield number, "name", code
            yield number, "comment", line[len(os.path.commonprefix([code, line])) :]


_KINDS = {tokenize.NAME: "name", tokenize.COMMENT: "comment", tokenize.STRING: "text"}


def former_words(name, text):
    """Places of former words in a file, what they are and what is to be written."""
    if not (ANY.search(text) or MESSAGES.search(text)):
        return
    comments = name.startswith(PRODUCT)
    for number, kind, piece in pieces(name, text):
        if kind == "comment" and not comments:
            continue
        people = kind == "comment" or (kind == "name" and not piece.startswith("test_"))
        for former, today in (FORMER | OF_PEOPLE if people else FORMER).items():
            found = re.search(rf"(?<![a-z])(?:{former})(?![a-z])", piece, re.IGNORECASE)
            if found and (name, found[0]) not in ALLOWED:
                yield f"{name}:{number}: {found[0]}: {today}"
        if found := MESSAGES.search(piece):
            yield f"{name}:{number}: {found[0]}"


def test_former_words_are_in_no_name_and_no_printed_text():
    files = subprocess.run(
        ["git", "ls-files", "--", *CODE], cwd=paths.PROJECT_ROOT, capture_output=True, text=True
    ).stdout.split()
    assert len(files) > 500
    ours = [each for each in files if each != "tests/test_words.py"]
    found = [
        place
        for each in ours
        for place in former_words(each, (paths.PROJECT_ROOT / each).read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "packets.resend_pending = 1"),
        ("a.py", 'print("resent: 3")'),
        ("a.py", "def on_look(self): pass"),
        ("a.py", 'column = ("received again", 1)'),
        ("a.cpp", "Time heard_at(PeerIndex peer);"),
        ("a.cpp", 'name = "LOOK";'),
        ("a.txt", "Draw work and misfortune from seeds"),
        ("tests/a.py", "told = 1"),
        ("softroce_lab/a.py", "# the peer has heard it\n"),
        ("softroce_lab/a.py", '"""What it says."""'),
        ("softroce_lab/a.py", "# it is resent\n"),
        ("native/a.cpp", "int x;  // was resent"),
    ],
)
def test_a_former_word_is_found(name, text):
    assert list(former_words(name, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "present = sent"),
        ("a.py", "# a comment may tell of what was resent\nx = 1"),
        ("a.py", "answer = ask()"),
        ("a.cpp", "int x;  // LOOK"),
        ("tests/a.py", "# a comment of a test may tell what was said\nx = 1"),
        ("tests/a.py", "def test_a_peer_is_told(): pass"),
        ("softroce_lab/a.py", "print('it said so')"),
    ],
)
def test_other_words_are_no_former_words(name, text):
    assert not list(former_words(name, text))
