// Page 7: health in plain words, users, tokens, audit, jobs, backup.

import { byId, button, el, table } from "../dom.js";
import { get, may, query, send } from "../api.js";
import { busy, lineState, startPage, toast, tried } from "../shell.js";
import { sign } from "../signs.js";
import { known, number, percent, t, when } from "../text.js";

let nextAudit = null;
const entries = [];

function check(name, ok, detail) {
  return el("div", { class: `note ${ok ? "" : "alarm"} row` }, el("span", { class: `verdict ${ok ? "good" : "anomalous"}` }, sign(ok ? "good" : "anomalous"), t(ok ? "system.fine" : "system.wrong")),
    el("b", {}, name), el("span", { class: "name" }, detail ?? ""));
}

async function showHealth() {
  const state = await get("/api/v1/state");
  const [word, kind] = lineState(state);
  byId("health").replaceChildren(
    check(t("page.line"), kind !== "alarm", known(`state.${word}`, word)),
    ...(state.cameras ?? []).map((camera) => check(t("system.camera", { name: camera.name }), camera.up, camera.source)),
    ...(state.warnings ?? []).map((text) => el("div", { class: "note warn row" }, el("span", { class: "verdict no-verdict" }, sign("no-verdict"), t("system.warning")), el("span", { class: "name" }, text))),
  );
}

function remove(path, name, again) {
  const made = button(t("common.remove"), () => busy(made, async () => {
    if (made.dataset.sure === undefined) {
      made.dataset.sure = "";
      made.textContent = t("common.sure");
      setTimeout(() => {
        delete made.dataset.sure;
        made.textContent = t("common.remove");
      }, 4000);
      return;
    }
    await send("DELETE", path);
    await again();
  }), { "aria-label": t("system.remove", { name }) });
  return made;
}

async function showUsers() {
  const users = await get("/api/v1/users");
  byId("users").replaceChildren(table(t("system.users"), [t("login.name"), t("system.role"), t("login.pin"), ""], users.map((user) => [
    { value: user.name, class: "name" }, t(`role.${user.role}`), ["viewer", "operator"].includes(user.role) ? setPin(user.name) : "", user.name === document.body.dataset.user ? t("system.you") : remove(`/api/v1/users/${encodeURIComponent(user.name)}`, user.name, showUsers)])));
}

async function showTokens() {
  const tokens = await get("/api/v1/tokens");
  byId("tokens").replaceChildren(tokens.length ? table(t("system.tokens"), [t("login.name"), t("system.scope"), t("system.last-used"), ""], tokens.map((token) => [
    { value: token.name, class: "name" }, known(`role.${token.scope}`, token.scope), token.used ? when(token.used) : t("system.never"),
    remove(`/api/v1/tokens/${encodeURIComponent(token.id)}`, token.name, showTokens)])) : el("p", { class: "quiet" }, t("system.no-tokens")));
}

async function showAudit(more = false) {
  const answer = await get(query("/api/v1/audit", { before: more ? nextAudit : "", limit: 50 }));
  if (!more) entries.length = 0;
  entries.push(...answer.items);
  nextAudit = answer.next;
  byId("more-audit").hidden = !nextAudit;
  const { holds, entries: count, broken_at: at } = await get("/api/v1/audit/check");
  byId("audit-state").replaceChildren(el("span", { class: `verdict ${holds ? "good" : "anomalous"}` }, sign(holds ? "good" : "anomalous"),
    holds ? t("system.chain-whole", { entries: number(count) }) : t("system.chain-broken", { at: at ?? "" })));
  byId("audit").replaceChildren(table(t("system.audit"), [t("part.at"), t("system.user"), t("system.action"), t("system.subject"), t("system.details")], entries.map((entry) => [
    when(entry.at), { value: entry.user, class: "name" }, { value: entry.action, class: "name" }, { value: entry.subject, class: "name" },
    { value: entry.details === "{}" ? "" : entry.details, class: "name small" }])));
}

// What a job is doing is of interest while it runs, and later why it failed.
const jobWords = ({ state, note, problem }) => (state === "running" ? note : problem?.detail) ?? "";

async function showJobs() {
  const jobs = await get(query("/api/v1/jobs", { limit: 8 }));
  byId("jobs").replaceChildren(jobs.length ? table(t("system.jobs"), [t("system.job"), t("system.state"), { value: t("job.progress"), class: "num" }, t("system.details")], jobs.map((job) => [
    known(`job-kind.${job.kind}`, job.kind), t(`job.${job.state}`), { value: percent(job.progress, 0), class: "num" }, { value: jobWords(job), class: "name" }])) : el("p", { class: "quiet" }, t("system.no-jobs")));
}

async function showBrowsers() {
  const browsers = await get("/api/v1/browsers");
  byId("browsers").replaceChildren(browsers.length ? table(t("system.browser"), [t("login.name"), t("part.at"), ""], browsers.map((each) => [
    { value: each.label, class: "name" }, when(each.made), remove(`/api/v1/browsers/${encodeURIComponent(each.id)}`, each.label, showBrowsers)])) : el("p", { class: "quiet" }, t("system.no-browsers")));
}

function setPin(name) {
  const field = el("input", { type: "password", inputmode: "numeric", autocomplete: "off", "aria-label": t("system.new-pin", { name }) });
  const form = el("form", { class: "pin" }, field, el("button", {}, t("system.set-pin")));
  onSubmit(form, async () => {
    await send("PUT", `/api/v1/users/${encodeURIComponent(name)}/pin`, { pin: field.value || null });
    toast(t("system.pin-set", { name }));
  });
  return form;
}

function onSubmit(form, action) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(form.querySelector("button"), async () => {
      await action(Object.fromEntries(new FormData(form)));
      form.reset();
    });
  });
}

onSubmit(byId("new-user"), async (values) => {
  await send("POST", "/api/v1/users", values);
  await showUsers();
});
onSubmit(byId("new-token"), async ({ name, scope }) => {
  const made = await send("POST", "/api/v1/tokens", { name, scope, days: null });
  byId("token-once").replaceChildren(el("p", { class: "note stack" }, t("system.token-once"), el("code", { class: "name" }, made.token)));
  await showTokens();
});
byId("more-audit").addEventListener("click", () => tried(() => showAudit(true)));
onSubmit(byId("enroll"), async (values) => {
  await send("POST", "/api/v1/browsers", values);
  toast(t("system.enrolled"));
  if (may("admin")) await showBrowsers();
});
startPage(() => Promise.all([
  showHealth(), showJobs(), may("admin") && showAudit(), may("admin") && showUsers(), may("admin") && showTokens(), may("admin") && showBrowsers(),
]));
