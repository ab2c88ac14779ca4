// Requests to /api/v1. A failed one throws a Problem whose message is what the operator reads.

import { known, t } from "./text.js";

const CSRF = document.querySelector("meta[name=csrf]")?.content ?? "";
const ROLES = ["viewer", "operator", "engineer", "admin"];
const role = document.body.dataset.role;

/** Whether the person who is logged in may do what needs this role. */
export const may = (needed) => ROLES.indexOf(role) >= ROLES.indexOf(needed);

export class Problem extends Error {
  constructor(status, title, detail) {
    super([title, detail].filter(Boolean).join(": "));
    this.status = status;
  }
}

async function problem(answer) {
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // An answer without JSON comes from a proxy in between; the status says enough.
  }
  const detail = [body.detail, body.hint].filter((each) => typeof each === "string" && each).join("; ");
  return new Problem(answer.status, known(`problem.${answer.status}`, body.title ?? t("problem.other", { status: answer.status })), detail);
}

/** Send a request and return its JSON, or null where the answer is empty. */
export async function send(method, path, body, { etag, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Anoco-CSRF"] = CSRF;
  if (etag !== undefined && etag !== null) headers["If-Match"] = `"${etag}"`;
  let content = body;
  if (body !== undefined && !(body instanceof Blob)) {
    headers["Content-Type"] = "application/json";
    content = JSON.stringify(body);
  } else if (body instanceof Blob && body.type) headers["Content-Type"] = body.type;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: content, signal, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, t("problem.network"), "");
  }
  if (answer.status === 401 && !/^\/(login|setup)$/.test(location.pathname)) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  if (!answer.ok) throw await problem(answer);
  const type = answer.headers.get("Content-Type") ?? "";
  return type.includes("json") ? answer.json() : null;
}

export const get = (path, options) => send("GET", path, undefined, options);

/** Return a path with the values that are neither empty nor missing as its query. */
export function query(path, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Follow a job until it has ended and return its last state; `show` gets every state. */
export async function finished(job, show = () => {}) {
  let now = job;
  for (let wait = 150; ; wait = Math.min(wait * 1.5, 1000)) {
    show(now);
    if (now.state === "failed" || now.state === "cancelled") throw new Problem(0, t("job.failed"), [now.problem?.detail, now.problem?.hint].filter(Boolean).join("; "));
    if (now.state === "done") return now;
    await pause(wait);
    now = await get(`/api/v1/jobs/${encodeURIComponent(now.id)}`);
  }
}

/** Send a change and wait until it is made; the station answers before that if it takes long. */
export async function changed(method, path, body, options) {
  const job = await send(method, path, body, options);
  return job?.state ? finished(job) : job;
}

export const paths = {
  part: (uid) => `/api/v1/parts/${encodeURIComponent(uid)}`,
  picture: (uid, capture, width) => query(`/api/v1/parts/${encodeURIComponent(uid)}/captures/${capture}/picture`, { width }),
  explanation: (uid, capture) => `/api/v1/parts/${encodeURIComponent(uid)}/captures/${capture}/explanation`,
  capture: (product, capture) => `/api/v1/products/${product}/captures/${capture}`,
  reference: (product, capture, digest) => `/api/v1/products/${product}/captures/${capture}/reference/${encodeURIComponent(digest)}`,
};
