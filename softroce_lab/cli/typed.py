# SPDX-License-Identifier: GPL-2.0-or-later
"""How the user started the command: hints name it so that they can be repeated as they are."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable

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
    rest = re.sub(rf"(?<![\w./-])lab (?=(?:{verb})\b)", lambda _: f"{command} ", rest)
    return what + hint + rest
