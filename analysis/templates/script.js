"use strict";
(function () {
  const root = document.documentElement;
  root.classList.add("scripted");
  let made = 0;

  function element(name, properties, ...content) {
    const box = Object.assign(document.createElement(name), properties);
    box.append(...content);
    return box;
  }

  /* Sorting */

  function key(row, column, numeric) {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim().toLowerCase();
    return cell.dataset.sort === "" || cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  }

  // Cells that were not measured stay last, whichever way the column is sorted.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  }

  function sortBy(table, header, column) {
    const numeric = header.classList.contains("number");
    const before = header.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : numeric;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, key: key(row, column, numeric) }));
    rows.sort((a, b) => compare(a.key, b.key, descending ? -1 : 1));
    body.append(...rows.map((one) => one.row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }

  /* Long tables: the rows that are searched for, or the first ones with a button for the rest */

  // The text of a row with the long names behind its short ones.
  function wordsOf(row) {
    const titles = Array.from(row.querySelectorAll("[title]"), (cell) => cell.title);
    return [row.textContent, ...titles].join(" ").replace(/\s+/g, " ").toLowerCase();
  }

  function shorten(table) {
    const rows = table.tBodies[0].rows, all = rows.length, scroll = table.closest(".scroll");
    const top = Number(table.dataset.top) || all, known = new Map();
    let whole = false, wanted = [];
    const button = element("button", { type: "button", className: "more" });
    const count = element("output", { className: "count" });

    function isWanted(row) {
      if (!known.has(row)) known.set(row, wordsOf(row));
      return wanted.every((word) => known.get(row).includes(word));
    }

    function update() {
      let found = 0;
      Array.from(rows).forEach((row, place) => {
        const fits = !wanted.length || isWanted(row);
        found += fits;
        row.hidden = !fits || (!wanted.length && !whole && place >= top);
      });
      count.textContent = wanted.length ? `${found} of ${all} rows` : "";
      button.textContent = whole ? `Show the first ${top}` : `Show all ${all} rows`;
      button.setAttribute("aria-expanded", String(whole));
      button.hidden = wanted.length > 0 || top >= all;
    }

    if (table.dataset.searched !== undefined) {
      const id = `search-${++made}`;
      const input = element("input", { id, type: "search", autocomplete: "off", spellcheck: false });
      const caption = table.caption.textContent.trim();
      const label = element("label", { htmlFor: id }, "Search", element("span", { className: "unseen" }, ` in: ${caption}`));
      count.setAttribute("for", id);
      count.setAttribute("aria-live", "polite");
      input.addEventListener("input", () => {
        wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        update();
      });
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || !input.value) return;
        event.preventDefault();
        input.value = "";
        wanted = [];
        update();
      });
      scroll.before(element("div", { className: "search" }, label, input, count));
    }
    button.addEventListener("click", () => {
      whole = !whole;
      update();
      if (!whole) scroll.scrollIntoView({ block: "nearest" });
    });
    scroll.after(button);
    update();
    return update;
  }

  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    const long = table.dataset.top !== undefined || table.dataset.searched !== undefined;
    const update = long ? shorten(table) : () => {};
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      if (header.tagName !== "TH") return;
      const button = element("button", { type: "button" }, ...header.childNodes);
      button.addEventListener("click", () => {
        sortBy(table, header, column);
        update();
      });
      header.append(button);
    });
  }

  /* Theme */

  const select = document.getElementById("theme");
  select.value = root.dataset.theme || "auto";
  select.closest("[hidden]").hidden = false;
  select.addEventListener("change", () => {
    if (select.value === "auto") delete root.dataset.theme;
    else root.dataset.theme = select.value;
    try {
      localStorage.setItem("launchgap-theme", select.value);
    } catch { /* then the choice lasts as long as the page */ }
  });

  /* Contents: unfolded where there is room beside the text; sections of the case that is on the screen */

  const contents = document.querySelector(".contents details"), wide = matchMedia("(min-width: 1360px)");
  const fold = () => { contents.open = wide.matches; };
  fold();
  wide.addEventListener("change", fold);
  const links = Array.from(contents.querySelectorAll("a"), (link) => ({ link, title: document.getElementById(link.hash.slice(1)) }));
  const cases = contents.querySelectorAll(".of-case");

  function mark(current) {
    for (const { link } of links) link.removeAttribute("aria-current");
    current.setAttribute("aria-current", "true");
    for (const one of cases) one.classList.toggle("current", cases.length < 2 || one.contains(current));
  }

  // The last title above the upper third of the window.
  function follow() {
    const above = links.filter(({ title }) => title.getBoundingClientRect().top < innerHeight / 3);
    mark((above.at(-1) || links[0]).link);
  }

  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      follow();
    });
  }, { passive: true });
  follow();
  contents.addEventListener("click", (event) => {
    if (event.target.tagName === "A" && !wide.matches) contents.open = false;
  });

  // A printed page cannot be clicked. Tables that only repeat others by strategy stay folded.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.printed")) details.open = true;
  });
})();
