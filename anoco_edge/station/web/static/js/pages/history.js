// Page 3: search, the score over time with threshold, generations and events marked, export.

import { byId, el, say, table } from "../dom.js";
import { get, query } from "../api.js";
import { key } from "../keys.js";
import { partDialog } from "../part_dialog.js";
import { scoreChart } from "../score_chart.js";
import { startPage, tried } from "../shell.js";
import { verdictNode } from "../signs.js";
import { number, ratio, reason, t, when } from "../text.js";

const form = byId("search");
const rows = [];
let next = null;
let turn = 0;
let body = null;

const HEADS = ["part.at", "part.verdict", "part.ratio", "part.code", "part.seq", "part.product", "part.total", "part.review"];

function filters() {
  const values = Object.fromEntries(new FormData(form));
  for (const name of ["from", "to"]) if (values[name]) values[name] = new Date(values[name]).toISOString();
  return values;
}

function row(part) {
  const open = el("button", { type: "button", class: "bare" }, when(part.at));
  open.addEventListener("click", () => partDialog.open(part.uid, { changed: repaint, steps: beside }));
  const cells = [
    open, el("span", {}, verdictNode(part.verdict), " ", el("span", { class: "quiet small" }, reason(part.reason))), { value: part.verdict === "no-verdict" ? "–" : ratio(part.ratio), class: "num" },
    { value: part.part_code || "–", class: "name" }, { value: part.seq, class: "num" }, { value: `${part.product_name ?? part.product ?? "–"} · ${part.generation ?? "–"}`, class: "name" },
    { value: number(part.total_ms), class: "num" }, part.review ? t(`review.${part.review.verdict}`) : "–",
  ];
  return el("tr", { class: "opens", "data-uid": part.uid }, cells.map((cell) => (cell?.class ? el("td", { class: cell.class }, cell.value) : el("td", {}, cell))));
}

const beside = (uid, by) => rows[rows.findIndex((part) => part.uid === uid) + by]?.uid ?? null;

function repaint(part) {
  const at = rows.findIndex((each) => each.uid === part.uid);
  if (at < 0) return;
  rows[at] = part;
  [...body.children].find((each) => each.dataset.uid === part.uid)?.replaceWith(row(part));
}

async function search(more = false) {
  const mine = ++turn;
  const values = filters();
  byId("export").href = query("/api/v1/parts.csv", values);
  const found = await get(query("/api/v1/parts", { ...values, limit: 50, after: more ? next : "" }));
  if (mine !== turn) return;
  if (!more) {
    rows.length = 0;
    const made = table(t("history.parts"), HEADS.map((name) => (["part.ratio", "part.seq", "part.total"].includes(name) ? { value: t(name), class: "num" } : t(name))), []);
    body = made.querySelector("tbody");
    byId("parts").replaceChildren(made);
  }
  rows.push(...found.items);
  body.append(...found.items.map(row));
  next = found.next;
  byId("more").hidden = !next;
  byId("empty").hidden = rows.length > 0;
  byId("parts").hidden = rows.length === 0;
}

// Each of the times is the beginning of a span.
const endOf = (times) => new Date(2 * new Date(times.at(-1)) - new Date(times.at(-2) ?? times.at(-1))).toISOString();

async function showChart() {
  const values = filters();
  const scores = await get(query("/api/v1/scores", { product: values.product, from: values.from, to: values.to, points: 400 }));
  scoreChart(byId("chart"), scores, zoom);
  const highest = Math.max(...scores.high.filter((value) => value !== null), 0);
  say(byId("chart-words"), scores.t.length ? t("history.chart-words", { from: when(scores.t[0]), to: when(endOf(scores.t)), highest: ratio(highest) }) : t("history.empty"));
  byId("events").replaceChildren(...(scores.events ?? []).slice(-6).map((event) => el("li", {}, el("span", { class: "quiet num" }, `${when(event.at)}  `), event.text)));
}

// A range that is drawn in the chart becomes the search.
function zoom(from, to) {
  const local = (seconds) => new Date(seconds * 1000 - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  form.elements.from.value = local(from);
  form.elements.to.value = local(to + 60);
  tried(() => search());
}

async function refresh() {
  const products = await get("/api/v1/products");
  const list = form.elements.product;
  const kept = list.value;
  list.replaceChildren(list.options[0], ...products.map((product) => el("option", { value: product.number }, product.name)));
  list.value = kept;
  await Promise.all([search(), showChart()]);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  tried(() => Promise.all([search(), showChart()]));
});
byId("more").addEventListener("click", () => tried(() => search(true)));
document.addEventListener("repaint", () => tried(showChart));
key("s", "key.search", () => form.elements.code.focus());
startPage(refresh);
