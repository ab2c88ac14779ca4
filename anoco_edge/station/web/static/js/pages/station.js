// Page 1: the last part large, beside it the reference that says so, verdict, counters, the last twelve.

import { byId, el, say } from "../dom.js";
import { get, may, paths, query, send } from "../api.js";
import { becameReference } from "../correction.js";
import { key } from "../keys.js";
import { live } from "../live.js";
import { explain, partDialog, review } from "../part_dialog.js";
import { PictureView, scaleBar } from "../picture_view.js";
import { busy, startPage, toast, tried } from "../shell.js";
import { describe, gauge, sign, verdictWord } from "../signs.js";
import { number, percent, ratio, reason, t, time } from "../text.js";

const LAST = 12;
const SETTLE_MS = 700; // who presses a button that soon means the part before
const view = new PictureView(byId("picture"), t("station.waiting"));
const reference = new PictureView(byId("reference"));
const recent = []; // newest first
let shown = null;
let shownAt = -Infinity;
let explaining = null; // the part whose reference is asked for; only one request at a time

function showPlate(part) {
  const plate = byId("plate");
  plate.className = `plate ${part?.verdict ?? ""}`;
  plate.replaceChildren(sign(part?.verdict), el("span", {}, part ? verdictWord(part.verdict) : t("station.waiting")));
  byId("gauge").replaceChildren(part && part.verdict !== "no-verdict" ? gauge(part.ratio, part.verdict) : "");
  const facts = part ? [
    ["part.ratio", ratio(part.ratio)], ["part.code", part.part_code || "–"], ["part.seq", part.seq], ["part.at", time(part.at)],
    ["part.total", t("part.ms", { ms: number(part.total_ms) })],
  ] : [];
  if (reason(part?.reason)) facts.splice(0, 1, ["part.reason", reason(part.reason)]);
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, t(name)), el("dd", {}, value)]));
}

const worst = (part) => (part.captures ?? []).reduce((most, each) => (!most || (each.ratio ?? 0) > (most.ratio ?? 0) ? each : most), null);

function showReference(on) {
  byId("reference-figure").hidden = !on;
  byId("pictures").classList.toggle("alone", !on);
}

async function showPart(part) {
  if (shown && shown.uid !== part.uid) shownAt = performance.now();
  shown = part;
  showPlate(part);
  const capture = worst(part);
  say(byId("part-caption"), t("station.caption", { code: part.part_code || t("part.number", { seq: part.seq }), camera: capture?.camera ?? "" }));
  byId("was-good").disabled = part.verdict === "no-verdict";
  say(byId("was-good"), t(part.verdict === "good" ? "station.was-missed" : "station.was-good"));
  await view.show(pictureOf(part, 1280), { label: describe(part), regions: capture?.width ? capture.regions : [], width: capture?.width, height: capture?.height });
  if (shown !== part) return; // the next part came meanwhile
  if (part.verdict === "anomalous" && capture) await showEvidence(part, capture);
  else showReference(false);
}

// Rejects can follow each other faster than explanations; the newest one that waits is the next.
async function showEvidence(part, capture) {
  showReference(true);
  say(byId("reference-caption"), t("picture.reference-short"));
  reference.show(null, { missing: t("picture.reference-soon") }); // never that of the part before
  if (explaining) {
    explaining = { part, capture };
    return;
  }
  explaining = { part, capture };
  try {
    const found = await explain(part, capture, view, reference, () => shown === part);
    const [first] = found.references ?? [];
    if (shown === part) {
      showReference(Boolean(first));
      if (first) say(byId("reference-caption"), t("picture.reference", { similarity: number(first.similarity, 3) }));
    }
  } catch {
    // The line may not have kept the picture; the verdict stands without it.
    if (shown === part) showReference(false);
  }
  const next = explaining;
  explaining = null;
  if (next.part !== part && shown === next.part) await showEvidence(next.part, next.capture);
}

