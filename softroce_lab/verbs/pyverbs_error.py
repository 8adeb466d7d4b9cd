# SPDX-License-Identifier: GPL-2.0-or-later
"""pyverbs' name for `softroce_lab.verbs.errors`."""

from softroce_lab.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError

__all__ = ["PyverbsError", "PyverbsRDMAError", "PyverbsUserError"]
