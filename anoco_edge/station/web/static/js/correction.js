// "That was good" and "this was missed": a dry run first, which says what would flip; then applied, or not.

import { byId, button, el } from "./dom.js";
import { changed, finished, get, paths, send } from "./api.js";
import { busy, toast } from "./shell.js";
import { sign, verdictWord } from "./signs.js";
import { number, ratio, rough, t } from "./text.js";

function opened(title, ...children) {
  const dialog = byId("correction");
  dialog.querySelector(".inside").replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "correction-title" }, title), button("×", () => dialog.close(), { class: "bare", "aria-label": t("common.close") })), ...children,
  );
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/** Say in words which share of good parts will be rejected. */
export function promiseWords(promise) {
  if (!promise) return t("promise.none");
  const at = "current" in promise ? promise.current : promise;
  if (!at) return t("promise.none");
  const low = rough(at.false_reject_low * 1000);
  const high = rough(at.false_reject_high * 1000);
  return at.false_reject_low > 0 ? t("promise.band", { low, high }) : t("promise.most", { high });
}

/** Show which of the last parts would get another verdict. */
export function flipList(result) {
  const flips = result.flips ?? [];
  const words = t("flips.count", {
    flips: number(flips.length + (result.more_flips ?? 0)), parts: number(result.compared ?? 0), before: number(result.before?.anomalous ?? 0), after: number(result.after?.anomalous ?? 0),
  });
  return el("div", { class: "stack" }, el("p", {}, words),
    flips.length > 0 && el("ul", { class: "flips", tabindex: "0", "aria-label": t("flips.list") }, flips.map((flip) => el("li", {},
      el("img", { src: paths.picture(flip.uid, flip.number, 320), alt: "", loading: "lazy" }),
      el("span", { class: `verdict ${flip.new_verdict}` }, sign(flip.new_verdict), t("flips.to", { before: verdictWord(flip.verdict), after: verdictWord(flip.new_verdict) })),
      el("span", { class: "num quiet" }, `${ratio(flip.ratio)} → ${ratio(flip.new_ratio)}`)))));
}

/** Show the progress of a job while it runs and return its result. */
export async function followed(job, place) {
  const bar = el("progress", { max: 1, "aria-label": t("job.progress") });
  const note = el("p", { class: "quiet", role: "status" }, t("job.queued"));
  place.replaceChildren(el("div", { class: "form" }, note, bar));
  const done = await finished(job, (now) => {
    bar.value = now.progress ?? 0;
    note.textContent = now.note || t(`job.${now.state}`);
  });
  place.replaceChildren();
  return done;
}

async function dryRun(title, start, place, productPath) {
  // What is applied is what was tried: if somebody else saves meanwhile, it is refused.
  const { generation } = await get(productPath);
  const job = await followed(await start(), place);
  const dialog = byId("correction");
  if (!dialog.open) return; // it was closed meanwhile, so nobody waits for it
  const apply = button(t("common.apply"), () => busy(apply, async () => {
    await changed("POST", `${productPath}/apply`, { job: job.id }, { etag: generation });
    dialog.close();
    toast(t("correction.applied"));
    document.dispatchEvent(new Event("changed"));
  }), { class: "main" });
  opened(title, flipList(job.result), el("p", { class: "promise" }, promiseWords(job.result.outcome.promise)), el("p", { class: "quiet" }, t("correction.way-back")),
    el("div", { class: "row" }, apply, button(t("common.leave"), () => dialog.close())));
  apply.focus();
}

/** Make the picture of a part that was good a reference, after a dry run. */
export async function becameReference(part, capture = 0) {
  const place = el("div");
  const path = paths.capture(part.product, capture);
  opened(t("correction.to-reference"), place);
  await dryRun(t("correction.to-reference"), () => send("POST", `${path}/references`, { pictures: [{ part: part.uid, number: capture }] }), place, path);
}

/** Fetch why a capture got its verdict, however long it takes to find out. */
export async function explanationOf(uid, capture) {
  const found = await get(paths.explanation(uid, capture));
  if (!found.state) return found;
  return (await finished(found)).result;
}

/** Return the references behind the patches that came nearest to the threshold, each once. */
export function hiding({ grid, nearest }) {
  const patches = [];
  grid.ratio.forEach((row, y) => row.forEach((score, x) => {
    const at = nearest.index[y][x];
    if (score !== null && at !== null) patches.push({ score, digest: nearest.digests[at], similarity: nearest.similarity[y][x] });
  }));
  patches.sort((one, two) => two.score - one.score);
  return [...new Map(patches.slice(0, 40).reverse().map((each) => [each.digest, each])).values()].reverse().slice(0, 4);
}

/** Show the references that made a defect look good, and offer to remove one after a dry run. */
export async function hidByReference(part, capture = 0) {
  const found = await explanationOf(part.uid, capture);
  const path = paths.capture(part.product, capture);
  const place = el("div");
  const once = hiding(found);
  const remove = (reference, control) => busy(control, () => dryRun(t("correction.remove"), () => send("DELETE", `${path}/references/${encodeURIComponent(reference.digest)}`), place, path));
  opened(t("correction.what-hid-it"), el("p", {}, t(once.length ? "correction.hid" : "picture.no-reference")),
    el("ul", { class: "thumbs" }, once.map((reference) => {
      const control = button(t("correction.remove"), () => remove(reference, control));
      return el("li", {}, el("img", { src: paths.reference(part.product, capture, reference.digest), alt: t("picture.reference", { similarity: number(reference.similarity, 3) }) }),
        el("span", { class: "small" }, t("picture.reference", { similarity: number(reference.similarity, 3) })), control);
    })), place);
}
