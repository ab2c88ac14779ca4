// A histogram of calibration and live scores with the threshold as a handle: pointer, arrows, page keys.

import { el, svg } from "./dom.js";
import { number, t } from "./text.js";

const FOOT = 22; // room for the figures below the axis

/** Return low and high share of false rejects at a threshold, between the two steps around it. */
export function promiseAt(steps, threshold) {
  if (!steps?.length) return null;
  const after = steps.findIndex((step) => step.threshold >= threshold);
  if (after === 0) return steps[0];
  if (after < 0) return steps.at(-1);
  // The band holds at all steps at once. Between two the wider of both is still true.
  const [one, two] = [steps[after - 1], steps[after]];
  return steps[after].threshold === threshold ? two : { false_reject_low: Math.min(one.false_reject_low, two.false_reject_low), false_reject_high: Math.max(one.false_reject_high, two.false_reject_high) };
}

/** Return the round step with which at most `most` lie between 0 and an end, and the digits that it needs. */
export function roundStep(end, most) {
  const power = 10 ** Math.floor(Math.log10(end / most));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => end / each <= most);
  return { step, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

export class Histogram {
  #data = null;
  #end = 1;
  value = 0;

  /** `moved(value)` hears every move; `words(value)` says what the handle promises there. */
  constructor(place, { moved, words, movable }) {
    this.place = place;
    this.moved = moved;
    this.words = words;
    this.drawing = svg("svg", { role: "img", "aria-label": t("histogram.label") });
    this.handle = el("div", { class: "handle", role: "slider", tabindex: "0", "aria-label": t("product.threshold"), "aria-valuemin": 0, "aria-disabled": movable ? null : "true" });
    place.replaceChildren(this.drawing, this.handle);
    new ResizeObserver(() => this.draw()).observe(place);
    if (movable) this.#listen();
  }

  #listen() {
    this.handle.addEventListener("pointerdown", (event) => {
      this.handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.handle.focus();
    });
    this.handle.addEventListener("pointermove", (event) => {
      if (!this.handle.hasPointerCapture(event.pointerId)) return;
      const box = this.place.getBoundingClientRect();
      this.set(((event.clientX - box.left) / box.width) * this.#end);
    });
    const steps = { ArrowLeft: 0.99, ArrowDown: 0.99, ArrowRight: 1.01, ArrowUp: 1.01, PageDown: 0.9, PageUp: 1.1 };
    this.handle.addEventListener("keydown", (event) => {
      if (event.key in steps) this.set(this.value * steps[event.key]);
      else if (event.key === "Home") this.set(this.#data.threshold);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  show(data) {
    this.#data = data;
    const top = data.bins.at(-1);
    // One very bad part must not press all others to the left: the last bar holds all beyond.
    this.#end = (data.threshold ? Math.max(data.threshold * 1.3, Math.min(top, data.threshold * 4)) : top) || 1;
    this.handle.hidden = data.threshold === null;
    this.handle.setAttribute("aria-valuemax", this.#end);
    if (data.threshold !== null) this.set(data.threshold, true);
    else this.draw();
  }

  set(value, quiet = false) {
    this.value = Math.min(Math.max(value, this.#end / 1000), this.#end);
    this.draw();
    this.handle.setAttribute("aria-valuenow", this.value);
    this.handle.setAttribute("aria-valuetext", `${number(this.value, 3)}. ${this.words(this.value)}`);
    if (!quiet) this.moved(this.value);
  }

  draw() {
    if (!this.#data) return;
    const { clientWidth: width, clientHeight: height } = this.place;
    const { threshold } = this.#data;
    const shown = Math.max(1, this.#data.bins.findLastIndex((edge) => edge < this.#end) + 1);
    const bins = [...this.#data.bins.slice(0, shown), Math.min(this.#end, this.#data.bins[shown] ?? this.#end)];
    const folded = (counts) => [...counts.slice(0, shown - 1), counts.slice(shown - 1).reduce((one, two) => one + two, 0)];
    const [calibration, live] = [folded(this.#data.calibration), folded(this.#data.live)];
    const bottom = height - FOOT;
    const x = (score) => (score / this.#end) * width;
    // Each by its own total, so that the shapes can be compared; the root keeps few defects visible.
    const tall = (counts) => {
      const most = Math.max(...counts, 1);
      return counts.map((count) => (count ? Math.max(2, Math.sqrt(count / most) * (bottom - 8)) : 0));
    };
    const parts = [];
    tall(live).forEach((high, at) => high && parts.push(svg("rect", {
      class: bins[at] >= this.value ? "live over" : "live", x: x(bins[at]) + 0.5, width: Math.max(1, x(bins[at + 1]) - x(bins[at]) - 1), y: bottom - high, height: high,
    })));
    let outline = `M0 ${bottom}`;
    tall(calibration).forEach((high, at) => { outline += `L${x(bins[at])} ${bottom - high}L${x(bins[at + 1])} ${bottom - high}`; });
    parts.push(svg("path", { class: "calibration", d: `${outline}L${x(bins.at(-1))} ${bottom}` }), svg("line", { class: "axis", x1: 0, x2: width, y1: bottom, y2: bottom }));
    if (threshold !== null) parts.push(svg("line", { class: "saved", x1: x(threshold), x2: x(threshold), y1: 0, y2: bottom }));
    const { step, digits } = roundStep(this.#end, 6);
    for (let at = 0; at * step <= this.#end; at += 1) {
      const left = x(at * step);
      parts.push(svg("text", { x: left, y: height - 5, "text-anchor": at === 0 ? "start" : left > width - 16 ? "end" : "middle" }, number(at * step, digits)));
    }
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.replaceChildren(...parts);
    this.handle.style.left = `${x(this.value)}px`;
  }
}

/** Explain the three things that the histogram shows. */
export function histogramKey() {
  const item = (shape, text) => el("span", {}, svg("svg", { viewBox: "0 0 18 12", class: "histogram-sign", "aria-hidden": "true" }, shape), text);
  return [
    item(svg("rect", { x: 2, y: 1, width: 14, height: 11, fill: "var(--edge)" }), t("histogram.live")),
    item(svg("rect", { x: 2, y: 1, width: 14, height: 11, fill: "var(--bad)" }), t("histogram.over")),
    item(svg("path", { d: "M1 11V5h8V1h8v10", fill: "none", stroke: "var(--quiet)", "stroke-width": 1.5 }), t("histogram.calibration")),
    item(svg("path", { d: "M9 0V12", stroke: "var(--quiet)", "stroke-width": 2, "stroke-dasharray": "3 2" }), t("histogram.saved")),
  ];
}
