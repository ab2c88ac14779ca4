// A live picture of a camera with what helps to adjust it: focus and exposure.

import { el, say } from "./dom.js";
import { PictureView } from "./picture_view.js";
import { number, percent, t } from "./text.js";

const EVERY_MS = 500;
const WIDTH = 320;

/** Measure a picture: focus as the variance of its Laplacian, and how bright, black and white it is. */
function measured(picture) {
  const height = Math.max(3, Math.round((picture.naturalHeight / picture.naturalWidth) * WIDTH));
  const context = el("canvas", { width: WIDTH, height }).getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0, WIDTH, height);
  const { data } = context.getImageData(0, 0, WIDTH, height);
  const gray = Float32Array.from({ length: WIDTH * height }, (_, at) => 0.299 * data[4 * at] + 0.587 * data[4 * at + 1] + 0.114 * data[4 * at + 2]);
  let [sum, squares, count] = [0, 0, 0];
  for (let y = 1; y < height - 1; y += 1) {
    for (let x = 1; x < WIDTH - 1; x += 1) {
      const at = y * WIDTH + x;
      const edge = 4 * gray[at] - gray[at - 1] - gray[at + 1] - gray[at - WIDTH] - gray[at + WIDTH];
      sum += edge;
      squares += edge * edge;
      count += 1;
    }
  }
  const share = (test) => gray.reduce((found, value) => found + Number(test(value)), 0) / gray.length;
  const mean = gray.reduce((total, value) => total + value, 0) / gray.length / 255;
  return { focus: squares / count - (sum / count) ** 2, exposure: { mean, dark: share((value) => value < 6), saturated: share((value) => value > 249) } };
}

function meter(name) {
  const filled = el("div");
  const bar = el("div", { class: "bar", role: "meter", "aria-label": t(`aid.${name}`), "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 0 }, filled);
  const value = el("span", { class: "num" }, "–");
  return {
    node: el("div", { class: "meter" }, el("span", { class: "quiet" }, t(`aid.${name}`)), bar, value),
    show(share, text) {
      const full = Math.round(Math.max(0, Math.min(1, share || 0)) * 100);
      filled.style.width = `${full}%`;
      bar.setAttribute("aria-valuenow", full);
      say(value, text);
    },
  };
}

export class CameraView {
  frozen = false;
  #best = 0;
  #running = true;

  constructor(name) {
    this.name = name;
    const place = el("div");
    this.view = new PictureView(place, t("aid.live", { camera: name }));
    this.meters = { focus: meter("focus"), mean: meter("mean"), dark: meter("dark"), saturated: meter("saturated") };
    this.words = el("p", { class: "small quiet", role: "status" });
    this.node = el("div", { class: "camera stack" }, el("h3", { class: "name" }, name), place, el("div", { class: "form" }, Object.values(this.meters).map((each) => each.node)), this.words);
    this.#follow();
  }

  stop() {
    this.#running = false;
  }

  // One request after the other, and none while nobody looks: the line has better things to do.
  async #follow() {
    const path = `/api/v1/cameras/${encodeURIComponent(this.name)}`;
    for (let failed = 0; this.#running; await new Promise((resolve) => { setTimeout(resolve, EVERY_MS * Math.min(1 + failed, 8)); })) {
      if (document.hidden || this.frozen) continue;
      try {
        const answer = await fetch(`${path}/picture`, { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const address = URL.createObjectURL(await answer.blob());
        const picture = await this.view.show(address, { label: t("aid.live", { camera: this.name }) });
        URL.revokeObjectURL(address);
        if (picture) this.#show(measured(picture));
        failed = 0;
      } catch {
        failed += 1;
        if (failed > 1) await this.view.show(null, { missing: t("aid.none") });
      }
    }
  }

  #show({ focus, exposure = {} }) {
    this.#best = Math.max(this.#best, focus ?? 0);
    // Sharpness has no unit: what helps is how near it is to the best that was seen here.
    this.meters.focus.show(this.#best ? focus / this.#best : 0, this.#best ? percent(focus / this.#best, 0) : "–");
    const { mean } = exposure;
    this.meters.mean.show(mean, percent(mean, 0));
    this.meters.dark.show(exposure.dark, percent(exposure.dark));
    this.meters.saturated.show(exposure.saturated, percent(exposure.saturated));
    const advice = exposure.saturated > 0.02 ? "aid.too-bright" : mean < 0.12 ? "aid.too-dark" : focus < 0.7 * this.#best ? "aid.blurred" : "aid.fine";
    say(this.words, t(advice, { best: number(this.#best, 1) }));
  }
}
