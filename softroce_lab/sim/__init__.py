# SPDX-License-Identifier: GPL-2.0-or-later
"""The virtual clock: a plan's fabric as a deterministic simulation. No namespace, no rights."""