// A part that has just come has a preview, or its picture if it is one of those that are always kept.
function pictureOf(part, width) {
  const capture = worst(part);
  if (part.preview && !capture?.number) return part.preview; // it is of the first camera
  return capture && (capture.picture ?? part.verdict === "anomalous") ? paths.picture(part.uid, capture.number, width) : null;
}

function stripItem(part) {
  const src = pictureOf(part, 160);
  const made = el("button", { type: "button", class: part.verdict ?? "", "aria-label": describe(part) }, src && el("img", { src, alt: "" }), sign(part.verdict));
  made.querySelector("img")?.addEventListener("error", (event) => event.target.remove());
  made.addEventListener("click", () => partDialog.open(part.uid, { steps: beside }));
  return el("li", {}, made);
}

function beside(uid, by) {
  return recent[recent.findIndex((part) => part.uid === uid) + by]?.uid ?? null;
}

function showState(state) {
  const { counters = {} } = state;
  const values = {
    yield: percent(state.yield), good: number(counters.good), fail: number(counters.fail), "no-verdict": number(counters.no_verdict), missed: number(counters.missed),
    pace: number(state.pace_per_minute), reserve: t("part.ms", { ms: number(state.reserve_ms) }), triggers: number(counters.triggers),
  };
  for (const [name, value] of Object.entries(values)) say(byId(`count-${name}`), value);
  const bits = state.bits ?? [];
  const paused = bits.includes("MAINTENANCE");
  const pause = byId("pause");
  pause.setAttribute("aria-pressed", String(paused));
  say(pause, t(paused ? "station.resume" : "station.pause"));
  byId("reset").hidden = !may("operator") || !bits.includes("FAULT");
  byId("warnings").replaceChildren(...(state.warnings ?? []).slice(0, 3).map((text) => el("span", { class: "verdict no-verdict" }, sign("no-verdict"), el("span", { class: "name" }, text))));
}

function pause() {
  const control = byId("pause");
  const on = control.getAttribute("aria-pressed") !== "true";
  busy(control, () => send("POST", "/api/v1/line/maintenance", { on }));
}

function judgedWrong() {
  const part = shown;
  if (!part || byId("was-good").disabled) return;
  if (performance.now() - shownAt < SETTLE_MS) {
    toast(t("station.too-soon"));
    return;
  }
  const verdict = part.verdict === "good" ? "missed" : "good";
  busy(byId("was-good"), async () => {
    await review(part, verdict);
    toast(t("review.stored", { verdict: t(`review.${verdict}`) }));
    if (verdict === "missed") await partDialog.open(part.uid, { steps: beside });
    else if (may("engineer")) await becameReference(part, worst(part)?.number ?? 0);
  });
}

async function refresh() {
  const [state, parts] = await Promise.all([get("/api/v1/state"), get(query("/api/v1/parts", { limit: LAST }))]);
  showState(state);
  recent.splice(0, recent.length, ...parts.items.filter((part) => part.verdict && part.accepted !== false));
  byId("strip").replaceChildren(...recent.map(stripItem));
  if (recent.length) await showPart(recent[0]);
  else showPlate(null);
}

live.addEventListener("state", ({ detail }) => showState(detail));
live.addEventListener("part", ({ detail }) => {
  if (!detail.verdict || detail.accepted === false || recent.some((part) => part.uid === detail.uid)) return;
  recent.unshift(detail);
  recent.length = Math.min(recent.length, LAST);
  byId("strip").prepend(stripItem(detail));
  while (byId("strip").children.length > LAST) byId("strip").lastChild.remove();
  tried(() => showPart(detail));
});

byId("scale").append(scaleBar());
showReference(false);
byId("was-good").addEventListener("click", judgedWrong);
byId("pause").addEventListener("click", pause);
byId("reset").addEventListener("click", () => busy(byId("reset"), () => send("POST", "/api/v1/line/reset", {})));
key("h", "key.heat", () => view.toggleHeat());
key("Enter", "key.open-last", () => shown && partDialog.open(shown.uid, { steps: beside }));
if (may("operator")) {
  key("g", "key.was-good", judgedWrong);
  key("p", "key.pause", pause);
}
startPage(refresh);
