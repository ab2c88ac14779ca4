// The words of this page in the reader's language; the server puts them into the body's data-t.

const WORDS = JSON.parse(document.body.dataset.t);
const LANGUAGE = document.documentElement.lang;

/** Return the text of a key with {name} replaced by values. A missing key shows itself. */
export const t = (key, values = {}) => (WORDS[key] ?? key).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** Return the text of a key, or `otherwise` where there is none. */
export const known = (key, otherwise) => WORDS[key] ?? otherwise;

const numbers = new Map();

/** Write a number as the language does, with this many digits after the point. */
export function number(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  if (!numbers.has(digits)) numbers.set(digits, new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: digits, minimumFractionDigits: digits }));
  return numbers.get(digits).format(value);
}

/** Write a fraction as a percentage; small ones keep two digits that mean something. */
export function percent(fraction, digits) {
  if (fraction === null || fraction === undefined || !Number.isFinite(fraction)) return "–";
  const size = Math.abs(fraction * 100);
  return `${number(fraction * 100, digits ?? (size >= 10 || size === 0 ? 1 : 2))}\u00a0%`;
}

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const day = new Intl.DateTimeFormat(LANGUAGE, { year: "numeric", month: "short", day: "numeric", ...TIME });
const clock = new Intl.DateTimeFormat(LANGUAGE, TIME);
const short = new Intl.DateTimeFormat(LANGUAGE, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const date = new Intl.DateTimeFormat(LANGUAGE, { month: "short", day: "numeric" });
const moment = (at) => new Date(typeof at === "number" ? at * 1000 : at);

/** Write a moment with its date; seconds since the epoch or ISO text. */
export const when = (at) => (at === null || at === undefined || at === "" ? "–" : day.format(moment(at)));

/** Write the time of day of a moment. */
export const time = (at) => (at === null || at === undefined || at === "" ? "–" : clock.format(moment(at)));

/** Write the marks of a time axis: those of several days with the day, those within minutes with seconds. */
export function axisTimes(seconds) {
  const form = seconds.at(-1) - seconds[0] > 2 * 86400 ? date : seconds[1] - seconds[0] < 60 ? clock : short;
  return seconds.map((at) => form.format(at * 1000));
}

/** Write a figure that was estimated: two digits say enough. */
export const rough = (value) => new Intl.NumberFormat(LANGUAGE, { maximumSignificantDigits: 2 }).format(value);

/** Write a score as multiple of its threshold. */
export const ratio = (value) => (value === null || value === undefined ? "–" : `${number(value, 2)}\u00a0×`);

/** Write why a part has no verdict in the reader's words, the code behind it if it is unknown. */
export const reason = (code) => (!code || code === "NONE" ? "" : known(`reason.${code}`, code));
