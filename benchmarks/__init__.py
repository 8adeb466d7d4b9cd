# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast the lab is, for developers: `.venv/bin/python -m benchmarks`. Not installed.

A benchmark is a module of this package with a function `measure(short)`. It measures once and
returns its figures by name. `short` asks for the smallest sizes that show that it works.

The end of a figure's name is its unit. Figures that end in `_per_s` or `_per_cpu_s`, and ratios
(`random_over_none`), are better if they are larger; all others are better if they are smaller.
"""
