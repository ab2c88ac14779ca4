// The shadow panel: another generation judges beside the current one without a say.

import { button, el, say } from "./dom.js";
import { changed, get, may, paths } from "./api.js";
import { partDialog } from "./part_dialog.js";
import { busy, toast } from "./shell.js";
import { sign, verdictWord } from "./signs.js";
import { number, ratio, t } from "./text.js";

function difference(each, number_) {
  const made = button([el("img", { class: "shot", src: paths.picture(each.uid, number_, 320), alt: "", loading: "lazy" }),
    el("span", { class: `verdict ${each.new_verdict}` }, sign(each.new_verdict), t("flips.to", { before: verdictWord(each.verdict), after: verdictWord(each.new_verdict) })),
    el("span", { class: "num quiet" }, `${ratio(each.ratio)} → ${ratio(each.new_ratio)}`)], () => partDialog.open(each.uid), { class: "card" });
  return el("li", {}, made);
}

function rules({ take_at_most: take, drop_above: drop }) {
  const words = [take !== null && take !== undefined && t("shadow.rule-take", { n: number(take) }), drop !== null && drop !== undefined && t("shadow.rule-drop", { n: number(drop) })];
  return words.filter(Boolean).join(" ") || t("shadow.rule-none");
}

const progressWords = (shadow) => t("shadow.progress", { state: t(`shadow.state-${shadow.state}`), seen: number(shadow.seen), parts: number(shadow.parts), stricter: number(shadow.stricter), laxer: number(shadow.laxer) });

function trial(shadow, again) {
  const open = ["running", "waiting"].includes(shadow.state);
  const decide = (name) => {
    const made = button(t(`shadow.${name}`), () => busy(made, async () => {
      await changed("POST", `/api/v1/shadow/${name}`, {});
      toast(t(`shadow.${name}-done`));
      document.dispatchEvent(new Event("changed"));
      await again();
    }), { class: name === "take" ? "main" : "" });
    return made;
  };
  const differences = shadow.differences ?? [];
  return [
    el("p", {}, progressWords(shadow)),
    open && el("progress", { max: Math.max(shadow.parts, 1), value: shadow.seen, "aria-label": t("shadow.title") }),
    el("p", { class: "quiet small name" }, [open && rules(shadow.rule), shadow.note].filter(Boolean).join(" ")),
    differences.length > 0 && el("ul", { class: "flips", tabindex: "0", "aria-label": t("shadow.differences") }, differences.map((each) => difference(each, shadow.capture))),
    open && may("engineer") && el("div", { class: "row" }, decide("take"), decide("drop")),
  ];
}

/** Show the latest trial of a capture of a product, or how to begin one. */
export async function showShadow(place, product, capture) {
  const shadow = await get("/api/v1/shadow");
  const mine = shadow && shadow.product === product && shadow.capture === capture;
  // Only figures change most of the time, and nobody can press a button that is made again each second.
  const shown = mine ? JSON.stringify({ ...shadow, seen: 0 }) : "";
  if (mine && place.dataset.shown === shown) {
    say(place.querySelector("p"), progressWords(shadow));
    const bar = place.querySelector("progress");
    if (bar) bar.value = shadow.seen;
    return;
  }
  place.dataset.shown = shown;
  place.replaceChildren(...(mine ? trial(shadow, () => showShadow(place, product, capture)) : [el("p", { class: "quiet" }, t("shadow.none"))]).filter(Boolean));
}
