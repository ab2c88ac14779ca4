// Page 6: cameras with focus and exposure aid, bits as lamps, words, timing of the last 20 parts.

import { all, byId, el, say, table } from "../dom.js";
import { get, may, query, send } from "../api.js";
import { CameraView } from "../camera_view.js";
import { key } from "../keys.js";
import { live } from "../live.js";
import { busy, startPage, toast } from "../shell.js";
import { number, t } from "../text.js";
import { percentile, timingDiagram, timingKey } from "../timing.js";

const LAST = 20;
const STATUS = ["READY", "TRIGGER_ACK", "EXPOSING", "ACQ_DONE", "BUSY", "RESULT_VALID", "PASS", "FAIL", "NO_VERDICT", "FAULT", "WARNING", "MISSED_TRIGGER", "RESULT_TOGGLE", "PLC_LINK", "MAINTENANCE", "SIMULATED"];
const KINDS = { FAULT: "alarm", WARNING: "warn", MISSED_TRIGGER: "warn", MAINTENANCE: "warn", SIMULATED: "warn", NO_VERDICT: "warn" };
const views = new Map();
const parts = [];
let deadline = null;
let cells = null;

function showBits(bits) {
  const on = new Set(bits ?? []);
  const names = [...STATUS, ...[...on].filter((name) => !STATUS.includes(name))];
  const list = byId("bits");
  if (list.children.length !== names.length) {
    list.replaceChildren(...names.map((name) => el("li", { class: "lamp", "data-bit": name }, el("i", { "aria-hidden": "true" }), el("span", {}, name), el("span", { class: "spoken" }))));
  }
  for (const lamp of all("[data-bit]", list)) {
    const high = on.has(lamp.dataset.bit);
    lamp.className = `lamp ${high ? "on" : ""} ${KINDS[lamp.dataset.bit] ?? ""}`;
    say(lamp.lastChild, t(high ? "line.on" : "line.off"));
  }
}

// Cells are changed in place: a table that is made again five times a second cannot be read or copied.
function showWords(words) {
  const names = Object.keys(words ?? {}).filter((name) => name !== "STATUS" && !name.startsWith("REGION"));
  if (!cells || names.some((name) => !cells.has(name))) {
    cells = new Map(names.map((name) => [name, el("span", { class: "num" })]));
    byId("words").replaceChildren(table(t("line.words"), [t("line.word"), { value: t("line.value"), class: "num" }], names.map((name) => [el("code", {}, name), { value: cells.get(name), class: "num" }])));
  }
  for (const name of names) say(cells.get(name), words[name]);
}

function showTiming() {
  byId("timing").replaceChildren(timingDiagram(parts, deadline, Math.max(280, byId("timing").clientWidth)));
  const totals = parts.map((part) => part.total_ms).filter((value) => value !== null && value !== undefined);
  const figures = [["p50", percentile(totals, 0.5)], ["p99", percentile(totals, 0.99)], ["slowest", totals.length ? Math.max(...totals) : null], ["deadline", deadline], ["late", totals.filter((value) => deadline && value > deadline).length]];
  byId("latency").replaceChildren(...figures.map(([name, value]) => el("div", {}, el("dd", {}, name === "late" ? number(value) : t("part.ms", { ms: number(value) })), el("dt", {}, t(`timing.${name}`)))));
}

function showCameras(cameras) {
  for (const { name } of cameras ?? []) {
    if (views.has(name)) continue;
    views.set(name, new CameraView(name));
    byId("cameras").append(views.get(name).node);
  }
}

function showState(state) {
  deadline = state.deadline_ms ?? deadline;
  showBits(state.bits);
  showWords(state.words);
  showCameras(state.cameras);
  byId("simulate").setAttribute("aria-pressed", String((state.bits ?? []).includes("SIMULATED")));
}

async function refresh() {
  const [state, found] = await Promise.all([get("/api/v1/state"), get(query("/api/v1/parts", { limit: LAST }))]);
  showState(state);
  parts.splice(0, parts.length, ...found.items.filter((part) => part.accepted !== false));
  showTiming();
}

function freeze() {
  const on = byId("freeze").getAttribute("aria-pressed") !== "true";
  byId("freeze").setAttribute("aria-pressed", String(on));
  for (const view of views.values()) view.frozen = on;
}

live.addEventListener("state", ({ detail }) => showState(detail));
live.addEventListener("part", ({ detail }) => {
  if (detail.accepted === false || parts.some((part) => part.uid === detail.uid)) return;
  parts.unshift(detail);
  parts.length = Math.min(parts.length, LAST);
  showTiming();
});
byId("timing-key").append(...timingKey());
new ResizeObserver(showTiming).observe(byId("timing-key"));
byId("freeze").addEventListener("click", freeze);
byId("reset").addEventListener("click", (event) => busy(event.currentTarget, async () => {
  await send("POST", "/api/v1/line/reset", {});
  toast(t("line.reset-sent"));
}));
byId("simulate").addEventListener("click", (event) => busy(event.currentTarget, () => send("POST", "/api/v1/line/simulate", { on: event.currentTarget?.getAttribute("aria-pressed") !== "true" })));
if (may("operator")) key("f", "line.freeze", freeze);
startPage(refresh);
