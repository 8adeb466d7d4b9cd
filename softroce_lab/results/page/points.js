// SPDX-License-Identifier: GPL-2.0-or-later
// Clouds of points over the axes of a chart. Bokeh takes some 15 us a marker, so that 100,000 stop
// the page for a second; here markers are set pixel by pixel in one image, and a million stay fluid.
"use strict";
const clouds = (() => {
  const LARGEST = 4, SMALLEST = 2, THICK = 1.6, NEAR = 8; // CSS pixels
  const within = {
    cross: (x, y, r, t) => Math.abs(Math.abs(x) - Math.abs(y)) < t * 0.7,
    square: (x, y, r, t) => Math.max(Math.abs(x), Math.abs(y)) > r - t,
    plus: (x, y, r, t) => Math.min(Math.abs(x), Math.abs(y)) < t * 0.5,
    diamond: (x, y, r, t) => Math.abs(Math.abs(x) + Math.abs(y) - r + t * 0.7) < t * 0.7,
    circle: (x, y, r, t) => Math.hypot(x, y) <= r && Math.hypot(x, y) > r - t,
    triangle: (x, y, r, t) => Math.abs(x) <= (y + r) / 2 && (Math.abs(x) > (y + r) / 2 - t || y > r - t),
  };

  // The pixels of a marker, as distances from its middle in an image of this width.
  function stamp(shape, r, ratio, width) {
    const found = [];
    for (let y = -r; y <= r; y++)
      for (let x = -r; x <= r; x++) if (within[shape](x, y, r, THICK * ratio)) found.push(y * width + x);
    return Int32Array.from(found);
  }
  const value = (text) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  };

  // The first point that is not earlier.
  function bound(times, time) {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function paint(cloud) {
    cloud.pending = false;
    const view = Bokeh.index.find_one_by_id(cloud.figure.id), box = view?.frame?.bbox;
    if (!box || !(box.width > 0)) return;
    const ratio = devicePixelRatio, width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    const { canvas, chart } = cloud, inside = view.el.getBoundingClientRect(), around = chart.getBoundingClientRect();
    canvas.style.left = `${inside.left - around.left + box.left}px`;
    canvas.style.top = `${inside.top - around.top + box.top}px`;
    const { start: low, end: high } = cloud.figure.y_range, tallest = box.height / (high - low) / 4;
    const radius = Math.round(Math.min(LARGEST, Math.max(SMALLEST, tallest)) * ratio);
    const margin = 2 * radius; // of the image: markers are cut there, not tested
    if (canvas.width !== width || canvas.height !== height || cloud.radius !== radius) {
      Object.assign(canvas, { width, height });
      Object.assign(canvas.style, { width: `${box.width}px`, height: `${box.height}px` });
      cloud.radius = radius;
      cloud.image = new ImageData(width + 2 * margin, height + 2 * margin);
      cloud.pixels = new Uint32Array(cloud.image.data.buffer);
      cloud.seen = new Uint8Array(cloud.pixels.length);
    }
    cloud.pixels.fill(0);
    for (const series of cloud.series.toReversed()) if (series.shown) set(cloud, series, { width, height, ratio, radius });
    canvas.getContext("2d").putImageData(cloud.image, -margin, -margin);
  }

  function set({ figure, pixels, seen, image }, { times, rows, shift, shape, colour }, { width, height, ratio, radius }) {
    const { start, end } = figure.x_range, { start: low, end: high } = figure.y_range;
    const marks = stamp(shape, radius, ratio, image.width), ink = value(colour), row = image.width, margin = 2 * radius;
    const scale = width / (end - start), tall = height / (high - low), edge = radius / scale;
    const right = width + margin + radius, below = height + margin + radius;
    const last = bound(times, end + edge);
    seen.fill(0);
    for (let at = bound(times, start - edge); at < last; at++) {
      const x = margin + Math.round((times[at] - start) * scale);
      const y = margin + Math.round(height - (rows[at] + shift - low) * tall);
      if (x < radius || x >= right || y < radius || y >= below) continue;
      const middle = y * row + x;
      if (seen[middle]) continue; // the same marker at the same place
      seen[middle] = 1;
      for (let mark = 0; mark < marks.length; mark++) pixels[middle + marks[mark]] = ink;
    }
  }

  // What is under the pointer, in words.
  function describe(cloud, event) {
    const { figure, canvas } = cloud, box = canvas.getBoundingClientRect();
    const { start, end } = figure.x_range, { start: low, end: high } = figure.y_range;
    const scale = box.width / (end - start), tall = box.height / (high - low);
    let best = NEAR, words = "";
    for (const { times, rows, shift, label, shown } of cloud.series) {
      const at = start + (event.clientX - box.left) / scale, last = shown ? bound(times, at + NEAR / scale) : 0;
      for (let each = bound(times, at - NEAR / scale); each < last; each++) {
        const x = (times[each] - start) * scale, y = box.height - (rows[each] + shift - low) * tall;
        const far = Math.hypot(x + box.left - event.clientX, y + box.top - event.clientY);
        if (far < best) [best, words] = [far, `${label}: ${times[each].toLocaleString("en")} us, ${cloud.places[rows[each]]}`];
      }
    }
    cloud.pointed.textContent = words;
  }

  async function begin(figures, bytes) {
    for (const holder of document.querySelectorAll("script[data-cloud]")) {
      const figure = figures()[holder.dataset.cloud], about = JSON.parse(holder.dataset.about);
      const chart = holder.closest("figure").querySelector(".chart"), canvas = document.createElement("canvas");
      const values = new Float64Array((await bytes(holder.textContent)).buffer);
      const cloud = { figure, chart, canvas, places: about.places, pointed: holder.closest("figure").querySelector("output") };
      let from = 0;
      cloud.series = about.series.map(({ count, ...rest }, at) => {
        const times = values.slice(from, from + count), rows = Uint16Array.from(values.subarray(from + count, from + 2 * count));
        for (let each = 1; each < count; each++) times[each] += times[each - 1];
        for (let each = 0; each < count; each++) times[each] /= 1000;
        from += 2 * count;
        const box = holder.closest("figure").querySelectorAll("input")[at], series = { ...rest, times, rows, shown: true };
        box.addEventListener("change", () => { series.shown = box.checked; later(); });
        return series;
      });
      chart.append(canvas);
      const later = () => { if (!cloud.pending) { cloud.pending = true; requestAnimationFrame(() => paint(cloud)); } };
      for (const range of [figure.x_range, figure.y_range]) range.change.connect(later);
      for (const size of ["inner_width", "inner_height"]) figure.properties[size].change.connect(later);
      new ResizeObserver(later).observe(chart);
      chart.addEventListener("mousemove", (event) => describe(cloud, event));
      paint(cloud);
    }
  }
  return { begin };
})();
