// Page 2: what was rejected, unreviewed first. One key judges all that are chosen; U takes it back.

import { all, byId, el, say } from "../dom.js";
import { get, may, paths, query } from "../api.js";
import { key } from "../keys.js";
import { live } from "../live.js";
import { partDialog, review } from "../part_dialog.js";
import { startPage, toast, tried } from "../shell.js";
import { verdictNode } from "../signs.js";
import { number, ratio, reason, t, when } from "../text.js";

const PAGE = 60;
const FILTERS = { anomalous: { verdict: "anomalous" }, "no-verdict": { verdict: "no-verdict" }, near: { verdict: "good", min_ratio: 0.8 } };
const grid = byId("grid");
const parts = new Map();
const chosen = new Set();
let show = "anomalous";
let next = null;
let anchor = null;
let undoable = [];
let turn = 0;

const cards = () => [...grid.children];
const uidOf = (card) => card.dataset.uid;

function card(part) {
  const capture = (part.captures ?? []).find((each) => each.picture !== false);
  const picture = capture ? el("img", { class: "shot", src: paths.picture(part.uid, capture.number, 360), alt: "", loading: "lazy" }) : el("div", { class: "shot" });
  const made = el("div", { class: "card", role: "option", tabindex: "-1", "data-uid": part.uid, "aria-selected": "false" }, picture);
  paint(made, part);
  made.addEventListener("click", (event) => choose(made, { add: event.ctrlKey || event.metaKey, range: event.shiftKey }));
  made.addEventListener("dblclick", () => open(made));
  return made;
}

function paint(made, part) {
  const mark = part.review ? `${t(`review.${part.review.verdict}`)} · ${part.review.by ?? ""}` : reason(part.reason) || when(part.at);
  for (const each of all(".line, .code, .mark-line", made)) each.remove();
  made.append(
    el("div", { class: "line" }, verdictNode(part.verdict), part.verdict === "no-verdict" ? null : el("span", { class: "num" }, ratio(part.ratio))),
    el("div", { class: "code" }, part.part_code || t("part.number", { seq: part.seq })), el("div", { class: "mark-line" }, mark, part.pinned ? ` · ${t("part.pinned-short")}` : "", part.review ? "" : el("span", { class: "spoken" }, t("review.none"))),
  );
}

function showChosen() {
  for (const each of cards()) {
    const on = chosen.has(uidOf(each));
    each.setAttribute("aria-selected", String(on));
    if (on && !each.querySelector(".tick")) each.append(el("span", { class: "tick", "aria-hidden": "true" }, "✓"));
    if (!on) each.querySelector(".tick")?.remove();
  }
  say(byId("chosen"), chosen.size ? t("rejects.chosen", { n: number(chosen.size) }) : "");
  for (const each of all("[data-review]")) each.disabled = !chosen.size;
  byId("undo").disabled = !undoable.length;
}

function focus(made) {
  for (const each of cards()) each.tabIndex = -1;
  if (!made) return;
  made.tabIndex = 0;
  made.focus();
}

function choose(made, { add = false, range = false } = {}) {
  const uid = uidOf(made);
  if (range && anchor) {
    const order = cards().map(uidOf);
    const [from, to] = [order.indexOf(anchor), order.indexOf(uid)].sort((a, b) => a - b);
    for (const each of order.slice(Math.max(from, 0), to + 1)) chosen.add(each);
  } else {
    const on = chosen.has(uid);
    if (!add && !(chosen.size === 1 && on)) chosen.clear();
    if (on) chosen.delete(uid);
    else chosen.add(uid);
    anchor = uid;
  }
  focus(made);
  showChosen();
}

function open(made) {
  if (made) partDialog.open(uidOf(made), { changed: updated, steps: (uid, by) => cards().map(uidOf)[cards().map(uidOf).indexOf(uid) + by] ?? null });
}

function updated(part) {
  parts.set(part.uid, part);
  const made = cards().find((each) => uidOf(each) === part.uid);
  if (made) paint(made, part);
}

async function judge(verdict, uids = [...chosen]) {
  if (!may("operator") || !uids.length) return;
  const before = uids.map((uid) => [uid, parts.get(uid).review?.verdict ?? null]);
  const order = cards().map(uidOf);
  const after = order.find((uid, at) => at > order.indexOf(uids.at(-1)) && !uids.includes(uid));
  await tried(async () => {
    for (const uid of uids) updated(await review(parts.get(uid), verdict));
    undoable = before;
    toast(t("rejects.judged", { n: number(uids.length), verdict: verdict ? t(`review.${verdict}`) : t("review.none") }));
  });
  chosen.clear();
  focus(cards().find((each) => uidOf(each) === after) ?? cards()[0]);
  showChosen();
}

