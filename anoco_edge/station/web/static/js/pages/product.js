// Page 4: threshold with its promise, region and mask on the picture, references, generations, shadow.

import { byId, button, el, say, settled } from "../dom.js";
import { changed, get, may, paths, send } from "../api.js";
import { flipList, followed, promiseWords } from "../correction.js";
import { Histogram, histogramKey, promiseAt } from "../histogram.js";
import { key } from "../keys.js";
import { live } from "../live.js";
import { RegionEditor } from "../region_editor.js";
import { showShadow } from "../shadow.js";
import { busy, startPage, toast, tried } from "../shell.js";
import { number, t, when } from "../text.js";

const SHADOW_PARTS = 200;
const engineer = may("engineer");
const now = { products: [], product: null, capture: 0, data: null, histogram: null, dirtyThreshold: false, dirtyArea: false };
const path = (rest = "") => `${paths.capture(now.product.number, now.capture)}${rest}`;

const words = (value) => promiseWords(promiseAt(now.histogram?.promise?.at, value));
const chart = new Histogram(byId("histogram"), { moved: thresholdMoved, words, movable: engineer });
const editor = new RegionEditor(byId("editor"), { changed: areaChanged, editable: engineer });

function thresholdMoved(value) {
  byId("threshold").value = Number(value.toPrecision(4));
  say(byId("promise"), words(value));
  dirty("threshold", Math.abs(value - now.data.threshold) > 1e-9);
}

function areaChanged(edited = true) {
  byId("delete-shape").disabled = editor.chosen < 0;
  if (edited) dirty("area", true);
}

function dirty(what, on) {
  now[what === "threshold" ? "dirtyThreshold" : "dirtyArea"] = on;
  byId(`save-${what}`).disabled = !on;
  byId(`reset-${what}`).disabled = !on;
  if (what === "area") byId("try-area").disabled = !on;
}

// Somebody else saved meanwhile: nothing is overwritten; the reader sees the newer state and decides.
async function saved(action, text) {
  try {
    await action();
    toast(text);
    await load();
  } catch (error) {
    if (![409, 412].includes(error.status)) throw error;
    await load();
    toast(t("product.conflict"), true);
  }
}

async function whatIf(change, place) {
  const job = await followed(await send("POST", path("/what-if"), { change }), place);
  const shadow = button(t("shadow.start"), () => busy(shadow, async () => {
    await send("POST", "/api/v1/shadow", { product: now.product.number, capture: now.capture, candidate: job.id, parts: SHADOW_PARTS });
    toast(t("shadow.started"));
    await showShadow(byId("shadow"), now.product.number, now.capture);
  }));
  return el("div", { class: "note stack", role: "status" }, flipList(job.result), el("p", {}, promiseWords(job.result.outcome.promise)), el("div", { class: "row" }, shadow));
}

const tryThreshold = () => whatIf({ what: "threshold", value: Number(byId("threshold").value) }, byId("what-if")).then((found) => byId("what-if").replaceChildren(found));

const saveThreshold = () => saved(() => changed("POST", path("/threshold"), { value: Number(byId("threshold").value) }, { etag: now.data.generation }), t("product.saved"));

/** Return the changes of region and mask that were drawn; a mask is sent first. */
async function areaChanges() {
  const changes = [];
  const corners = editor.corners;
  const near = (one, two) => one.length === two.length && one.every(([x, y], at) => Math.hypot(x - two[at][0], y - two[at][1]) < 1);
  if (!near(corners, now.data.region)) changes.push({ what: "region", points: corners });
  if (editor.shapes.some((shape) => shape.kind === "mask") || (now.data.mask && !editor.ignores)) {
    const upload = editor.ignores ? (await send("POST", "/api/v1/uploads", await editor.mask())).digest : null;
    changes.push({ what: "mask", upload });
  }
  return changes;
}

async function tryArea() {
  const shown = [];
  for (const change of await areaChanges()) shown.push(await whatIf(change, byId("area-job")));
  byId("area-job").replaceChildren(...shown);
}

const saveArea = () => saved(async () => {
  let etag = now.data.generation;
  for (const { what, ...body } of await areaChanges()) {
    await changed("POST", path(`/${what}`), body, { etag });
    etag = (await get(path())).generation;
  }
}, t("product.saved"));

function showThreshold() {
  const { data, histogram } = now;
  chart.show(histogram);
  const field = byId("threshold");
  field.disabled = !engineer;
  field.value = data.threshold === null ? "" : Number(data.threshold.toPrecision(4));
  const promise = data.threshold === null ? null : promiseAt(histogram.promise?.at, data.threshold);
  say(byId("promise"), data.threshold === null ? t("product.no-threshold") : promiseWords(promise));
  say(byId("evidence"), [histogram.promise?.evidence, ...(histogram.promise?.doubts ?? [])].filter(Boolean).join(" "));
  const more = histogram.promise?.more_for_one_percent ?? 0;
  byId("provisional").hidden = data.threshold === null || more === 0;
  say(byId("provisional"), t("teach.provisional", { n: number(more) }));
  byId("what-if").replaceChildren();
  dirty("threshold", false);
}

function showArea() {
  const [first] = now.data.references ?? [];
  editor.show(first ? paths.reference(now.product.number, now.capture, first.digest) : null, first ?? { width: 1, height: 1 }, now.data.region, now.data.mask ? `${path("/mask")}?generation=${now.data.generation}` : null);
  byId("area-job").replaceChildren();
  byId("delete-shape").disabled = true;
  dirty("area", false);
}

