// A sign for each verdict; its shape says the same as its color: circle, octagon, diamond.

import { el, svg } from "./dom.js";
import { ratio, reason, t } from "./text.js";

const SHAPES = {
  good: ["M12 1a11 11 0 1 0 0 22a11 11 0 0 0 0-22z", "M7 12.5l3.5 3.5L17 8.5"],
  anomalous: ["M7.5 1h9L23 7.5v9L16.5 23h-9L1 16.5v-9z", "M8 8l8 8M16 8l-8 8"],
  "no-verdict": ["M12 .5L23.5 12L12 23.5L.5 12z", "M12 7v6.5M12 17v.1"],
  on: ["M12 4a8 8 0 1 0 0 16a8 8 0 0 0 0-16z", ""],
  none: ["M12 4a8 8 0 1 0 0 16a8 8 0 0 0 0-16z", "M8 12h8"],
};

/** Make the sign of a verdict. */
export function sign(verdict) {
  const [shape, mark] = SHAPES[verdict] ?? SHAPES.none;
  return svg("svg", { class: "sign", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: shape }), mark && svg("path", { class: "mark", d: mark }));
}

/** Return the word for a verdict. */
export const verdictWord = (verdict) => t(`verdict.${verdict ?? "none"}`);

/** Make sign and word of a verdict. */
export const verdictNode = (verdict) => el("span", { class: `verdict ${verdict ?? ""}` }, sign(verdict), verdictWord(verdict));

/** Describe a part in one line for those who do not see its picture. */
export function describe(part) {
  const words = [verdictWord(part.verdict), part.part_code || t("part.number", { seq: part.seq })];
  if (part.ratio !== null && part.ratio !== undefined && part.verdict !== "no-verdict") words.push(ratio(part.ratio));
  if (reason(part.reason)) words.push(reason(part.reason));
  return words.join(", ");
}

/** Make the gauge of a score: filled up to it, the line in the middle is the threshold. */
export function gauge(value, verdict) {
  const filled = el("span", { class: "filled" });
  filled.style.width = `${Math.max(0, Math.min(1, (value ?? 0) / 2)) * 100}%`;
  return el("span", { class: `gauge ${verdict ?? ""}`, role: "img", "aria-label": t("part.of-threshold", { ratio: ratio(value) }) }, filled, el("span", { class: "limit" }));
}