async function undo() {
  const before = undoable;
  undoable = [];
  await tried(async () => {
    for (const [uid, verdict] of before) updated(await review(parts.get(uid), verdict));
  });
  showChosen();
}

async function load(more = false) {
  const mine = ++turn;
  const filter = { ...FILTERS[show], review: byId("unreviewed").checked ? "none" : "", limit: PAGE, after: more ? next : "" };
  const found = await get(query("/api/v1/parts", filter));
  if (mine !== turn) return;
  if (!more) {
    grid.replaceChildren();
    parts.clear();
    chosen.clear();
    undoable = [];
  }
  // Unreviewed first, so that nobody searches for what is still to be done.
  const items = [...found.items].sort((one, two) => Boolean(one.review) - Boolean(two.review));
  for (const part of items) {
    if (!parts.has(part.uid)) grid.append(card(part));
    parts.set(part.uid, part);
  }
  next = found.next;
  byId("more").hidden = !next;
  if (grid.firstElementChild && !grid.querySelector("[tabindex='0']")) grid.firstElementChild.tabIndex = 0;
  showEmpty();
  showChosen();
}

function showEmpty() {
  byId("empty").hidden = parts.size > 0;
  grid.hidden = parts.size === 0;
  say(byId("summary"), t("rejects.summary", { n: number(parts.size), more: next ? "+" : "" }));
}

function move(event, by) {
  const list = cards();
  const at = list.indexOf(document.activeElement);
  const target = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (!target) return;
  event.preventDefault();
  if (event.shiftKey) {
    anchor ??= at >= 0 ? uidOf(list[at]) : uidOf(target);
    choose(target, { range: true });
  } else focus(target);
}

grid.addEventListener("keydown", (event) => {
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -1e6, End: 1e6 };
  if (event.key in steps) move(event, steps[event.key]);
  else if (event.key === " " && document.activeElement.matches(".card")) {
    event.preventDefault();
    choose(document.activeElement, { add: true });
  } else if (event.key === "Enter" && document.activeElement.matches(".card")) {
    event.preventDefault();
    open(document.activeElement);
  }
});

const target = () => (chosen.size ? [...chosen] : document.activeElement.matches(".card") ? [uidOf(document.activeElement)] : []);
for (const each of all("[data-review]")) each.addEventListener("click", () => judge(each.dataset.review));
byId("undo").addEventListener("click", undo);
byId("more").addEventListener("click", () => tried(() => load(true)));
byId("unreviewed").addEventListener("change", () => tried(load));
for (const each of all("[data-show]")) {
  each.addEventListener("click", () => {
    show = each.dataset.show;
    for (const other of all("[data-show]")) other.setAttribute("aria-pressed", String(other === each));
    byId("undo").closest("span").querySelector("[data-review=missed]").hidden = show !== "near";
    tried(load);
  });
}
key("a", "key.choose-all", () => {
  if (chosen.size === parts.size) chosen.clear();
  else for (const uid of parts.keys()) chosen.add(uid);
  showChosen();
});
key(" ", "key.choose", () => {}, { shown: "Space" });
key("ArrowRight", "key.move", (event) => move(event, 1), { shown: "← → ↑ ↓" });
key("Escape", "key.choose-none", () => {
  chosen.clear();
  showChosen();
}, { shown: "Esc" });
if (may("operator")) {
  key("g", "key.good", () => judge("good", target()));
  key("d", "key.defect", () => judge("defect", target()));
  key("m", "key.missed", () => judge("missed", target()));
  key("u", "key.undo", undo);
}
live.addEventListener("part", ({ detail }) => {
  // A new reject is added in front only while nothing is chosen: the grid never moves under a finger.
  if (detail.verdict !== show || chosen.size || grid.contains(document.activeElement) || parts.has(detail.uid)) return;
  parts.set(detail.uid, detail);
  grid.prepend(card(detail));
  if (!grid.querySelector("[tabindex='0']")) grid.firstElementChild.tabIndex = 0;
  showEmpty();
});
startPage(load);
