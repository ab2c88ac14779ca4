// Keys of the page, and the dialog that lists them on "?". Keys never act while somebody types.

import { byId, el } from "./dom.js";
import { t } from "./text.js";

const bound = new Map();
const ARROWS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const typing = (target) => target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]") !== null;

/**
 * Bind a key (as KeyboardEvent.key, letters in lower case) to an action; `text` is a key of the texts.
 * `shown` names it in the help; `dialog` is the dialog that must be open, otherwise none may be.
 */
export function key(name, text, action, { shown = ARROWS[name] ?? name, dialog = null } = {}) {
  bound.set(dialog ? `${dialog} ${name}` : name, { text, action, shown, dialog });
}

const row = ({ shown, text }) => el("tr", {}, el("td", {}, shown.split(" ").map((one) => [el("kbd", {}, one), " "])), el("td", {}, t(text)));

// The same key may mean one thing in the page and another in the dialog of a part.
function list() {
  const once = (keys) => [...new Map(keys.map((each) => [each.shown, each])).values()].map(row);
  const all = [...bound.values()];
  const inDialog = once(all.filter((each) => each.dialog));
  const heading = inDialog.length > 0 && el("tr", {}, el("th", { colspan: 2, scope: "rowgroup" }, t("key.in-part")));
  byId("help-keys").replaceChildren(...[...once(all.filter((each) => !each.dialog)), heading, ...inDialog].filter(Boolean));
}

export function startKeys() {
  const dialog = byId("help");
  const open = () => {
    list();
    dialog.showModal();
  };
  key("?", "key.help", open);
  byId("open-help")?.addEventListener("click", open);
  const pages = { 1: "/", 2: "/rejects", 3: "/history", 4: "/products", 5: "/teach", 6: "/line", 7: "/system" };
  for (const [name, path] of Object.entries(pages)) key(name, "key.pages", () => location.assign(path), { shown: "1 … 7" });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event.target)) return;
    const modal = document.querySelector("dialog[open]");
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const found = bound.get(modal ? `${modal.id} ${name}` : name);
    if (!found) return;
    event.preventDefault();
    found.action(event);
  });
}
