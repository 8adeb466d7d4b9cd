# SPDX-License-Identifier: GPL-2.0-or-later
"""What h1 posts, and how its NIC dies, as lab 7's `experiment.yaml` has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from softroce_lab import units
from softroce_lab.errors import LabError, UserError

NOTIFYING = ("WRITE_IMM", "SEND")
WRITING = ("WRITE", "WRITE_IMM")
KINDS = ("WRITE", "WRITE_IMM", "SEND", "READ", "ADD")
DEATHS = ("requests", "acknowledgements", "late")
"""What is lost: requests, or their acknowledgements; or a switch holds requests for some time."""
MAX_REQUESTS, MAX_BYTES, MAX_FRAMES = 16, 2048, 1000
_FIELDS = ("name", "requests", "dies", "after", "delay", "timeout", "retries")


@dataclasses.dataclass(frozen=True, slots=True)
class PostedRequest:
    """A request. `once`: it must never be executed twice."""

    number: int
    kind: str
    length_bytes: int
    once: bool = False

    @property
    def notifies(self) -> bool:
        """Whether it consumes a receive."""
        return self.kind in NOTIFYING

    def __str__(self) -> str:
        return f"request {self.number} ({self.kind}{', once' if self.once else ''})"


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """The whole experiment."""

    requests: tuple[PostedRequest, ...]
    dies: str  # of DEATHS
    after: int  # frames that the dying direction still carries
    delay_ns: int  # one way
    timeout: int  # exponent: 4.096 us x 2^timeout
    retries: int


def read(written: Mapping[str, Any]) -> Scene:
    """The scene of a file's data. UserError if there is none."""
    if not isinstance(written, Mapping):
        raise UserError("is no experiment of lab 7", hint="lab learn start 7 DIR lays one out")
    unknown = [str(name) for name in written if name not in _FIELDS]
    if unknown:
        raise UserError(f"{unknown[0]!r} is no field", hint=f"the fields: {', '.join(_FIELDS)}")
    requests = written.get("requests")
    if not isinstance(requests, list | tuple) or not 1 <= len(requests) <= MAX_REQUESTS:
        raise UserError(f"requests: a list of 1 to {MAX_REQUESTS} is wanted")
    dies = written.get("dies", "requests")
    if dies not in DEATHS:
        raise UserError(f"dies: {dies!r} is none of {', '.join(DEATHS)}")
    try:
        delay_ns = units.parse_time_ns(str(written.get("delay", "1us")))
    except LabError as error:
        raise UserError(f"delay: {error}") from None
    if not 0 < delay_ns <= 10_000:
        raise UserError("delay: more than 0 and at most 10us is wanted")
    return Scene(
        tuple(_read_request(number, str(text)) for number, text in enumerate(requests)),
        str(dies),
        _read_integer(written, "after", 0, MAX_FRAMES, 0),
        delay_ns,
        _read_integer(written, "timeout", 1, 8, 3),
        _read_integer(written, "retries", 0, 7, 1),
    )


def _read_request(number: int, text: str) -> PostedRequest:
    """`WRITE 1500`, `ADD`, `SEND 64 once`."""
    kind, *more = text.split() or [""]
    once = more[-1:] == ["once"]
    more = more[:-1] if once else more
    size = more[0] if more else "8"
    if kind not in KINDS or len(more) > 1 or not size.isdigit():
        hint = f"KIND BYTES, with a kind of {', '.join(KINDS)}, and `once` behind it if wanted"
        raise UserError(f"requests: {text!r} is no request", hint=hint)
    least = 1 if kind == "SEND" else 0
    if not least <= int(size) <= MAX_BYTES or (kind == "ADD" and size != "8"):
        hint = f"at most {MAX_BYTES}"
        raise UserError(f"requests: {text!r} has a wrong number of bytes", hint=hint)
    return PostedRequest(number, kind, int(size), once)


def _read_integer(
    written: Mapping[str, Any], name: str, least: int, most: int, default: int
) -> int:
    value = written.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"{name}: a whole number from {least} to {most} is wanted")
    return value
