# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab records: drops, captures, counters, and the run directory they go to."""
