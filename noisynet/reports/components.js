"use strict";
// What the pages of the report and of the dashboard have in common: tables that sort, and curves
// that show their values.

const valueOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
};

const isNumeric = (rows, column) => rows.some((row) => valueOf(row, column) !== null);

// Rows without a number, such as wins/ties/losses, stay at the end.
const compare = (column, numeric, direction) => (a, b) => {
  if (!numeric) {
    const texts = [a, b].map((row) => row.cells[column].textContent);
    return direction * texts[0].localeCompare(texts[1], "en", { numeric: true });
  }
  const [x, y] = [valueOf(a, column), valueOf(b, column)];
  if (x === null || y === null) return (x === null) - (y === null);
  return direction * (x - y);
};

const headingsOf = (table) => [...table.tHead.rows[table.tHead.rows.length - 1].cells];

// Sorts a table by the heading with an order. Rows are moved only if they have to: that takes the focus.
const sortTable = (table) => {
  const orders = headingsOf(table).map((heading) => heading.getAttribute("aria-sort"));
  const column = orders.findIndex((order) => order && order !== "none");
  if (column < 0) return;
  const before = [...table.tBodies[0].rows];
  const direction = orders[column] === "ascending" ? 1 : -1;
  const rows = [...before].sort(compare(column, isNumeric(before, column), direction));
  if (rows.every((row, index) => row === before[index])) return;
  const focused = document.activeElement;
  table.tBodies[0].append(...rows);
  if (table.contains(focused)) focused.focus({ preventScroll: true });
};

// The button of a heading sorts by its column, and reverses the order when pressed again.
const makeSortable = (table, announce) => {
  const headings = headingsOf(table);
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      // Text sorts from A, numbers from the largest.
      const orders = ["ascending", "descending"];
      if (isNumeric([...table.tBodies[0].rows], column)) orders.reverse();
      const order = orders[heading.getAttribute("aria-sort") === orders[0] ? 1 : 0];
      headings.forEach((one) => one.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", order);
      sortTable(table);
      announce.textContent = `sorted by ${heading.textContent.trim()}, ${order}`;
    });
  });
};

const tipRow = (text, colour) => {
  const line = document.createElement("div");
  if (colour) {
    const mark = document.createElement("span");
    mark.className = "swatch";
    mark.style.background = colour;
    line.append(mark);
  }
  line.append(text);
  return line;
};

// The pointer over a curve, or the arrow keys, show the values of every line of a panel at the nearest x.
// `plot.curves` has `x`, the `unit` of x, and `panels`: each its `box` within the plot as fractions (left,
// top, width, height), the `range` of its x axis, a `title` and `lines` with name, colour and y.
const showValues = (plot, tip) => {
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  cursor.hidden = true;
  plot.append(cursor);
  let shown = null; // the panel and the index of x
  const hide = () => { tip.hidden = cursor.hidden = true; shown = null; };
  const known = (panel, i) => panel.lines.some((line) => line.y[i] !== null);
  const show = (number, index, clientX, clientY) => {
    const { x, unit = "frames", panels } = plot.curves;
    const panel = panels[number];
    const [l, t, w, h] = panel.box;
    const [low, high] = panel.range;
    const title = `${panel.title ? `${panel.title}, ` : ""}${x[index].toLocaleString("en")} ${unit}`;
    tip.replaceChildren(tipRow(title), ...panel.lines.filter((line) => line.y[index] !== null).map((line) =>
      tipRow(`${line.name}: ${line.y[index].toLocaleString("en", { maximumSignificantDigits: 4 })}`, line.colour)));
    const at = l + (w * (x[index] - low)) / (high - low || 1);
    cursor.style.cssText = `left:${100 * at}%;top:${100 * t}%;height:${100 * h}%`;
    tip.hidden = cursor.hidden = false;
    shown = { number, index };
    const area = plot.getBoundingClientRect();
    const [left, top] = [clientX ?? area.left + at * area.width, clientY ?? area.top + t * area.height];
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(0, Math.min(left + 14, room)) + window.scrollX}px`;
    tip.style.top = `${top + 16 + window.scrollY}px`;
  };
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("pointermove", (event) => {
    const { x, panels } = plot.curves;
    const area = plot.getBoundingClientRect();
    const [left, top] = [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
    const number = panels.findIndex(({ box: [l, t, w, h] }) => left >= l && left <= l + w && top >= t && top <= t + h);
    if (number < 0) return hide();
    const { box: [l, , w], range: [low, high] } = panels[number];
    const wanted = low + ((left - l) / w) * (high - low);
    let nearest = -1;
    x.forEach((at, i) => {
      if (!known(panels[number], i)) return;
      if (nearest < 0 || Math.abs(at - wanted) < Math.abs(x[nearest] - wanted)) nearest = i;
    });
    return nearest < 0 ? hide() : show(number, nearest, event.clientX, event.clientY);
  });
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return undefined;
    event.preventDefault();
    // Every value of every panel, one after the other; the first key press shows the newest.
    const points = plot.curves.panels.flatMap((panel, number) =>
      plot.curves.x.map((_, index) => ({ number, index })).filter(({ index }) => known(panel, index)));
    if (!points.length) return undefined;
    const now = points.findIndex((one) => shown && one.number === shown.number && one.index === shown.index);
    const next = now < 0 ? points.length - 1 : Math.max(0, Math.min(points.length - 1, now + step));
    return show(points[next].number, points[next].index);
  });
};
