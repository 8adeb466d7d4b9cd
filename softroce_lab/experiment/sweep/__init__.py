# SPDX-License-Identifier: GPL-2.0-or-later
"""Many variants of one experiment, carried out in parallel, into one table."""
