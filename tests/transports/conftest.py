# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples of hypothesis have no deadline: the machine is shared."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared_machine")
