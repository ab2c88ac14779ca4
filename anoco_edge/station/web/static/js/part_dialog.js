// One part in full: its picture with heat and regions, the reference it was compared with, times, review.

import { byId, button, el, say } from "./dom.js";
import { get, may, paths, send } from "./api.js";
import { becameReference, explanationOf, hidByReference } from "./correction.js";
import { key } from "./keys.js";
import { PictureView, scaleBar } from "./picture_view.js";
import { busy, toast, tried } from "./shell.js";
import { describe, gauge, verdictNode } from "./signs.js";
import { known, number, ratio, reason, t, when } from "./text.js";

const REVIEWS = ["good", "defect", "missed"];

/** Store what a person says about a part; null takes it back. */
export async function review(part, verdict) {
  if (verdict === null) await send("DELETE", `${paths.part(part.uid)}/review`);
  else await send("PUT", `${paths.part(part.uid)}/review`, { verdict, note: part.review?.note ?? "" });
  part.review = verdict === null ? null : { verdict, note: part.review?.note ?? "", by: document.body.dataset.user, at: new Date().toISOString() };
  return part;
}

/**
 * Fetch why a capture got its verdict and lay it over the picture; the reference goes into `beside`.
 * Nothing is shown where `current()` is false by then, because another part is.
 */
export async function explain(part, capture, view, beside, current) {
  const found = await explanationOf(part.uid, capture.number);
  if (!current()) return found;
  const [first] = found.references ?? [];
  view.explain({ width: found.width, height: found.height, regions: found.regions, grid: found.grid?.ratio, gridBox: found.grid?.box, box: first?.query_box });
  if (first) {
    await beside.show(paths.reference(part.product, capture.number, first.digest), {
      width: first.width, height: first.height, box: first.box,
      label: t("picture.reference", { similarity: number(first.similarity, 3) }), missing: t("picture.no-reference"),
    });
  }
  return found;
}

class PartDialog {
  constructor() {
    this.dialog = byId("part");
    this.inside = this.dialog.querySelector(".inside");
    this.part = null;
    this.number = 0; // of the capture that is shown, which a correction is about
    this.changed = () => {};
    this.steps = () => null;
    const bind = (name, text, action) => key(name, text, action, { dialog: "part" });
    bind("g", "key.good", () => this.say("good"));
    bind("d", "key.defect", () => this.say("defect"));
    bind("m", "key.missed", () => this.say("missed"));
    bind("u", "key.undo-review", () => this.say(null));
    bind("h", "key.heat", () => this.view?.toggleHeat());
    bind("p", "key.pin", () => this.pin());
    bind("ArrowLeft", "key.previous", () => this.step(-1));
    bind("ArrowRight", "key.next", () => this.step(1));
  }

  async open(uid, { changed = () => {}, steps = () => null } = {}) {
    this.changed = changed;
    this.steps = steps;
    const part = await tried(() => get(paths.part(uid)));
    if (!part) return;
    this.show(part);
    if (!this.dialog.open) this.dialog.showModal();
  }

  async step(by) {
    const next = this.steps(this.part.uid, by);
    if (next) await this.open(next, { changed: this.changed, steps: this.steps });
  }

  show(part) {
    this.part = part;
    const left = el("div");
    const right = el("div");
    this.view = new PictureView(left);
    this.beside = new PictureView(right);
    this.reviewed = el("p", { class: "row", role: "status" });
    this.rightCaption = el("figcaption", {}, t("picture.reference-short"));
    this.inside.replaceChildren(...[
      el("div", { class: "head" }, el("h2", { id: "part-title", class: "name" }, part.part_code || t("part.number", { seq: part.seq })), this.close()),
      el("div", { class: "row spread" }, verdictNode(part.verdict), el("span", { class: "name" }, reason(part.reason)), el("span", { class: "num" }, ratio(part.ratio))),
      part.verdict !== "no-verdict" && gauge(part.ratio, part.verdict), this.captures(part),
      el("div", { class: "pair" }, el("figure", {}, left, el("figcaption", {}, t("picture.part"))), el("div", { class: "stack" }, el("figure", {}, right, this.rightCaption), this.reviewed, this.actions(part))),
      scaleBar(), this.facts(part),
    ].filter(Boolean));
    this.showReview();
    this.capture(part, (part.captures ?? [])[0]);
  }

