# SPDX-License-Identifier: GPL-2.0-or-later
"""Published formulas of transports, to compare measurements with."""
