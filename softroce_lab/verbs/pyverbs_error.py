# SPDX-License-Identifier: GPL-2.0-or-later
"""What the verbs raise; completions have how work requests end."""

from __future__ import annotations

import os

from softroce_lab.errors import LabError


class PyverbsError(LabError):
    """Base of what the verbs raise."""


class PyverbsRDMAError(PyverbsError):
    """A verb was refused; `error_code` is the errno value of its C function, if it has one."""

    def __init__(self, msg: str, error_code: int = -1, *, hint: str | None = None) -> None:
        known = error_code != -1
        super().__init__(
            f"{msg}. Errno: {error_code}, {os.strerror(error_code)}" if known else msg, hint=hint
        )
        self.error_code = error_code


class PyverbsUserError(PyverbsError):
    """The arguments make no sense, whatever the device."""
