# SPDX-License-Identifier: GPL-2.0-or-later
"""The charts of a page, by Bokeh: series differ by dashes and markers, and not by colour alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import EnvironmentLackError
from softroce_lab.report.page import html

# Okabe and Ito's colours that are tale apart on white and on black; then they repeat.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x")
_HEIGHT = 380
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
            f'<div class="chart" {label}>{div}</div>{html.details("The data", self.data)}</figure>'
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
            hint="./lab report installs it; elsewhere: pip install 'softroce-lab[report]'",
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
          data: str, *, log_x: bool = False, steps: bool = False) -> Chart:  # fmt: skip
    """A line for each series, with a marker at some of its points."""
    made = _figure(name, *labels, x_axis_type="log" if log_x else "linear")
    made.hover.tooltips = [(labels[0], "@x"), (labels[1], "@y")]
    for at, (label, (x, y)) in enumerate(series.items()):
        x, y = thinned(np.asarray(x, np.float64), np.asarray(y, np.float64))
        style = {"color": COLOURS[at % len(COLOURS)], "legend_label": label}
        draw = made.step if steps else made.line
        mode = {"mode": "after"} if steps else {}
        draw(x, y, line_dash=DASHES[at % len(DASHES)], line_width=2.5, **style, **mode)
        some = np.unique(np.linspace(0, max(len(x) - 1, 0), min(len(x), 12)).astype(int))
        made.scatter(x[some], y[some], marker=MARKERS[at % len(MARKERS)], size=9, **style)
    _legend(made)
    return Chart(name, made, title, caption, data)


def points(name: str, title: str, caption: str, labels: tuple[str, str], series: Series,
           data: str, places: Sequence[str]) -> Chart:  # fmt: skip
    """Points in rows with names (`places`, from y = 0): all of them, whatever their number."""
    made = _figure(name, *labels)
    made.hover.tooltips = [(labels[0], "@x"), (labels[1], "@y")]
    for at, (label, (x, y)) in enumerate(series.items()):
        style = {"color": COLOURS[at % len(COLOURS)], "legend_label": f"{label} ({len(x):,})"}
        made.scatter(
            np.asarray(x, np.float64), np.asarray(y, np.float32), size=8, line_width=1.5,
            marker=_SHAPES[at % len(_SHAPES)], fill_alpha=0.2, **style,
        )  # fmt: skip
    step = max(1, len(places) // 16)
    made.yaxis.ticker = list(range(0, len(places), step))
    made.yaxis.major_label_overrides = {at: places[at] for at in range(0, len(places), step)}
    _legend(made)
    return Chart(name, made, title, caption, data)


_SHAPES = ("x", "triangle", "square", "circle", "diamond")


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
