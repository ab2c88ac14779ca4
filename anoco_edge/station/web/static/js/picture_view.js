// A picture on a canvas with heat, regions and the patch that was compared. The heat's colors are fixed
// to the threshold, so two pictures can be compared by eye; nothing is stretched per picture.

import { el, say } from "./dom.js";
import { heat } from "./colormap.js";
import { ratio, t } from "./text.js";

/** Return a box as {left, top, right, bottom}, whether it came so or as four numbers. */
export function asBox(box) {
  if (!Array.isArray(box)) return box;
  const [left, top, right, bottom] = box;
  return { left, top, right, bottom };
}

/** Load a picture; null where there is none. */
export function loaded(src) {
  const picture = new Image();
  picture.src = src;
  return picture.decode().then(() => picture, () => null);
}

function heatImage(grid) {
  const rows = grid.length;
  const columns = grid[0].length;
  const made = el("canvas", { width: columns, height: rows });
  const context = made.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  grid.flat().forEach((value, at) => pixels.data.set(heat(value), 4 * at));
  context.putImageData(pixels, 0, 0);
  return made;
}

export class PictureView {
  #picture = null;
  #shown = {};
  #heat = null;
  #turn = 0;

  constructor(container, label = "") {
    this.canvas = el("canvas", { role: "img", "aria-label": label });
    this.missing = el("p", { class: "missing", hidden: true });
    container.classList.add("view");
    container.replaceChildren(this.canvas, this.missing);
    this.heatOn = true;
    new ResizeObserver(() => this.draw()).observe(container);
  }

  /**
   * Show a picture. `width` and `height` are those of the whole picture, in whose pixels regions and
   * boxes are; `grid` holds score over threshold and lies in `gridBox`, or in all of the picture; `box` is
   * the patch that was compared. Returns the picture, or null if there is none.
   */
  async show(src, { width, height, regions = [], grid = null, gridBox = null, box = null, label = "", missing = t("picture.missing") } = {}) {
    const turn = ++this.#turn;
    const picture = src ? await loaded(src) : null;
    if (turn !== this.#turn) return null; // a newer picture was asked for meanwhile
    this.#picture = picture;
    this.missing.hidden = picture !== null;
    say(this.missing, missing);
    this.canvas.setAttribute("aria-label", label || missing);
    this.explain({ width, height, regions, grid, gridBox, box });
    return picture;
  }

  /** Lay regions and heat over the picture that is shown. */
  explain({ width, height, regions = [], grid = null, gridBox = null, box = null }) {
    this.#shown = { width: width ?? this.#picture?.naturalWidth, height: height ?? this.#picture?.naturalHeight, regions: regions ?? [], gridBox: asBox(gridBox), box: asBox(box) };
    this.#heat = grid?.length && grid[0].length ? heatImage(grid) : null;
    this.draw();
  }

  /** Switch the heat on or off. */
  toggleHeat() {
    this.heatOn = !this.heatOn;
    this.draw();
    return this.heatOn;
  }

  draw() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    const density = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * density);
    this.canvas.height = Math.round(clientHeight * density);
    const picture = this.#picture;
    if (!picture) return;
    const context = this.canvas.getContext("2d");
    const scale = Math.min(this.canvas.width / picture.naturalWidth, this.canvas.height / picture.naturalHeight);
    const place = { width: picture.naturalWidth * scale, height: picture.naturalHeight * scale };
    place.left = (this.canvas.width - place.width) / 2;
    place.top = (this.canvas.height - place.height) / 2;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, place.left, place.top, place.width, place.height);
    const { width, height, gridBox } = this.#shown;
    const onScreen = (each) => [
      place.left + (each.left / width) * place.width, place.top + (each.top / height) * place.height,
      ((each.right - each.left) / width) * place.width, ((each.bottom - each.top) / height) * place.height,
    ];
    if (this.heatOn && this.#heat) this.#paint(context, place, onScreen(gridBox ?? { left: 0, top: 0, right: width, bottom: height }));
    this.#boxes(context, place, density, onScreen);
  }

  // The grid can reach beyond a picture that was padded; nothing is painted there.
  #paint(context, place, at) {
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.width, place.height);
    context.clip();
    context.drawImage(this.#heat, ...at);
    context.restore();
  }

  #boxes(context, place, density, onScreen) {
    const { regions, box } = this.#shown;
    for (const region of regions) {
      const at = onScreen(region);
      stroke(context, at, "#fff", 2 * density, []);
      if (region.peak !== undefined && region.peak !== null) label(context, place, at, ratio(region.peak), density);
    }
    // Dashed and of another color than regions: these two places were compared with each other.
    if (box) stroke(context, onScreen(box), "#7cff5c", 2 * density, [5 * density, 4 * density]);
  }
}

function stroke(context, at, color, width, dash) {
  context.setLineDash([]);
  context.lineWidth = width + 3;
  context.strokeStyle = "rgb(0 0 0 / 75%)";
  context.strokeRect(...at);
  context.setLineDash(dash);
  context.lineWidth = width;
  context.strokeStyle = color;
  context.strokeRect(...at);
}

function label(context, place, [left, top, , height], text, density) {
  context.font = `600 ${13 * density}px system-ui, sans-serif`;
  const wide = context.measureText(text).width + 8 * density;
  const tall = 19 * density;
  const x = Math.min(Math.max(left, place.left), place.left + place.width - wide);
  const y = top - tall - 2 * density >= place.top ? top - tall - 2 * density : Math.min(top + height + 2 * density, place.top + place.height - tall);
  context.fillStyle = "rgb(0 0 0 / 75%)";
  context.fillRect(x, y, wide, tall);
  context.fillStyle = "#fff";
  context.textBaseline = "middle";
  context.fillText(text, x + 4 * density, y + tall / 2);
}

function ramp(from) {
  const bar = el("canvas", { width: 128, height: 1 });
  const context = bar.getContext("2d");
  const pixels = context.createImageData(128, 1);
  for (let at = 0; at < 128; at += 1) {
    const [red, green, blue] = heat(from + at / 127);
    pixels.data.set([red, green, blue, 255], 4 * at);
  }
  context.putImageData(pixels, 0, 0);
  return bar;
}

/** Make the color scale with its three figures, the same for every picture. */
export function scaleBar() {
  return el("div", { class: "scale", role: "img", "aria-label": t("picture.scale") },
    el("span", {}, "0"), ramp(0), el("span", {}, t("picture.scale-middle")), ramp(1), el("span", {}, t("picture.scale-end")));
}
