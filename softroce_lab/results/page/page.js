// SPDX-License-Identifier: GPL-2.0-or-later
// The page's own behaviour: buttons of charts, colours of the scheme, ladders of messages.
"use strict";
(() => {
  const figures = () => Object.fromEntries(Bokeh.documents.flatMap((d) => d.roots()).map((f) => [f.name, f]));

  // ---- charts follow the page's colours
  function paint() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
    for (const figure of Object.values(figures())) {
      for (const axis of [...figure.below, ...figure.left]) {
        axis.axis_label_text_color = axis.major_label_text_color = ink;
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = ink;
      }
      for (const part of figure.center) {
        if (part.type === "Grid") part.grid_line_color = line;
        if (part.type === "Legend") part.label_text_color = ink;
      }
      for (const part of [...figure.above, ...figure.right])
        if (part.type === "Legend") part.label_text_color = ink;
    }
  }

  // ---- buttons: the same by mouse, finger and keyboard
  function move(range, shift, zoom) {
    const width = range.end - range.start, middle = range.start + width * (0.5 + shift);
    range.setv({ start: middle - (width * zoom) / 2, end: middle + (width * zoom) / 2 });
  }
  const moves = { in: [0, 0.5], out: [0, 2], left: [-0.25, 1], right: [0.25, 1] };
  function pressed(event) {
    const button = event.target.closest("button[data-chart]");
    if (!button) return;
    const figure = figures()[button.dataset.chart], action = button.dataset.move;
    const view = Bokeh.index.find_one_by_id ? Bokeh.index.find_one_by_id(figure.id) : null;
    if (action === "reset") { if (view && view.reset) view.reset(); else figure.reset.emit(); return; }
    move(figure.x_range, ...moves[action]);
  }

  // ---- ladders
  async function bytes(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  async function unpacked(id) {
    const text = document.getElementById(id)?.textContent;
    return text ? JSON.parse(new TextDecoder().decode(await bytes(text))) : null;
  }
  const us = (ns) => (ns / 1000).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const ROW = 22, LEFT = 120, RIGHT = 420, MAP = 440, MAP_WIDTH = 240, NOTE = 695, WIDTH = 1120;

  // The receiver's bitmap at one time: runs of equal cells as boxes, lost ones with a cross.
  function bitmap(picture, cells, y) {
    const wide = MAP_WIDTH / cells.length;
    for (const run of cells.matchAll(/(.)\1*/g)) {
      const x = MAP + run.index * wide, width = run[0].length * wide;
      picture.append(svg("rect", { x, y: y - 11, width, height: 13, class: { "#": "there", x: "gone" }[run[1]] ?? "open" }));
      if (run[1] === "x")
        for (let at = 0; at < run[0].length; at++) {
          const middle = x + (at + 0.5) * wide, half = Math.min(4, Math.max(1.5, wide / 2));
          picture.append(svg("path", { d: `M${middle - half} ${y - 8.5} l${2 * half} 8 m0 -8 l${-2 * half} 8` }));
        }
    }
  }
  function draw(data, message) {
    const [name, source, destination, words, rungs] = message;
    const height = 60 + ROW * rungs.length, holder = document.getElementById("ladder");
    const picture = svg("svg", { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
      "aria-label": `Ladder of message ${name}; the table below it has the same in words` });
    picture.append(svg("text", { x: LEFT, y: 20, "text-anchor": "middle" }, source),
      svg("text", { x: RIGHT, y: 20, "text-anchor": "middle" }, destination),
      svg("text", { x: MAP + 20, y: 20 }, "packets that have arrived"),
      svg("line", { x1: LEFT, y1: 30, x2: LEFT, y2: height }), svg("line", { x1: RIGHT, y1: 30, x2: RIGHT, y2: height }));
    rungs.forEach(([time, shape, label, note, cells], at) => {
      const y = 50 + ROW * at, from = shape === "<" ? RIGHT : LEFT;
      picture.append(svg("text", { x: LEFT - 12, y, "text-anchor": "end" }, us(time)));
      if (shape === ">" || shape === "<") {
        const to = shape === "<" ? LEFT : RIGHT, way = Math.sign(to - from);
        picture.append(svg("line", { x1: from, y1: y - 4, x2: to, y2: y - 4 }),
          svg("path", { d: `M${to - 8 * way} ${y - 9} L${to} ${y - 4} L${to - 8 * way} ${y + 1}` }));
      } else if (shape === "X") {
        const middle = (LEFT + RIGHT) / 2 + 40;
        picture.append(svg("line", { x1: LEFT, y1: y - 4, x2: middle, y2: y - 4, class: "lost" }),
          svg("path", { d: `M${middle - 5} ${y - 9} l10 10 m0 -10 l-10 10` }));
      }
      if (label) {
        const x = (LEFT + RIGHT) / 2;
        picture.append(svg("text", { x, y: y - 7, "text-anchor": "middle" }, label));
      }
      bitmap(picture, cells, y);
      picture.append(svg("text", { x: NOTE, y }, note));
    });
    const list = document.getElementById("ladder-words");
    list.textContent = words.join("\n");
    holder.replaceChildren(picture);
    const body = document.querySelector("#ladder-table tbody");
    body.replaceChildren(...rungs.map(([time, shape, label, note, , arrived, missing]) => {
      const row = document.createElement("tr");
      const lost = shape === "X" ? "lost" : "";
      const way = { ">": "to " + destination, "<": "to " + source, X: lost }[shape] ?? "";
      [us(time), way, label, note, arrived, missing].forEach((cell, at) => {
        const made = document.createElement(at ? "td" : "th");
        if (!at) made.scope = "row";
        made.textContent = cell;
        row.append(made);
      });
      return row;
    }));
  }
  async function ladders() {
    const data = await unpacked("ladder-data");
    if (!data) return;
    const runs = document.getElementById("ladder-run"), names = document.getElementById("ladder-message");
    const list = () => data[runs.value] ?? [];
    function offer() {
      names.replaceChildren(...list().map(([name, , , words], at) => new Option(`${name} (${words[0]})`, at)));
      if (list().length) draw(data, list()[0]);
    }
    runs.replaceChildren(...Object.keys(data).map((name) => new Option(name, name)));
    runs.addEventListener("change", offer);
    names.addEventListener("change", () => draw(data, list()[names.value]));
    offer();
  }

  async function begin() {
    document.addEventListener("click", pressed);
    paint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    matchMedia("print").addEventListener("change", paint);
    addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
    await clouds.begin(figures, bytes);
    await ladders();
    document.documentElement.dataset.ready = "yes";
  }
  const wanted = Number(document.documentElement.dataset.charts);
  const wait = () => (Object.keys(figures()).length >= wanted ? begin() : requestAnimationFrame(wait));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", wait);
  else wait();
})();
