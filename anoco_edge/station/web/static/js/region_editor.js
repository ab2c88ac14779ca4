// Region of interest and ignored areas, drawn on the picture as polygons in fractions of its sides.
// Pointer: drag a corner, tap an edge's middle for a new one. Keys: Tab to a corner, arrows, +, Delete.

import { el, svg } from "./dom.js";
import { number, t } from "./text.js";

const CORNERS = 64;
const inside = (value) => Math.min(1, Math.max(0, Math.round(value * 1000) / 1000));

export class RegionEditor {
  shapes = []; // {kind: "region" | "mask", points: [[x, y], ...]}
  chosen = -1;

  constructor(place, { changed, editable }) {
    this.place = place;
    this.changed = changed;
    this.editable = editable;
    this.picture = el("img", { alt: t("editor.picture") });
    this.kept = el("img", { class: "kept", alt: t("editor.kept"), hidden: true });
    this.drawing = svg("svg", { "aria-label": t("editor.label"), role: "group" });
    place.replaceChildren(this.picture, this.kept, this.drawing);
    new ResizeObserver(() => this.draw()).observe(place);
    this.picture.addEventListener("load", () => this.draw());
    if (editable) this.#listen();
  }

  /** Show a picture of a size, with the saved region (its corners in pixels) and mask (a picture's address). */
  show(src, { width, height }, region, mask) {
    if (src) this.picture.src = src;
    this.picture.hidden = !src;
    this.size = { width, height };
    // The place is there before the picture is, so that nothing moves under a finger when it comes.
    this.place.style.aspectRatio = `${width} / ${height}`;
    this.kept.hidden = !mask;
    if (mask) this.kept.src = mask;
    this.shapes = [];
    if (region.length) this.shapes.push({ kind: "region", points: region.map(([x, y]) => [inside(x / width), inside(y / height)]) });
    this.chosen = -1;
    this.draw();
  }

  get region() {
    const found = this.shapes.find((shape) => shape.kind === "region");
    return found ? found.points : [];
  }

  /** The corners of the region in pixels; none is the whole picture. */
  get corners() {
    return this.region.map(([x, y]) => [x * this.size.width, y * this.size.height]);
  }

