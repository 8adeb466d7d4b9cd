# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls that must be refused, each with its errno."""

import pytest

from softroce_lab.verbs import PyverbsRDMAError


def refused(error_code, call, *arguments, **options):
    """`call` must raise with this errno; the text of its error."""
    with pytest.raises((PyverbsRDMAError, OSError)) as caught:
        call(*arguments, **options)
    error = caught.value
    assert (error.errno if isinstance(error, OSError) else error.error_code) == error_code
    return str(error)
