# SPDX-License-Identifier: GPL-2.0-or-later
"""A failover of a submission, in its process: it gets requests, and answers with their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import guard, policy_file
from softroce_lab.experiment.transports.policy_call import PolicyCall, PolicyError

HOOKS = ("on_failure", "on_move")


@dataclasses.dataclass(eq=False, slots=True)
class Request:
    """A request in flight, as a failover gets it."""

    number: int  # in the order of posting
    kind: str  # WRITE, WRITE_IMM, SEND, READ or ADD
    bytes: int
    notifies: bool  # the peer is notified of it: a SEND, or a WRITE with immediate
    once: bool  # its program wants it executed once or not at all
    begun: bool  # a packet of it has left


class Hosted:
    """One host's failover, for one run."""

    def __init__(self, _: object, file: str, name: str, __: object) -> None:
        sha256 = policy_file.digest(Path(file))
        made: Any = policy_file.named(file, name, sha256)
        if not isinstance(made, type):
            raise UserError(f"has no class {name!r}", hint=f"class {name}: ...", file=file)
        self._file = file
        self.failover: Any = guard.called(PolicyCall(file, "__init__"), made)
        self._calls = {hook: self._call_of(hook) for hook in HOOKS}

    def _call_of(self, hook: str) -> PolicyCall:
        code = getattr(getattr(self.failover, hook, None), "__code__", None)
        if code is None:
            raise PolicyError(self._file, None, f"has no method {hook}")
        return PolicyCall(self._file, hook, code.co_firstlineno)

    @property
    def ready(self) -> tuple[None, list[str]]:
        """What the judge has to know."""
        return None, list(HOOKS)

    def call(self, hook: str, *more: Any) -> list[Any]:
        """Steps; or places of requests, done and to be posted again."""
        call = self._calls[hook]
        if hook == "on_failure":
            steps = guard.called(call, lambda: list(self.failover.on_failure()))
            if not all(isinstance(each, str) for each in steps):
                raise PolicyError(self._file, call.line, "on_failure returned no list of steps")
            return steps
        written, executed = more
        requests = [Request(**each) for each in written]
        found = guard.called(call, lambda: self.failover.on_move(list(requests), executed))
        try:
            done, again = found
            return [_places(done, requests), None if again is None else _places(again, requests)]
        except (TypeError, ValueError):
            why = "on_move returned no two lists of the requests that it was given: done, again"
            raise PolicyError(self._file, call.line, why) from None


def _places(found: Sequence[Any], requests: Sequence[Request]) -> list[int]:
    places = {id(each): place for place, each in enumerate(requests)}
    if not all(id(each) in places for each in found):
        raise ValueError("another object")
    return [places[id(each)] for each in found]
