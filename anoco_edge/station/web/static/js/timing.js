// The timing diagram of the last parts: from the trigger until the pictures, until the verdict, the deadline.

import { el, svg } from "./dom.js";
import { describe } from "./signs.js";
import { number, t } from "./text.js";

const ROW = 17;
const HEAD = 24;
const LEFT = 48;

function axis(end, bottom, x) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((each) => end / each <= 7) ?? end / 8;
  const made = [];
  for (let at = 0; at <= end; at += step) {
    made.push(svg("line", { class: "grid-line", x1: x(at), x2: x(at), y1: HEAD - 6, y2: bottom }), svg("text", { x: x(at), y: 12, "text-anchor": "middle" }, number(at)));
  }
  return made;
}

/** Explain the bars and the line. */
export function timingKey() {
  const item = (shape, text) => el("span", {}, svg("svg", { viewBox: "0 0 18 12", class: "timing-sign", "aria-hidden": "true" }, shape), text);
  return [
    item(svg("rect", { class: "taking", x: 2, y: 1, width: 14, height: 10 }), t("timing.taking")), item(svg("rect", { class: "judging", x: 2, y: 1, width: 14, height: 10 }), t("timing.judging")),
    item(svg("path", { class: "deadline", d: "M9 0V12" }), t("timing.deadline")),
  ];
}

/** Draw the parts, the newest first. */
export function timingDiagram(parts, deadline, width) {
  const timed = parts.filter((part) => part.total_ms !== null && part.total_ms !== undefined);
  // One slow part must not make all others unreadable: bars end at one and a half deadlines.
  const slowest = Math.max(1, ...timed.map((part) => part.total_ms));
  const end = deadline ? Math.min(Math.max(slowest * 1.15, deadline * 1.08), deadline * 1.5) : slowest * 1.15;
  const bottom = HEAD + ROW * Math.max(timed.length, 1);
  const x = (ms) => LEFT + (Math.min(ms, end) / end) * (width - LEFT - 16);
  const bars = timed.flatMap((part, row) => {
    const y = HEAD + ROW * row;
    const late = deadline && part.total_ms > deadline;
    const acquired = Math.min(part.acquire_ms ?? 0, part.total_ms);
    return [
      svg("text", { x: LEFT - 8, y: y + 12, "text-anchor": "end" }, part.seq),
      svg("g", {}, svg("title", {}, `${describe(part)}: ${t("timing.row", { acquire: number(part.acquire_ms), total: number(part.total_ms) })}`),
        svg("rect", { class: "taking", x: x(0), y: y + 2, width: Math.max(0, x(acquired) - x(0)), height: ROW - 5 }),
        svg("rect", { class: late ? "late" : "judging", x: x(acquired), y: y + 2, width: Math.max(2, x(part.total_ms) - x(acquired)), height: ROW - 5 })),
      late ? svg("text", { x: Math.min(x(part.total_ms) + 4, width - 10), y: y + 12 }, "!") : "",
    ];
  });
  const limit = deadline ? svg("line", { class: "deadline", x1: x(deadline), x2: x(deadline), y1: HEAD - 6, y2: bottom }) : "";
  return svg("svg", { class: "timing", viewBox: `0 0 ${width} ${bottom + 4}`, role: "img", "aria-label": t("timing.label", { n: timed.length }) },
    axis(end, bottom, x), bars, limit);
}

/** Return a percentile (0 to 1) of numbers, or null if there are none. */
export function percentile(values, share) {
  const sorted = [...values].sort((one, two) => one - two);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] : null;
}
