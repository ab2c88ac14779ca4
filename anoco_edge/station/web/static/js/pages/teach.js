// Page 5: four steps to a product that can be judged: what, pictures of good parts, learn, done.

import { all, byId, button, el, say } from "../dom.js";
import { get, may, send } from "../api.js";
import { CameraView } from "../camera_view.js";
import { followed, promiseWords } from "../correction.js";
import { key } from "../keys.js";
import { busy, startPage } from "../shell.js";
import { number, t } from "../text.js";

const NEEDED = 4;
const place = byId("step");
let pictures = null; // digests of what was taken; null before the first step is done
let product = null;
let capture = 0;
let camera = null;

function step(name, ...children) {
  camera?.stop();
  camera = null;
  for (const each of all("[data-step]")) {
    if (each.dataset.step === name) each.setAttribute("aria-current", "step");
    else each.removeAttribute("aria-current");
  }
  place.replaceChildren(el("h2", { tabindex: "-1" }, t(`teach.step-${name}`)), ...children.filter(Boolean));
  if (name !== "what") place.firstChild.focus();
}

function chooseWhat(products) {
  const choice = el("select", {}, products.map((each) => el("option", { value: each.number }, `${each.number} · ${each.name}`)));
  const cameras = el("select");
  const fill = () => cameras.replaceChildren(...(products.find((each) => each.number === Number(choice.value))?.captures ?? []).map((each, at) => el("option", { value: at }, each.camera)));
  choice.addEventListener("change", fill);
  fill();
  const start = button(t("teach.start"), () => busy(start, async () => {
    product = products.find((each) => each.number === Number(choice.value));
    capture = Number(cameras.value);
    pictures = [];
    takePictures();
  }), { class: "main", disabled: !may("engineer") });
  step("what", el("p", {}, t("teach.intro")), el("div", { class: "fields" }, el("label", {}, t("part.product"), choice), el("label", {}, t("line.camera"), cameras)), el("div", { class: "row" }, start));
}

function slots(learn) {
  const filled = pictures.map((digest, at) => {
    const remove = button(t("common.remove"), () => {
      pictures = pictures.filter((each) => each !== digest);
      slots(learn);
    });
    return el("li", {}, el("img", { src: `/api/v1/uploads/${encodeURIComponent(digest)}/picture?width=320`, alt: t("teach.picture", { n: at + 1 }) }), remove);
  });
  for (let at = pictures.length; at < NEEDED; at += 1) filled.push(el("li", {}, el("div", { class: "slot", "aria-hidden": "true" }, at + 1)));
  byId("slots").replaceChildren(...filled);
  say(byId("missing"), pictures.length >= NEEDED ? t("teach.enough") : t("teach.missing", { n: NEEDED - pictures.length }));
  learn.disabled = pictures.length < 1;
}

async function add(upload, learn) {
  const { digest } = await upload;
  if (pictures.includes(digest)) throw new Error(t("teach.same"));
  pictures.push(digest);
  slots(learn);
}

function takePictures() {
  const name = product.captures[capture]?.camera;
  const learn = button(t("teach.learn"), () => busy(learn, learnNow), { class: "main", disabled: true });
  const shoot = button(t("teach.shoot"), () => busy(shoot, () => add(send("POST", "/api/v1/uploads/camera", { camera: name }), learn)));
  const file = el("input", { type: "file", accept: "image/png,image/jpeg", multiple: true });
  file.addEventListener("change", () => busy(file, async () => {
    for (const each of file.files) await add(send("POST", "/api/v1/uploads", each), learn);
    file.value = "";
  }));
  const seen = new CameraView(name);
  step("pictures", el("div", { class: "shoot" }, seen.node,
    el("div", { class: "stack" }, el("p", {}, t("teach.advice")), el("p", { id: "missing", role: "status", class: "promise" }), el("ul", { class: "thumbs", id: "slots" }),
      el("div", { class: "row" }, shoot, el("kbd", {}, "C")), el("label", {}, t("teach.upload"), file), el("div", { class: "row" }, learn))));
  camera = seen;
  key("c", "teach.shoot", () => shoot.isConnected && shoot.click());
  slots(learn);
}

async function learnNow() {
  const progress = el("div");
  step("learn", el("p", {}, t("teach.learning")), progress);
  try {
    const job = await followed(await send("POST", "/api/v1/teach", { product: product.number, capture, pictures: pictures.map((upload) => ({ upload })) }), progress);
    done(job.result);
  } catch (error) {
    takePictures();
    throw error;
  }
}

function done(result) {
  const more = result.more_for_one_percent;
  step("done",
    el("p", { class: "promise" }, t("teach.taught", { name: product.name, generation: result.generation })),
    el("p", {}, promiseWords(result.promise)),
    more > 0 && el("p", { class: "note warn" }, t("teach.provisional", { n: number(more) })),
    el("div", { class: "row" }, el("a", { class: "button main", href: "/" }, t("teach.watch")), el("a", { class: "button", href: `/products/${product.number}` }, t("teach.see-product")),
      button(t("teach.again"), () => startAgain())));
}

async function startAgain() {
  chooseWhat(await get("/api/v1/products"));
}

byId("may-not").hidden = may("engineer");
startPage(async () => {
  // After a lost connection the pictures that were taken are still there.
  if (!pictures) await startAgain();
});
