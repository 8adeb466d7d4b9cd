# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's own policy: a class in one Python file, read where the transport is used.

The file is executed, as the user who starts the run; the first time in a process of its own, whose
end is an error. Where it is executed again it cannot end the process by `os._exit`. Each process
executes the bytes whose SHA-256 it was given, or refuses them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import os
import posix
import sys
import traceback
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import guard, own_process
from softroce_lab.experiment.transports.policy_call import (
    PolicyCall,
    PolicyError,
    by_user,
    line_in,
)
from softroce_lab.transports.policy import MessagePolicy
from softroce_lab.transports.registry import Entry

EXAMPLE = "policy: ./mine.py:Mine, a file and a class in it"
ENDING = "executing it ended its process"
_OWN = "softroce_lab_user_"  # what names of modules of users' files begin with


def is_reference(text: str) -> bool:
    """Whether it names a class in a file, not a built-in transport."""
    return ".py:" in text or text.endswith(".py") or "/" in text


def split(reference: str) -> tuple[str, str]:
    """FILE:CLASS as two. UserError if it is not of that form."""
    file, colon, name = reference.rpartition(":")
    if not (colon and file and name.isidentifier()):
        raise UserError(f"{reference!r} names no class in a file", hint=EXAMPLE)
    return file, name


def digest(file: Path) -> str:
    return hashlib.sha256(_read(file)).hexdigest()


@functools.lru_cache(maxsize=64)
def tried(file: str, name: str, sha256: str) -> None:
    """Execute the file in a process of its own first: one that ends that must not end the command.

    UserError, as of `entry`.
    """

    def execute(_: object) -> None:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)  # it prints when it is used
        entry(file, name, sha256)

    try:
        own_process.call(file, execute, lambda _: None)
    except PolicyError as error:
        why = error.why.replace(own_process.ENDED, ENDING)
        raise UserError(why, hint=error.hint, file=file, line=error.line) from None


def used(file: str, name: str, sha256: str) -> None:
    """Execute the file in the process of the command, after `tried`. UserError, as of `entry`."""
    with own_process.announced(f"lab: {file}: executing it ended the command\n"):
        entry(file, name, sha256)


@functools.lru_cache(maxsize=64)
def entry(file: str, name: str, sha256: str | None) -> Entry:
    """The transport of a class; UserError with the file and the line for what is wrong with it."""
    source, found = _source(file, sha256), named(file, name, sha256)
    if found is None:
        raise _absent(file, source, name, str(sha256))
    if not (isinstance(found, type) and issubclass(found, MessagePolicy)):
        what = f"{name} is {_kind(found)}, not a policy"
        hint = f"class {name}(MessagePolicy), of softroce_lab.transports.policy"
        raise UserError(what, hint=hint, file=file, line=_line_of(source, name))
    line = _line_of(source, name)
    if (why := guard.wrong(found)) is not None:
        raise UserError(why, file=file, line=line)
    _check_hooks(found, file)
    try:
        return Entry.of(guard.guarded(found, file, guard.class_methods(found, file)))
    except Exception as error:  # its metaclass or __init_subclass__
        what = f"{name} cannot be used: {type(error).__name__}: {error}"
        raise UserError(what, file=file, line=line) from None


def named(file: str, name: str, sha256: str | None) -> object:
    """What a file calls so when it is executed, of whatever kind; None: nothing. UserError."""
    return vars(_module(file, _source(file, sha256), str(sha256))).get(name)


def _source(file: str, sha256: str | None) -> bytes:
    source = _read(Path(file))
    if hashlib.sha256(source).hexdigest() != sha256:
        raise UserError("has changed since the command began", hint="run it again", file=file)
    return source


def _check_hooks(policy: type[MessagePolicy], file: str) -> None:
    """UserError for a method of the file that is named like a hook and is none."""
    own = [each for each in policy.__mro__ if each.__module__.startswith(_OWN)]
    hooks = {name for each in policy.__mro__ if each not in own for name in vars(each)}
    known = sorted(name for name in hooks if name.startswith("on_"))
    for each in own:
        for name, value in vars(each).items():
            if name.startswith("on_") and name not in known:
                code = getattr(value, "__code__", None)
                line = code.co_firstlineno if code and code.co_filename == file else None
                what = f"{each.__name__}.{name} is no hook, so it is never called"
                raise UserError(what, hint=_did_you_mean(name, known), file=file, line=line)


def _read(file: Path) -> bytes:
    try:
        if file.exists() and not file.is_file() and not file.is_dir():  # a FIFO has no end
            raise UserError("is not a file", file=str(file))
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(file)) from None


@functools.lru_cache(maxsize=64)
def _module(file: str, source: bytes, sha256: str) -> types.ModuleType:
    """The file, executed once in a process: all of its classes are of one module."""
    # np.unique imports it at its first call: 17 ms, which would be in the middle of a run.
    importlib.import_module("numpy.ma")
    module = types.ModuleType(f"{_OWN}{Path(file).stem}_{sha256[:12]}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses and pickle use it
    try:
        code = compile(source, file, "exec")
        with _process_goes_on():
            PolicyCall(file, "the file").watched(lambda: exec(code, vars(module)))  # noqa: S102
    except SyntaxError as error:
        own = error.filename == file
        where = {"line": error.lineno, "column": error.offset} if own else {}
        raise UserError(f"{type(error).__name__}: {error.msg}", file=file, **where) from None
    except PolicyError as error:
        raise UserError(error.why, hint=error.hint, file=file, line=error.line) from None
    except BaseException as error:  # SystemExit, too: it would end the command, with success
        if by_user(error):
            raise
        line = line_in(file, reversed(list(traceback.walk_tb(error.__traceback__))))
        ended = isinstance(error, _EndedError)
        what = str(error) if ended else f"{type(error).__name__}: {error}"
        raise UserError(what, file=file, line=line) from None
    return module


class _EndedError(BaseException):
    """The file was to end the process. Not an `Exception`: its `except Exception` lets it pass."""


@contextlib.contextmanager
def _process_goes_on() -> Iterator[None]:
    """`os._exit` in this process raises: it would end the command without a message."""
    end, pid = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != pid:  # a child that the file forked
            end(status)
        raise _EndedError(f"{ENDING}: exit code {status}")

    places = (os, posix)
    for each in places:
        vars(each)["_exit"] = refuse
    try:
        yield
    finally:
        for each in places:
            vars(each)["_exit"] = end


def _absent(file: str, source: bytes, name: str, sha256: str) -> UserError:
    made = _module(file, source, sha256)
    module = made.__name__
    own = [
        each
        for each, value in vars(made).items()
        if inspect.isclass(value)
        and issubclass(value, MessagePolicy)
        and value.__module__ == module
    ]
    hint = _did_you_mean(name, own) if own else f"class {name}(MessagePolicy): ..."
    return UserError(f"has no class {name!r}", hint=hint, file=file)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    # Late: pydantic, which this imports, takes half the time in which a student's process starts.
    from softroce_lab.inputs.validation import did_you_mean

    return did_you_mean(name, known)


def _kind(found: object) -> str:
    return "a class of its own" if isinstance(found, type) else f"of type {type(found).__name__}"


def _line_of(source: bytes, name: str) -> int | None:
    """Where a name is defined at the top of the file."""
    for number, line in enumerate(source.decode(errors="replace").splitlines(), 1):
        if line.startswith((f"class {name}", f"def {name}", f"{name} ", f"{name}=")):
            return number
    return None
