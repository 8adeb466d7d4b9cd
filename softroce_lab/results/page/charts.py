# SPDX-License-Identifier: GPL-2.0-or-later
"""The charts of a page, by Bokeh: series differ by dashes and markers, and not by colour alone."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import EnvironmentLackError
from softroce_lab.results.page import html

# Okabe and Ito's colours that differ on white and on black; then they repeat.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x")
_HEIGHT = 380
_TALLEST = 800  # of a chart with a row a host
_MOST_NAMES = 12  # along the x axis
_LANE = 0.16  # between the series of a row, where 1 is between rows
MOST_POINTS = 2_000
"""Of a line; of more the extremes of each slice stay."""

Series = Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]  # x and y by name


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """A figure, with what stands for it where it cannot be seen."""

    name: str
    figure: Any
    title: str
    caption: str
    data: str  # HTML: the same as a table
    extra: str = ""  # HTML below the chart

    def placed(self, div: str) -> str:
        """The chart in its place on the page."""
        buttons = "".join(
            f'<button type="button" data-chart="{self.name}" data-move="{move}">{word}</button>'
            for move, word in _BUTTONS
        )
        group = f'role="group" aria-label="View of: {html.text(self.title)}"'
        label = f'role="img" aria-label="Chart: {html.text(self.title)}. {html.text(self.caption)}"'
        return (
            f"<figure><figcaption><strong>{html.text(self.title)}.</strong> "
            f"{html.text(self.caption)}</figcaption>"
            f'<div class="buttons" {group}>{buttons}</div>'
            f'<div class="chart" {label}>{div}</div>{self.extra}'
            f"{html.details('The data', self.data)}</figure>"
        )


_BUTTONS = (("in", "zoom in"), ("out", "zoom out"), ("left", "left"), ("right", "right"),
            ("reset", "reset"))  # fmt: skip


def library() -> Any:
    """Bokeh. EnvironmentLackError where it is not installed."""
    try:
        import bokeh
    except ImportError as error:
        raise EnvironmentLackError(
            "Bokeh, which draws the charts",
            hint="./lab results report installs it; elsewhere: pip install 'softroce-lab[report]'",
        ) from error
    return bokeh


def scripts(charts: Sequence[Chart]) -> tuple[str, list[str]]:
    """Script elements for the head and the end of a page, and the place of each chart."""
    from bokeh.embed import components
    from bokeh.resources import Resources

    resources = Resources(mode="inline", components=["bokeh"])
    if not charts:
        return resources.render_js(), []
    script, divs = components([chart.figure for chart in charts])
    return resources.render_js() + script, list(divs)


def _figure(name: str, x_label: str, y_label: str, **options: Any) -> Any:
    from bokeh.plotting import figure

    made = figure(
        name=name,
        height=_HEIGHT,
        sizing_mode="stretch_width",
        x_axis_label=x_label,
        y_axis_label=y_label,
        tools="xpan,pan,xwheel_zoom,reset,hover",
        active_scroll=None,
        toolbar_location=None,
        lod_threshold=5_000,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    for axis in (*made.xaxis, *made.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "13px"
    return made


def _legend(made: Any) -> None:
    if made.legend:
        legend = made.legend[0]
        made.add_layout(legend, "above")
        legend.orientation, legend.ncols = "horizontal", 3
        legend.background_fill_color = legend.border_line_color = None
        legend.click_policy = "hide"
        legend.label_text_font_size = "13px"


def lines(name: str, title: str, caption: str, labels: tuple[str, str], series: Series,
          data: str, *, log_x: bool = False, log_y: bool = False, steps: bool = False,
          names: Sequence[str] = ()) -> Chart:  # fmt: skip
    """A line for each series, with a marker at some of its points.

    `names`: of the places 0, 1, ... of the x axis; without them it has numbers.
    """
    kinds = ("log" if log else "linear" for log in (log_x, log_y))
    made = _figure(name, *labels, **dict(zip(("x_axis_type", "y_axis_type"), kinds, strict=True)))
    made.hover.tooltips = [(labels[0], "@name" if names else "@x"), (labels[1], "@y")]
    if names:
        every = -(-len(names) // _MOST_NAMES)
        made.xaxis.ticker = list(range(0, len(names), every))
        made.xaxis.major_label_overrides = {at: names[at] for at in range(0, len(names), every)}
    for at, (label, (x, y)) in enumerate(series.items()):
        x, y = thinned(np.asarray(x, np.float64), np.asarray(y, np.float64))
        style = {"color": COLOURS[at % len(COLOURS)], "legend_label": label}
        draw = made.step if steps else made.line
        mode = {"mode": "after"} if steps else {}
        source = _source(x, y, names)
        draw("x", "y", source=source, line_dash=DASHES[at % len(DASHES)], line_width=2.5,
             **style, **mode)  # fmt: skip
        some = np.unique(np.linspace(0, max(len(x) - 1, 0), min(len(x), 12)).astype(int))
        made.scatter("x", "y", source=_source(x[some], y[some], names), size=9,
                     marker=MARKERS[at % len(MARKERS)], **style)  # fmt: skip
    _legend(made)
    return Chart(name, made, title, caption, data)


def _source(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], names: Sequence[str]
) -> dict[str, Any]:
    """Columns of a series."""
    return {"x": x, "y": y} | ({"name": [names[int(at)] for at in x]} if names else {})


def points(name: str, title: str, caption: str, labels: tuple[str, str], series: Series,
           data: str, places: Sequence[str], shapes: Mapping[str, str],
           ends_ns: tuple[int, int]) -> Chart:  # fmt: skip
    """Points in rows with names (`places`, from row 0): all of them, whatever their number.

    `ends_ns`: of the time axis, which charts that are to be compared share.

    A series has times in nanoseconds, ascending, and rows; its shape, one of `SHAPES`, has a colour
    and a lane in each row. Bokeh draws the axes, and the page's own script the points (points.js).
    """
    from bokeh.models import Range1d

    start, end = (each / 1000 for each in ends_ns)
    margin = 0.02 * (end - start) or 1.0
    made = _figure(
        name,
        *labels,
        x_range=Range1d(start=start - margin, end=end + margin),
        y_range=Range1d(start=-0.6, end=len(places) - 0.4),
    )
    made.scatter([], [])  # Bokeh warns of a chart without any
    made.height = min(_TALLEST, max(_HEIGHT, 9 * len(places)))
    made.tools = [tool for tool in made.tools if tool is not made.hover]
    step = max(1, len(places) * 20 // made.height)
    made.yaxis.ticker = list(range(0, len(places), step))
    made.yaxis.major_label_overrides = {at: places[at] for at in range(0, len(places), step)}
    about, values, legend = [], [], ""
    for label, (x, rows) in series.items():
        shape = shapes[label]
        at = list(SHAPES).index(shape)
        colour, shift = COLOURS[at], ((len(SHAPES) - 1) / 2 - at) * _LANE
        about.append(
            {"label": label, "shape": shape, "colour": colour, "shift": shift, "count": len(x)}
        )
        values += [np.diff(np.asarray(x, np.float64), prepend=0), np.asarray(rows, np.float64)]
        legend += (
            f'<label><input type="checkbox" checked>{_mark(shape, colour)} '
            f"{html.text(label)} ({len(x):,})</label>"
        )
    packed = base64.b64encode(zlib.compress(np.concatenate(values).tobytes(), 6)).decode()
    described = html.text(json.dumps({"places": list(places), "series": about}))
    extra = (
        f'<fieldset class="legend"><legend>Shown</legend>{legend}</fieldset>'
        f'<output aria-label="The point under the pointer">&nbsp;</output>'
        f'<script type="text/plain" data-cloud="{name}" data-about="{described}">{packed}</script>'
    )
    return Chart(name, made, title, caption, data, extra)


SHAPES = {  # points.js draws each
    "cross": "M2 2 L12 12 M12 2 L2 12",
    "triangle": "M7 2 L12 12 L2 12 Z",
    "square": "M2 2 H12 V12 H2 Z",
    "circle": "M7 2 A5 5 0 1 1 7 12 A5 5 0 1 1 7 2 Z",
    "diamond": "M7 1 L13 7 L7 13 L1 7 Z",
    "plus": "M7 2 L7 12 M2 7 L12 7",
}


def _mark(shape: str, colour: str) -> str:
    """A marker for the legend."""
    path = f'<path d="{SHAPES[shape]}" fill="none" stroke="{colour}" stroke-width="2"/>'
    return f'<svg width="14" height="14" aria-hidden="true">{path}</svg>'


def thinned(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], most: int = MOST_POINTS
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A line of at most about `most` points: of each slice the first, least, largest and last."""
    if len(x) <= most:
        return x, y
    slices = np.array_split(np.arange(len(x)), most // 4)
    kept = sorted({
        int(at)
        for part in slices
        for at in (part[0], part[np.argmin(y[part])], part[np.argmax(y[part])], part[-1])
    })  # fmt: skip
    return x[kept], y[kept]
