# SPDX-License-Identifier: GPL-2.0-or-later
"""How the user started the command: hints name it so that they can be repeated as they are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "_LAB_TYPED"
"""Set by the launcher `lab` to how it was started: `./lab`, or a path."""

_HINT = "\n  hint: "


def name() -> str:
    """`lab` where a shell finds that; otherwise the launcher's path, as typed."""
    typed = os.environ.get(VARIABLE, "lab")
    return "lab" if shutil.which("lab") == typed else typed


def as_typed(text: str, verbs: Iterable[str]) -> str:
    """An error's text; its commands, in backticks and in its hint, as the user would type them."""
    what, hint, rest = text.partition(_HINT)
    command = name()
    if command == "lab":
        return text
    verb = "|".join(map(re.escape, verbs))
    what = re.sub(rf"`lab (?=(?:{verb})\b)", lambda _: f"`{command} ", what)
    return what + hint + commands(rest, verbs, command)


def commands(text: str, verbs: Iterable[str], command: str) -> str:
    """A text in which `lab VERB` stands for commands alone, with them as a user would type them."""
    verb = "|".join(map(re.escape, verbs))
    return re.sub(rf"(?<![\w./-])lab (?=(?:{verb})\b)", lambda _: f"{command} ", text)


def inside(folder: Path) -> str:
    """As `name`, for a user whose current folder is this one."""
    typed = name()
    if "/" not in typed or typed.startswith("/"):
        return shlex.quote(typed)
    return shlex.quote(os.path.relpath(typed, folder))
