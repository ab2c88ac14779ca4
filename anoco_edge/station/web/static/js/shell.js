// What every page does: the bar with state and connection, menu, language, theme, keys and messages.

import { all, byId, el, say } from "./dom.js";
import { get, may, send } from "./api.js";
import { startKeys } from "./keys.js";
import { live } from "./live.js";
import { sign } from "./signs.js";
import { known, t, time } from "./text.js";

const YEAR = 31536000;

/** Show a line at the lower edge; an alarm stays until it is closed. */
export function toast(text, alarm = false) {
  const place = byId(alarm ? "alarms" : "toasts");
  // An alarm that stands there already is not repeated: the newest one replaces it.
  for (const each of [...place.children]) if (alarm && each.querySelector("span").textContent === text) each.remove();
  const line = el("div", { class: alarm ? "toast alarm" : "toast" }, alarm && sign("anomalous"), el("span", {}, text));
  if (alarm) {
    const close = el("button", { type: "button", class: "bare", "aria-label": t("common.close") }, "×");
    close.addEventListener("click", () => line.remove());
    line.append(close);
  } else setTimeout(() => line.remove(), 6000);
  place.append(line);
}

/** Call an action; what goes wrong is shown and returned as undefined. */
export async function tried(action) {
  try {
    return await action();
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, true);
    return undefined;
  }
}

/** Disable a control while its action runs, so that nothing is sent twice. */
export async function busy(control, action) {
  if (control.disabled) return undefined;
  control.disabled = true;
  try {
    return await tried(action);
  } finally {
    control.disabled = false;
  }
}

const ALARMS = { Error: "alarm", Halted: "alarm" };

/** Return the word and kind of the chip that says how the line is. */
export function lineState(state) {
  const bits = new Set(state.bits ?? []);
  if (state.connected === false) return ["lost", "alarm"];
  if (bits.has("MAINTENANCE")) return ["paused", "warn"];
  if (bits.has("FAULT")) return ["fault", "alarm"];
  if (ALARMS[state.state]) return [state.state, ALARMS[state.state]];
  // Between two parts READY is low while a result waits for its acknowledgment.
  if (["READY", "BUSY", "RESULT_VALID"].some((bit) => bits.has(bit))) return ["running", bits.has("WARNING") ? "warn" : ""];
  return [state.state ?? "unknown", ""];
}

function showState(state) {
  const [word, kind] = lineState(state);
  const chip = byId("line-state");
  chip.className = `chip ${kind}`;
  chip.replaceChildren(sign(kind === "alarm" ? "anomalous" : kind === "warn" ? "no-verdict" : "on"), el("span", {}, known(`state.${word}`, word)));
  say(byId("line-name"), state.name ?? "");
  const product = state.product;
  say(byId("line-product"), product ? t("common.product-generation", { name: product.name, generation: product.generation }) : t("common.no-product"));
  byId("simulated").hidden = !(state.bits ?? []).includes("SIMULATED");
}

function cookie(name, value) {
  document.cookie = value ? `${name}=${value}; path=/; max-age=${YEAR}; samesite=strict` : `${name}=; path=/; max-age=0; samesite=strict`;
}

function startMenu() {
  const dark = byId("dark-colors");
  const chosen = () => document.documentElement.dataset.theme ?? "";
  const paint = () => {
    dark.media = { dark: "all", light: "not all" }[chosen()] ?? "(prefers-color-scheme: dark)";
    for (const each of all("[data-theme-choice]")) each.setAttribute("aria-pressed", String(each.dataset.themeChoice === chosen()));
    document.dispatchEvent(new Event("repaint"));
  };
  for (const each of all("[data-theme-choice]")) {
    each.addEventListener("click", () => {
      cookie("theme", each.dataset.themeChoice);
      if (each.dataset.themeChoice) document.documentElement.dataset.theme = each.dataset.themeChoice;
      else delete document.documentElement.dataset.theme;
      paint();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("repaint")));
  for (const each of all("[data-lang-choice]")) {
    each.addEventListener("click", () => {
      cookie("lang", each.dataset.langChoice);
      location.reload();
    });
  }
  const menu = document.querySelector("details.menu");
  menu?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (menu?.open && !menu.contains(event.target)) menu.open = false;
  });
  byId("log-out")?.addEventListener("click", () => tried(async () => {
    await send("DELETE", "/api/v1/session");
    location.assign("/login");
  }));
}

function startConnection() {
  const strip = byId("lost");
  let timer = 0;
  live.addEventListener("state", ({ detail }) => showState(detail));
  live.addEventListener("down", () => {
    clearTimeout(timer);
    // A page that is being left or reconnects at once needs no warning.
    timer = setTimeout(() => {
      document.body.dataset.lost = "";
      strip.hidden = false;
      say(byId("lost-text"), t("common.lost", { time: live.lastHeard ? time(live.lastHeard.toISOString()) : "–" }));
    }, 700);
  });
  live.addEventListener("up", () => {
    clearTimeout(timer);
    delete document.body.dataset.lost;
    strip.hidden = true;
  });
  live.addEventListener("log", ({ detail }) => {
    if (detail.level === "error") toast(detail.text, true);
  });
  live.start();
}

/** Start the frame of a page; `refresh` fetches all that the page shows, now and after every gap. */
export function startPage(refresh = () => {}) {
  startMenu();
  for (const each of all("[data-needs]")) each.hidden = !may(each.dataset.needs);
  if (!byId("line-state")) return;
  startKeys();
  let first = true;
  live.addEventListener("up", () => {
    if (!first) tried(refresh);
    first = false;
  });
  tried(async () => showState(await get("/api/v1/state")));
  tried(refresh);
  startConnection();
}