function showReferences() {
  byId("references").replaceChildren(...(now.data.references ?? []).map((reference, at) => el("li", {},
    el("img", { src: paths.reference(now.product.number, now.capture, reference.digest), alt: t("product.reference", { n: at + 1 }), loading: "lazy" }),
    el("span", { class: "small quiet num" }, t("product.size", { width: reference.width, height: reference.height })))));
}

function showGenerations() {
  byId("undo").disabled = !now.data.undo;
  byId("generations").replaceChildren(...(now.data.generations ?? []).map((each) => el("li", {}, el("div", {},
    el("b", {}, t("product.generation", { generation: each.generation })), each.current ? ` · ${t("product.current")}` : "",
    el("br"), el("span", { class: "quiet small name" }, [each.at ? when(each.at) : "", each.note ?? ""].filter(Boolean).join(" · "))))));
}

/** Say who signed the bundle, or why the line will refuse it; nothing where no signature is asked for. */
function showSignature() {
  const { signature } = now.data;
  const place = byId("signature");
  place.hidden = !signature;
  if (!signature) return;
  place.classList.toggle("warn", Boolean(signature.problem));
  const at = signature.at ? when(signature.at) : "";
  if (signature.problem) say(place, t("product.not-signed", { problem: signature.problem }));
  else if (signature.own) say(place, t("product.signed-here", { at, key: signature.after }));
  else say(place, t("product.signed-key", { at, key: signature.key }));
}

const undo = () => saved(() => changed("POST", path("/undo"), {}, { etag: now.data.generation }), t("product.went-back"));

/** Fetch and show the capture; with `keep`, not over what somebody has begun to change meanwhile. */
async function load({ keep = false } = {}) {
  const [data, histogram] = await Promise.all([get(path()), get(path("/histogram"))]);
  if (keep && (now.dirtyThreshold || now.dirtyArea)) return;
  Object.assign(now, { data, histogram });
  showThreshold();
  showArea();
  showReferences();
  showGenerations();
  showSignature();
  await showShadow(byId("shadow"), now.product.number, now.capture);
}

async function choose(number_, capture = 0, options = {}) {
  now.product = now.products.find((each) => each.number === number_) ?? now.products[0];
  now.capture = capture;
  say(byId("title"), now.product.name);
  byId("choose").value = now.product.number;
  byId("change-over").hidden = !may("operator") || Boolean(now.product.current);
  history.replaceState(null, "", `/products/${now.product.number}`);
  byId("captures").hidden = now.product.captures.length < 2;
  byId("captures").replaceChildren(...now.product.captures.map((each, at) => button(each.camera, () => tried(() => choose(now.product.number, at)), { "aria-pressed": String(at === capture) })));
  await load(options);
}

async function refresh() {
  now.products = await get("/api/v1/products");
  const list = byId("choose");
  list.replaceChildren(...now.products.map((each) => el("option", { value: each.number }, `${each.number} · ${each.name}`)));
  // What somebody is changing stays as it is, even if the connection went away meanwhile.
  if (now.dirtyThreshold || now.dirtyArea) return;
  const wanted = Number(list.dataset.number) || now.products.find((each) => each.current)?.number || now.products[0]?.number;
  if (wanted) await choose(now.product?.number ?? wanted, now.capture, { keep: true });
}

byId("histogram-key").append(...histogramKey());
byId("choose").addEventListener("change", (event) => tried(() => choose(Number(event.target.value))));
byId("threshold").addEventListener("change", (event) => Number(event.target.value) > 0 && chart.set(Number(event.target.value)));
byId("try-threshold").addEventListener("click", (event) => busy(event.currentTarget, tryThreshold));
byId("save-threshold").addEventListener("click", (event) => busy(event.currentTarget, saveThreshold).then(() => dirty("threshold", now.dirtyThreshold)));
byId("reset-threshold").addEventListener("click", showThreshold);
byId("draw-region").addEventListener("click", () => editor.add("region"));
byId("draw-mask").addEventListener("click", () => editor.add("mask"));
byId("delete-shape").addEventListener("click", () => editor.remove());
byId("whole").addEventListener("click", () => editor.clear());
byId("try-area").addEventListener("click", (event) => busy(event.currentTarget, tryArea));
byId("undo").addEventListener("click", (event) => busy(event.currentTarget, undo).then(() => { byId("undo").disabled = !now.data.undo; }));
byId("save-area").addEventListener("click", (event) => busy(event.currentTarget, saveArea).then(() => dirty("area", now.dirtyArea)));
byId("reset-area").addEventListener("click", showArea);
byId("change-over").addEventListener("click", (event) => busy(event.currentTarget, async () => {
  await send("POST", "/api/v1/line/change_product", { number: now.product.number });
  toast(t("product.changing", { name: now.product.name }));
}));
document.addEventListener("changed", () => tried(load));
const followShadow = settled(() => now.product && tried(() => showShadow(byId("shadow"), now.product.number, now.capture)), 200);
live.addEventListener("job", ({ detail }) => detail.kind === "shadow" && followShadow());
if (engineer) key("t", "key.threshold", () => chart.handle.focus());
key("w", "key.what-if", () => byId("try-threshold").click());
startPage(refresh);
