"use strict";
(function () {
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

  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      if (header.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sortBy(table, header, column));
      header.append(button);
    });
  }

  // A printed page cannot be clicked. Tables that only repeat others by strategy stay folded.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.printed")) details.open = true;
  });
})();
