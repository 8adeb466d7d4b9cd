# SPDX-License-Identifier: GPL-2.0-or-later
"""What hosts do: pure generators of work, the same on both clocks."""
