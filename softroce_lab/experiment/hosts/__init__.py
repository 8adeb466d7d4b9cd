# SPDX-License-Identifier: GPL-2.0-or-later
"""One host of an experiment: its process on the real clock, and its end of a transport."""
