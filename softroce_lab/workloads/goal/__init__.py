# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL text files, read and written, in the grammar of LogGOPSim's txt2bin."""
