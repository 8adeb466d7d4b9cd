# SPDX-License-Identifier: GPL-2.0-or-later
"""One hierarchy for everything that can go wrong and is not a bug.

`str(error)` is what the user reads: the place, what is wrong, and on a second line what to do.
`error.exit_code` is what the process returns.
"""

from __future__ import annotations

import enum
import errno


class ExitCode(enum.IntEnum):
    """What the `lab` command returns."""

    DONE = 0
    FAILED = 1  # a check or a run failed
    USAGE = 2  # the user's input is wrong
    LACKING = 3  # the machine lacks something
    NOT_EXECUTABLE = 126  # of `lab exec`, as of a shell: the program cannot be run
    NOT_FOUND = 127  # of `lab exec`, as of a shell: there is no such program
    INTERRUPTED = 130  # 128 + SIGINT, after clean-up


class ibv_wc_status(enum.IntEnum):  # noqa: N801 - the C name, as pyverbs has it
    """How a work request ended: the values of rdma-core's verbs.h."""

    IBV_WC_SUCCESS = 0
    IBV_WC_LOC_LEN_ERR = 1
    IBV_WC_LOC_QP_OP_ERR = 2
    IBV_WC_LOC_EEC_OP_ERR = 3
    IBV_WC_LOC_PROT_ERR = 4
    IBV_WC_WR_FLUSH_ERR = 5
    IBV_WC_MW_BIND_ERR = 6
    IBV_WC_BAD_RESP_ERR = 7
    IBV_WC_LOC_ACCESS_ERR = 8
    IBV_WC_REM_INV_REQ_ERR = 9
    IBV_WC_REM_ACCESS_ERR = 10
    IBV_WC_REM_OP_ERR = 11
    IBV_WC_RETRY_EXC_ERR = 12
    IBV_WC_RNR_RETRY_EXC_ERR = 13
    IBV_WC_LOC_RDD_VIOL_ERR = 14
    IBV_WC_REM_INV_RD_REQ_ERR = 15
    IBV_WC_REM_ABORT_ERR = 16
    IBV_WC_INV_EECN_ERR = 17
    IBV_WC_INV_EEC_STATE_ERR = 18
    IBV_WC_FATAL_ERR = 19
    IBV_WC_RESP_TIMEOUT_ERR = 20
    IBV_WC_GENERAL_ERR = 21
    IBV_WC_TM_ERR = 22
    IBV_WC_TM_RNDV_INCOMPLETE = 23


class LabError(Exception):
    """Base of all; `what` states what is wrong, `hint` what to do about it."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def _headline(self) -> str:
        return self.what

    def __str__(self) -> str:
        return self._headline() + (f"\n  hint: {self.hint}" if self.hint else "")


class UserError(LabError, ValueError):
    """The user's input is wrong: `FILE:LINE:COLUMN: what`, as compilers say it.

    Lines and columns count from 1. It is a ValueError too, so that pydantic's validators may
    raise it and hand it on.
    """

    exit_code = ExitCode.USAGE

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(what, hint=hint)
        self.file = file
        self.line = line
        self.column = column

    def _headline(self) -> str:
        place = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        return ":".join(place) + f": {self.what}" if place else self.what


class ProgramError(UserError):
    """A program that the user named cannot be run; a shell has an exit code for it."""

    def __init__(self, program: str, error: OSError) -> None:
        super().__init__(f"cannot run {program}: {error.strerror}")
        absent = error.errno == errno.ENOENT
        self.exit_code = ExitCode.NOT_FOUND if absent else ExitCode.NOT_EXECUTABLE


class EnvironmentLackError(LabError):
    """The machine lacks a capability that the lab needs; the hint states how to get it."""

    exit_code = ExitCode.LACKING

    def __init__(
        self, capability: str, what: str | None = None, *, hint: str | None = None
    ) -> None:
        super().__init__(what or f"this machine lacks {capability}", hint=hint)
        self.capability = capability


class RunError(LabError):
    """A run or a check failed."""


class RdmaError(LabError):
    """A work request ended badly, with the status that a verbs program would see."""

    def __init__(self, status: ibv_wc_status, what: str, *, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.status = status

    def _headline(self) -> str:
        return f"{self.status.name}: {self.what}"
