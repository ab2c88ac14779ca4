// Elements are made here and nowhere from text: what comes from data becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

/** Make an HTML element; null and false attributes and children are left out. */
export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** Make an SVG element. */
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/** Make a button that calls `action`. */
export function button(label, action, attributes = {}) {
  const made = el("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", action);
  return made;
}

/** Set the text of an element if it differs, so that screen readers are not told twice. */
export function say(node, text) {
  if (node && node.textContent !== String(text)) node.textContent = String(text);
}

/** Make a table with a caption; a cell is a text, a node or {value, class}. */
export function table(caption, heads, rows) {
  const cell = (tag, value) => {
    const plain = value === null || value === undefined || value instanceof Node || typeof value !== "object";
    if (value === "") return el("td"); // a column of buttons has no heading
    return el(tag, plain ? { scope: tag === "th" ? "col" : null } : { class: value.class, scope: tag === "th" ? "col" : null }, plain ? value : value.value);
  };
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.map((head) => cell("th", head)))),
      el("tbody", {}, rows.map((row) => (row instanceof Node ? row : el("tr", {}, row.map((value) => cell("td", value))))))));
}

/** Wait until nothing has called for `ms`, then call once with the last arguments. */
export function settled(action, ms) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), ms);
  };
}