  get #ignored() {
    return this.shapes.filter((shape) => shape.kind === "mask");
  }

  /** Whether anything is ignored. */
  get ignores() {
    return !this.kept.hidden || this.#ignored.length > 0;
  }

  /** Return the mask as a PNG in which all that is ignored is white: the saved one and what was drawn. */
  async mask() {
    const { width, height } = this.size;
    const canvas = el("canvas", { width, height });
    const context = canvas.getContext("2d");
    context.fillRect(0, 0, width, height);
    if (!this.kept.hidden) {
      await this.kept.decode();
      context.drawImage(this.kept, 0, 0, width, height);
    }
    context.fillStyle = "#fff";
    for (const { points } of this.#ignored) {
      context.beginPath();
      for (const [x, y] of points) context.lineTo(x * width, y * height);
      context.fill();
    }
    return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  }

  /** Begin a new shape as a rectangle in the middle; there is one region at most. */
  add(kind) {
    if (kind === "region") this.shapes = this.shapes.filter((shape) => shape.kind !== "region");
    const [from, to] = kind === "region" ? [0.1, 0.9] : [0.4, 0.6];
    this.shapes.push({ kind, points: [[from, from], [to, from], [to, to], [from, to]] });
    this.chosen = this.shapes.length - 1;
    this.#edited(0);
  }

  /** Remove the chosen shape. */
  remove() {
    if (this.chosen < 0) return;
    this.shapes.splice(this.chosen, 1);
    this.chosen = -1;
    this.#edited();
  }

  /** Judge the whole picture again. */
  clear() {
    this.shapes = [];
    this.kept.hidden = true;
    this.chosen = -1;
    this.#edited();
  }

  #edited(focus = -1) {
    this.draw();
    this.changed();
    if (focus >= 0) this.drawing.querySelector(`[data-shape="${this.chosen}"][data-corner="${focus}"]`)?.focus();
  }

  #at(event) {
    const box = this.drawing.getBoundingClientRect();
    return [inside((event.clientX - box.left) / box.width), inside((event.clientY - box.top) / box.height)];
  }

  #listen() {
    let drag = null;
    this.drawing.addEventListener("pointerdown", (event) => {
      const { shape, corner, middle } = event.target.closest("[data-shape]")?.dataset ?? {};
      if (shape === undefined) return;
      event.preventDefault();
      this.chosen = Number(shape);
      if (middle !== undefined) this.#split(Number(middle));
      const at = corner ?? (middle === undefined ? null : Number(middle) + 1);
      this.drawing.setPointerCapture(event.pointerId);
      drag = at === null ? { whole: this.#at(event) } : { corner: Number(at) };
      this.#edited(at === null ? -1 : Number(at));
    });
    this.drawing.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const { points } = this.shapes[this.chosen];
      const [x, y] = this.#at(event);
      if (drag.whole) {
        this.#shift(points, x - drag.whole[0], y - drag.whole[1]);
        drag.whole = [x, y];
      } else points[drag.corner] = [x, y];
      this.draw();
    });
    for (const name of ["pointerup", "pointercancel"]) this.drawing.addEventListener(name, () => {
      if (drag) this.#edited(drag.corner ?? -1);
      drag = null;
    });
    this.drawing.addEventListener("focusin", (event) => this.#focused(event));
    this.drawing.addEventListener("keydown", (event) => this.#key(event));
  }

  #focused(event) {
    const shape = Number(event.target.dataset?.shape ?? -1);
    if (shape < 0 || shape === this.chosen) return;
    this.chosen = shape;
    this.changed(false);
  }

  #shift(points, x, y) {
    const [lowX, lowY] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
    const [highX, highY] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
    const dx = Math.min(Math.max(x, -lowX), 1 - highX);
    const dy = Math.min(Math.max(y, -lowY), 1 - highY);
    for (const point of points) [point[0], point[1]] = [inside(point[0] + dx), inside(point[1] + dy)];
  }

  #split(after) {
    const { points } = this.shapes[this.chosen];
    if (points.length >= CORNERS) return;
    const [one, two] = [points[after], points[(after + 1) % points.length]];
    points.splice(after + 1, 0, [inside((one[0] + two[0]) / 2), inside((one[1] + two[1]) / 2)]);
  }

  #key(event) {
    const { shape, corner } = event.target.dataset ?? {};
    if (corner === undefined) return;
    this.chosen = Number(shape);
    const { points } = this.shapes[this.chosen];
    const at = Number(corner);
    const step = event.shiftKey ? 0.05 : 0.005;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    let focus = at;
    if (moves[event.key]) points[at] = points[at].map((value, axis) => inside(value + moves[event.key][axis]));
    else if (event.key === "+" || event.key === "Insert") {
      this.#split(at);
      focus = at + 1;
    } else if (event.key === "Delete" || event.key === "Backspace") {
      if (points.length > 3) points.splice(at, 1);
      else this.shapes.splice(this.chosen, 1);
      focus = Math.max(0, at - 1);
    } else return;
    event.preventDefault();
    event.stopPropagation();
    if (!this.shapes[this.chosen]) this.chosen = -1;
    this.#edited();
    this.drawing.querySelector(`[data-shape="${shape}"][data-corner="${focus}"]`)?.focus();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.drawing;
    if (!width || !height) return;
    // Keyboard focus outlives the new drawing.
    const { shape, corner } = this.drawing.contains(document.activeElement) ? document.activeElement.dataset : {};
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const path = (points) => `M${points.map(([x, y]) => `${x * width} ${y * height}`).join("L")}Z`;
    const hatch = svg("defs", {}, svg("pattern", { id: "hatch", width: 10, height: 10, patternUnits: "userSpaceOnUse" }, svg("path", { class: "hatch", d: "M0 10L10 0" })));
    const region = this.region;
    const parts = [hatch];
    if (region.length) parts.push(svg("path", { class: "outside", "fill-rule": "evenodd", d: `M0 0H${width}V${height}H0Z${path(region)}` }));
    this.shapes.forEach((each, number_) => parts.push(...this.#shape(each, number_, path(each.points), width, height)));
    this.drawing.replaceChildren(...parts);
    if (corner !== undefined) this.drawing.querySelector(`[data-shape="${shape}"][data-corner="${corner}"]`)?.focus({ preventScroll: true });
  }

  #shape({ kind, points }, place, path, width, height) {
    const made = [
      ...(kind === "mask" ? [svg("path", { class: "ignored", d: path })] : []),
      svg("path", { class: "halo", d: path }), svg("path", { class: "outline", d: path }),
    ];
    if (!this.editable) return made;
    made.push(svg("path", { class: "hit", d: path, "data-shape": place }));
    points.forEach(([x, y], at) => {
      const next = points[(at + 1) % points.length];
      const [midX, midY] = [((x + next[0]) / 2) * width, ((y + next[1]) / 2) * height];
      if (place === this.chosen) made.push(svg("g", { "data-shape": place, "data-middle": at }, svg("circle", { class: "hit", cx: midX, cy: midY, r: 18 }), svg("circle", { class: "dot", cx: midX, cy: midY, r: 4 })));
    });
    points.forEach(([x, y], at) => made.push(svg("g", {
      tabindex: 0, role: "button", "data-shape": place, "data-corner": at,
      "aria-label": t("editor.corner", { kind: t(`editor.${kind}`), n: at + 1, x: number(x * 100, 1), y: number(y * 100, 1) }),
    }, svg("circle", { class: "hit", cx: x * width, cy: y * height, r: 24 }), svg("circle", { class: "dot", cx: x * width, cy: y * height, r: 8 }))));
    return made;
  }
}
