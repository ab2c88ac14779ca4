// The score over time: the band from lowest to highest, the threshold dashed, events as marked lines.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { axisTimes, number, t, when } from "./text.js";

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const seconds = (at) => (typeof at === "number" ? at : new Date(at).getTime() / 1000);
const HIGHEST = 3; // times the threshold
let chart = null;
let follow = null;

function marks(events) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = color("quiet");
    ctx.fillStyle = color("ink");
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const event of events) {
      const at = seconds(event.at);
      const x = plot.valToPos(at, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      // A flag at the top, so that the line is not taken for a grid line.
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x + 9 * devicePixelRatio, bbox.top + 5 * devicePixelRatio);
      ctx.lineTo(x, bbox.top + 10 * devicePixelRatio);
      ctx.fill();
    }
    ctx.restore();
  };
}

/** Draw the scores (as multiples of the threshold) into an element; `zoom(from, to)` hears a drawn range. */
export function scoreChart(place, scores, zoom) {
  chart?.destroy();
  follow?.disconnect();
  const ink = color("ink");
  const axis = { stroke: color("quiet"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "13px system-ui, sans-serif" };
  // One very bad part must not flatten all others: it is drawn at the upper edge, its figure is whole.
  const drawn = (values) => values.map((each) => each && Math.min(each, HIGHEST));
  const value = (_, __, series, at) => number(at === null ? null : [null, scores.high, scores.low, scores.threshold][series][at], 2);
  chart = new uPlot({
    width: Math.max(place.clientWidth, 200), height: 260, cursor: { drag: { x: true, y: false }, points: { show: false } },
    scales: { y: {
      range: (_, low, high) => [0, Math.max(1.25, (high ?? 1) * 1.04)],
    } },
    axes: [{ ...axis, space: 80, values: (_, ticks) => axisTimes(ticks) }, { ...axis, label: t("part.ratio"), labelSize: 22, labelFont: "13px system-ui, sans-serif", size: 52, values: (_, ticks) => ticks.map((each) => number(each, 2)) }],
    series: [
      { label: t("part.at"), value: (_, raw) => (raw ? when(raw) : "–") },
      { label: t("history.highest"), stroke: ink, width: 1.5, value, points: { show: true, size: 4, fill: ink } },
      { label: t("history.lowest"), stroke: color("edge"), width: 1, value, points: { show: false } },
      { label: t("product.threshold"), stroke: color("bad"), width: 2, dash: [7, 5], value, points: { show: false } },
    ],
    bands: [{ series: [1, 2], fill: color("hover") }],
    hooks: { drawAxes: [marks(scores.events ?? [])], setSelect: [(plot) => plot.select.width > 4 && zoom(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))] },
  }, [scores.t.map(seconds), drawn(scores.high), drawn(scores.low), scores.threshold], place);
  follow = new ResizeObserver(() => chart.setSize({ width: Math.max(place.clientWidth, 200), height: 260 }));
  follow.observe(place);
}
