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

// A pointer over a curve shows the values of every line of that panel at the nearest evaluation.
const tip = document.getElementById("tip");

const row = (text, colour) => {
  const line = document.createElement("div");
  if (colour) {
    const mark = document.createElement("span");
    mark.style.background = colour;
    line.append(mark);
  }
  line.append(text);
  return line;
};

for (const plot of document.querySelectorAll(".plot[data-curves]")) {
  const { x, panels } = JSON.parse(plot.dataset.curves);
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  cursor.hidden = true;
  plot.append(cursor);
  const hide = () => { tip.hidden = cursor.hidden = true; };
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("pointermove", (event) => {
    const area = plot.getBoundingClientRect();
    const [left, top] = [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
    const panel = panels.find(({ box: [l, t, w, h] }) => left >= l && left <= l + w && top >= t && top <= t + h);
    if (!panel) return hide();
    const [l, t, w, h] = panel.box;
    const [low, high] = panel.range;
    const frames = low + ((left - l) / w) * (high - low);
    let nearest = -1;
    x.forEach((at, i) => {
      const known = panel.lines.some((line) => line.y[i] !== null);
      if (known && (nearest < 0 || Math.abs(at - frames) < Math.abs(x[nearest] - frames))) nearest = i;
    });
    if (nearest < 0) return hide();
    const shown = panel.lines.filter((line) => line.y[nearest] !== null);
    const title = `${panel.title ? `${panel.title}, ` : ""}${x[nearest].toLocaleString("en")} frames`;
    tip.replaceChildren(row(title), ...shown.map((line) =>
      row(`${line.name}: ${line.y[nearest].toLocaleString("en", { maximumSignificantDigits: 4 })}`, line.colour)));
    const at = l + (w * (x[nearest] - low)) / (high - low);
    cursor.style.cssText = `left:${100 * at}%;top:${100 * t}%;height:${100 * h}%`;
    tip.hidden = cursor.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, room)) + window.scrollX}px`;
    tip.style.top = `${event.clientY + 16 + window.scrollY}px`;
  });
}
