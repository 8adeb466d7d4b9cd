# SPDX-License-Identifier: GPL-2.0-or-later
"""Teaching labs that grade themselves: what a student gets, and how it is judged."""