  close() {
    return button("×", () => this.dialog.close(), { class: "bare", "aria-label": t("common.close") });
  }

  captures(part) {
    if ((part.captures ?? []).length < 2) return null;
    return el("div", { class: "tabs" }, part.captures.map((capture) => button(capture.camera, () => this.capture(part, capture))));
  }

  async capture(part, capture) {
    if (!capture) return;
    this.number = capture.number;
    const label = describe(part);
    const { view, beside, rightCaption } = this;
    const current = () => this.part === part && this.number === capture.number;
    beside.show(null, { missing: t("picture.reference-soon") });
    const there = capture.picture !== false && await view.show(paths.picture(part.uid, capture.number, 1280), { label });
    if (!current()) return;
    if (!there) {
      await view.show(null, { label });
      await beside.show(null, { missing: t("picture.no-reference") });
      return;
    }
    const found = await tried(() => explain(part, capture, view, beside, current));
    if (!current()) return;
    const [first] = found?.references ?? [];
    if (first) say(rightCaption, t("picture.reference", { similarity: number(first.similarity, 3) }));
    else await beside.show(null, { missing: t("picture.no-reference") });
  }

  showReview() {
    const made = this.part.review;
    this.reviewed.replaceChildren(made ? t("review.made", { verdict: t(`review.${made.verdict}`), by: made.by ?? "", at: when(made.at) }) : t("review.none"));
    for (const each of this.choices ?? []) each.setAttribute("aria-pressed", String(each.dataset.verdict === made?.verdict));
  }

  async say(verdict) {
    if (!may("operator")) return;
    if (await tried(() => review(this.part, verdict)) === undefined) return;
    this.showReview();
    this.changed(this.part);
  }

  async pin() {
    if (!may("operator")) return;
    const on = !this.part.pinned;
    if (await tried(() => send("PUT", `${paths.part(this.part.uid)}/pin`, { on })) === undefined) return;
    this.part.pinned = on;
    this.pinned.setAttribute("aria-pressed", String(on));
    toast(t(on ? "part.pinned" : "part.unpinned"));
    this.changed(this.part);
  }

  actions(part) {
    this.choices = REVIEWS.map((verdict) => button(t(`review.${verdict}`), () => this.say(verdict), { "data-verdict": verdict, disabled: !may("operator") }));
    this.pinned = button(t("part.pin"), () => this.pin(), { "aria-pressed": String(Boolean(part.pinned)), disabled: !may("operator") });
    const heat = button(t("picture.heat"), () => heat.setAttribute("aria-pressed", String(this.view.toggleHeat())), { "aria-pressed": "true" });
    const row = el("div", { class: "row" }, this.choices, this.pinned, heat);
    if (may("engineer")) {
      const [word, correct] = { anomalous: ["correction.to-reference", becameReference], good: ["correction.what-hid-it", hidByReference] }[part.verdict] ?? [];
      const made = correct && button(t(word), () => busy(made, () => correct(part, this.number)));
      if (made) row.append(made);
    }
    return row;
  }

  facts(part) {
    const pairs = [
      ["part.at", when(part.at)], ["part.seq", part.seq], ["part.product", t("common.product-generation", { name: part.product_name ?? part.product ?? "–", generation: part.generation ?? "–" })],
      ["part.total", t("part.ms", { ms: number(part.total_ms) })], ["part.reserve", t("part.ms", { ms: number(part.reserve_ms) })], ["part.uid", part.uid],
    ];
    if (part.simulated) pairs.push(["part.simulated", known("common.yes", "")]);
    return el("dl", { class: "pairs small" }, pairs.map(([name, value]) => [el("dt", {}, t(name)), el("dd", {}, value)]));
  }
}

/** The dialog of this page; its keys are in the help before a part was opened. */
export const partDialog = new PartDialog();
