# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect`: nodes, links, paths, counters and a picture of a lab."""
