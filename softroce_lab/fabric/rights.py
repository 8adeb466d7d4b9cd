# SPDX-License-Identifier: GPL-2.0-or-later
"""A refusal for missing rights is an error of the environment, not a bug."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from softroce_lab.errors import EnvironmentLackError


@contextlib.contextmanager
def needing_root() -> Iterator[None]:
    """Turn EPERM and EACCES into an EnvironmentLackError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        raise EnvironmentLackError(
            "the rights of root", f"not permitted: {error}", hint="run it as root, or with sudo"
        ) from error
