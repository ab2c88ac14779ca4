"use strict";
(() => {
  const body = document.querySelector("tbody");
  const original = [...body.rows];
  const headings = [...document.querySelectorAll("th[data-key]")];
  const buttons = [...document.querySelectorAll("[data-show]")];
  const rest = document.querySelector(".rest");
  const FIRST = 300;  // laying out thousands of rows takes seconds on a slow machine
  let everything = false;
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  let moved = false;  // as long as the rows stand as written, thousands of them need not be touched
  const state = { key: "", down: false, show: "all" };

  function sortRows() {
    const heading = headings.find((h) => h.dataset.key === state.key);
    for (const h of headings) {
      h.setAttribute("aria-sort", h !== heading ? "none" : state.down ? "descending" : "ascending");
    }
    let rows = original;
    if (!heading && !moved) return;
    if (heading) {
      moved = true;
      const column = heading.cellIndex;
      const numeric = heading.dataset.type === "number";
      const keyed = original.map((row) => {
        const raw = row.cells[column].dataset.v;
        return { row, empty: raw === "", value: numeric ? Number(raw) : raw };
      });
      const order = (a, b) => (numeric ? a.value - b.value : words.compare(a.value, b.value));
      keyed.sort((a, b) => {
        if (a.empty || b.empty) return a.empty - b.empty;
        return state.down ? order(b, a) : order(a, b);
      });
      rows = keyed.map((k) => k.row);
    }
    body.append(...rows);
  }

  function filterRows() {
    if (!buttons.some((b) => b.dataset.show === state.show)) state.show = "all";
    let count = 0;
    for (const row of [...body.rows]) {
      row.hidden = state.show !== "all" && row.dataset.verdict !== state.show;
      if (!row.hidden) count += 1;
      row.classList.toggle("more", !everything && !row.hidden && count > FIRST);
    }
    rest.hidden = everything || count <= FIRST;
    rest.textContent = `Show all ${count} pictures`;
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.show === state.show));
  }

  function remember() {
    const parts = [];
    if (state.key) parts.push(`sort=${state.key}-${state.down ? "desc" : "asc"}`);
    if (state.show !== "all") parts.push(`show=${state.show}`);
    try {
      history.replaceState(null, "", "#" + parts.join("&"));
    } catch {
      // A viewer that forbids it (a mail preview) only loses the shareable address.
    }
  }

  function readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const match = /^([a-z]+)-(asc|desc)$/.exec(wanted.get("sort") || "");
    state.key = match ? match[1] : "";
    state.down = match !== null && match[2] === "desc";
    state.show = wanted.get("show") || "all";
    sortRows();
    filterRows();
  }

  for (const h of headings) {
    h.querySelector("button").addEventListener("click", () => {
      // The first click on a number shows the largest first: that is what one looks for.
      state.down = state.key === h.dataset.key ? !state.down : h.dataset.type === "number";
      state.key = h.dataset.key;
      sortRows();
      filterRows();
      remember();
    });
  }
  for (const b of buttons) {
    b.addEventListener("click", () => {
      state.show = b.dataset.show;
      filterRows();
      remember();
    });
  }
  rest.addEventListener("click", () => {
    everything = true;
    filterRows();
  });
  addEventListener("hashchange", readAddress);

  const box = document.querySelector("dialog");
  let current = null;

  function show(link) {
    current = link;
    const cells = link.closest("tr").cells;
    box.querySelector("img").src = link.href;
    box.querySelector("img").alt = cells[2].dataset.v;
    box.querySelector("p").textContent = `${cells[2].dataset.v}  \u2013  ${cells[3].textContent}`;
    if (!box.open) box.showModal();
  }

  function step(by) {
    const links = [...body.querySelectorAll("tr:not([hidden]) a.open")];
    const next = links[links.indexOf(current) + by];
    if (next) show(next);
  }

  body.addEventListener("click", (event) => {
    const link = event.target.closest("a.open");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(link);
  });
  box.addEventListener("click", (event) => {
    if (event.target.matches(".back")) step(-1);
    else if (event.target.matches(".next")) step(1);
    else if (event.target === box || event.target.matches(".close")) box.close();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
  });
  box.addEventListener("close", () => {
    box.querySelector("img").removeAttribute("src");
    if (current) current.focus();
  });

  readAddress();
})();
