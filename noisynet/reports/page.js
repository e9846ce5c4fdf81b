"use strict";
// The button of a heading sorts by its column, and reverses the order when pressed again. Rows without
// a number, such as wins/ties/losses, stay at the end.
const valueOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
};

const compare = (column, numeric, direction) => (a, b) => {
  if (!numeric) {
    const texts = [a, b].map((row) => row.cells[column].textContent);
    return direction * texts[0].localeCompare(texts[1], "en", { numeric: true });
  }
  const [x, y] = [valueOf(a, column), valueOf(b, column)];
  if (x === null || y === null) return (x === null) - (y === null);
  return direction * (x - y);
};

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const body = table.tBodies[0];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const rows = [...body.rows];
      const numeric = rows.some((row) => valueOf(row, column) !== null);
      const before = heading.getAttribute("aria-sort");
      // Text sorts from A, numbers from the largest.
      const first = numeric ? "descending" : "ascending";
      const other = numeric ? "ascending" : "descending";
      const order = before === first ? other : first;
      headings.forEach((one) => one.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", order);
      rows.sort(compare(column, numeric, order === "ascending" ? 1 : -1));
      body.append(...rows);
      document.getElementById("sorted").textContent =
        `sorted by ${heading.textContent.trim()}, ${order}`;
    });
  });
}
