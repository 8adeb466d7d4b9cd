# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples of hypothesis have no deadline: the machine is shared."""

from hypothesis import settings

settings.register_profile("shared_machine", deadline=None)
settings.load_profile("shared_machine")
