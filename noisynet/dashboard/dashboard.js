"use strict";
// Names, settings and logs come from run folders: they only ever become text nodes.

const view = document.getElementById("view");
const connection = document.getElementById("connection");
const tip = document.getElementById("tip");

const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// --- numbers -----------------------------------------------------------------------------------------

const count = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 0 }));
const measure = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
const short = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
const bytes = (value) => (value < 1e6 ? `${Math.ceil(value / 1e3)} kB` : `${measure(Math.round(value / 1e5) / 10)} MB`);
const duration = (seconds) => {
  if (seconds === null) return "–";
  const minutes = Math.round(seconds / 60);
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
};

// --- charts ------------------------------------------------------------------------------------------

const MARGIN = { left: 52, right: 12, top: 8, bottom: 34 };
const DASHES = ["", "6 3", "2 2", "8 3 2 3"];

const svg = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

const ticks = (low, high, wanted) => {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
};

const bounds = (values) => {
  const known = values.filter((value) => value !== null && value !== undefined);
  let [low, high] = [known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), -Infinity)];
  if (low > high) [low, high] = [0, 1];
  const room = high > low ? 0.05 * (high - low) : Math.abs(high) / 2 || 1;
  return [low - room, high + room];
};

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

const drawChart = (chart) => {
  const { plot, data, height } = chart;
  const width = Math.max(200, plot.clientWidth);
  const [w, h] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  const [low, high] = bounds(data.lines.flatMap((line) => [...line.y, ...(line.low ?? []), ...(line.high ?? [])]));
  const end = data.x.length ? data.x[data.x.length - 1] : 1;
  const range = [0, end || 1];
  const place = (x, y) => [MARGIN.left + (w * x) / range[1], MARGIN.top + h * (1 - (y - low) / (high - low))];
  const drawn = svg("svg", { width, height: height, role: "img", "font-size": 11, fill: "#1a1a1a" });
  const newest = data.lines.filter((line) => !line.faint).map((line) => `${line.name} ${measure(line.y.findLast((y) => y !== null) ?? null)}`);
  drawn.setAttribute("aria-label", `${data.title}: ${newest.join(", ") || "no values yet"}`);
  for (const y of ticks(low, high, 4)) {
    const at = place(0, y)[1];
    drawn.append(svg("path", { d: `M${MARGIN.left} ${at}h${w}`, stroke: "#ddd" }));
    drawn.append(svg("text", { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(0, range[1], Math.max(2, Math.floor(w / 90)))) {
    const at = place(x, low)[0];
    drawn.append(svg("path", { d: `M${at} ${MARGIN.top + h}v4`, stroke: "#888" }));
    drawn.append(svg("text", { x: at, y: MARGIN.top + h + 16, "text-anchor": at > width - 30 ? "end" : "middle" }, short(x)));
  }
  drawn.append(svg("path", { d: `M${MARGIN.left} ${MARGIN.top}v${h}h${w}`, fill: "none", stroke: "#888" }));
  drawn.append(svg("text", { x: MARGIN.left + w / 2, y: height - 3, "text-anchor": "middle" }, data.unit));
  for (const line of data.lines) {
    const points = (ys) => ys.flatMap((y, i) => (y === null ? [] : [place(data.x[i], y)]));
    const middle = points(line.y);
    if (line.low) {
      const band = [...points(line.low), ...points(line.high).reverse()];
      drawn.append(svg("path", { d: `${path(band)}Z`, fill: line.colour, "fill-opacity": 0.16 }));
    }
    drawn.append(svg("path", {
      d: path(middle), fill: "none", stroke: line.colour, "stroke-width": 1.6, "stroke-linejoin": "round",
      "stroke-opacity": line.faint ? 0.35 : 1, "stroke-dasharray": DASHES[(line.dash ?? 0) % DASHES.length],
    }));
    if (middle.length <= 15 && !line.faint) drawn.append(...middle.map(([cx, cy]) => svg("circle", { cx, cy, r: 2.5, fill: line.colour })));
  }
  plot.querySelector("svg")?.remove();
  plot.prepend(drawn);
  const box = [MARGIN.left / width, MARGIN.top / height, w / width, h / height];
  plot.curves = { x: data.x, unit: data.unit, panels: [{ box, range, title: "", lines: data.lines }] };
  const named = data.lines.filter((line) => !line.faint).map((line) => tipRow(line.name, line.colour));
  chart.legend.replaceChildren(...(named.length ? named : ["no values yet"]));
};

const makeChart = (height) => {
  const chart = { height, heading: element("h3"), legend: element("div", { class: "legend" }), plot: element("div", { class: "plot", tabindex: 0 }) };
  chart.box = element("section", { class: "chart" }, chart.heading, chart.legend, chart.plot);
  showValues(chart.plot, tip);
  return chart;
};

let charts = [];
const setChart = (chart, data) => {
  chart.heading.textContent = chart.plot.ariaLabel = data.title;
  chart.data = data;
  if (!charts.includes(chart)) charts.push(chart);
  drawChart(chart);
};
window.addEventListener("resize", () => charts.forEach(drawChart));

// --- the list of runs --------------------------------------------------------------------------------

const STATES = ["failed", "killed", "unreadable", "stalled", "running", "interrupted", "new", "finished"]; // what needs attention first
const SIGNS = { failed: "✕", killed: "✕", unreadable: "✕", stalled: "!", running: "▶", finished: "✓" };
const BAD = ["failed", "killed", "unreadable"];
const stateText = (state) => `${SIGNS[state] ?? "·"} ${state}`;

const tableOf = (columns, name) => {
  const headings = columns.map(([text, numeric]) => element("th", { scope: "col", "aria-sort": "none", ...(numeric ? { class: "number" } : {}) },
    element("button", { type: "button" }, text)));
  const table = element("table", { class: "sortable" }, element("thead", {}, element("tr", {}, ...headings)), element("tbody"));
  makeSortable(table, document.getElementById("announcement"));
  return { table, scroll: element("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": name }, table) };
};

const setCell = (cell, text, value) => {
  if (cell.textContent !== text) cell.textContent = text;
  if (value === null || value === undefined) delete cell.dataset.value;
  else cell.dataset.value = value;
};

const runsView = () => {
  const { table, scroll } = tableOf([["run"], ["state"], ["progress"], ["steps/s", true], ["time left", true],
    ["score", true], ["disk", true], ["lock"]], "Runs");
  headingsOf(table)[1].setAttribute("aria-sort", "ascending");
  const filter = element("input", { type: "search", placeholder: "filter, such as pong", "aria-label": "Filter runs by name or state" });
  const total = element("span", { id: "total" });
  view.append(element("div", { class: "controls" }, filter, total), scroll);
  const rows = new Map();
  const make = (key) => {
    const row = element("tr", {}, element("th", { scope: "row" }, element("a", { href: `#run=${key}` })),
      element("td", { class: "state" }), element("td", {}, element("progress", { max: 1 }), element("span")),
      ...Array.from({ length: 4 }, () => element("td", { class: "number" })), element("td"));
    rows.set(key, row);
    table.tBodies[0].append(row);
    return row;
  };
  const match = () => {
    const wanted = filter.value.toLowerCase();
    for (const row of rows.values()) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  };
  filter.addEventListener("input", match);
  return (changed, parts) => {
    for (const [key, run] of Object.entries(changed)) {
      const row = rows.get(key) ?? make(key);
      const [name, state, progress, speed, left, score, disk, lock] = row.cells;
      setCell(name.firstChild, run.name);
      row.title = run.reason;
      row.className = BAD.includes(run.state) ? "bad" : "";
      state.className = `state ${STATES.includes(run.state) ? run.state : ""}`;
      setCell(state, stateText(run.state), STATES.indexOf(run.state));
      const done = run.of ? run.frames / run.of : 0;
      progress.dataset.value = progress.firstChild.value = done;
      setCell(progress.lastChild, `${Math.floor(100 * done)} % of ${run.of ? short(run.of) : "–"}`);
      progress.firstChild.ariaLabel = `frames of ${run.name}`;
      setCell(speed, count(run.speed), run.speed);
      setCell(left, duration(run.left), run.left);
      setCell(score, measure(run.score), run.score);
      setCell(disk, bytes(run.disk), run.disk);
      setCell(lock, run.owner || "–");
    }
    for (const [key, row] of rows) if (!(key in parts)) { row.remove(); rows.delete(key); }
    match();
    sortTable(table);
    const all = Object.values(parts).map((run) => run.state);
    const states = STATES.map((state) => [all.filter((one) => one === state).length, state]).filter(([number]) => number);
    setCell(total, `${all.length} run${all.length === 1 ? "" : "s"}${states.length ? ": " : ""}${states.map((one) => one.join(" ")).join(", ")}`);
    const bad = all.filter((state) => BAD.includes(state) || state === "stalled").length;
    document.title = bad ? `(${bad}) noisynet` : "noisynet";
  };
};

// --- one run -----------------------------------------------------------------------------------------

const pairs = (rows, caption) => element("details", {}, element("summary", {}, caption), element("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": caption },
  element("table", { class: "settings" }, element("tbody", {}, ...rows.map(([key, value]) =>
    element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, value)))))));

const runView = (key) => {
  const [heading, reason] = [element("h2"), element("p", { class: "reason", hidden: "" })];
  const facts = element("dl", { class: "facts" });
  const drawn = Object.fromEntries(["score", "return", "loss", "sigma", "speed"].map((name) => [name, makeChart(220)]));
  const button = element("button", { type: "button" }, "Render the newest episode");
  const message = element("p", { class: "notes", role: "status" });
  const screen = element("div");
  const log = element("pre", { tabindex: 0, "aria-label": "The end of the log" });
  const [settings, maker] = [element("div"), element("div")];
  view.append(heading, reason, facts, element("div", { class: "charts" }, ...Object.values(drawn).map((chart) => chart.box)),
    element("h2", {}, "Video"), button, message, screen, element("h2", {}, "Log"), log, element("h2", {}, "Configuration"), settings, maker);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const answer = await fetch(`/video?run=${encodeURIComponent(key)}`, { method: "POST" });
    if (!answer.ok) { message.textContent = await answer.text(); button.disabled = false; }
  });
  const showVideo = (video) => {
    button.disabled = video.state === "rendering";
    message.textContent = video.state === "rendering" ? "rendering …" : video.text;
    if (video.state !== "ready") return;
    const source = `/video?run=${encodeURIComponent(key)}&number=${video.number}`;
    screen.replaceChildren(element("video", { src: source, controls: "", preload: "metadata" }));
  };
  return (changed) => {
    if (changed.row === null) return heading.replaceChildren("This run does not exist any more");
    if (changed.row) {
      const run = changed.row;
      heading.textContent = run.name;
      document.title = `${stateText(run.state)} ${run.name}`;
      reason.textContent = run.reason;
      reason.hidden = !run.reason;
      const all = { state: stateText(run.state), agent: run.agent, environment: run.environment, seed: run.seed,
        frames: `${count(run.frames)} of ${count(run.of)}`, "steps per second": count(run.speed), "time left": duration(run.left),
        score: measure(run.score), "on disk": bytes(run.disk), lock: run.owner || "–",
        "last change": run.changed ? new Date(1000 * run.changed).toLocaleString("en-GB") : "–" };
      facts.replaceChildren(...Object.entries(all).map(([name, value]) =>
        element("div", {}, element("dt", {}, name), element("dd", name === "state" ? { class: `state ${run.state}` } : {}, `${value}`))));
    }
    for (const [name, chart] of Object.entries(drawn)) if (changed[name]) setChart(chart, changed[name]);
    if (changed.video) showVideo(changed.video);
    if (changed.log !== undefined) log.textContent = changed.log || "There is no log beside this folder: only sweeps write one.";
    if (changed.settings) settings.replaceChildren(pairs(changed.settings, `${changed.settings.length} settings`));
    if (changed.made_by) maker.replaceChildren(pairs(changed.made_by, "Versions and machines"));
    return undefined;
  };
};

// --- agents compared ---------------------------------------------------------------------------------

const compareView = (asked) => {
  const choice = (name, label, values) => {
    const list = element("select", { name }, ...values.map((value) => element("option", { value }, value)));
    list.value = asked.get(name) ?? values[0] ?? "";
    list.addEventListener("change", () => { asked.set(name, list.value); location.hash = `compare&${asked}`; });
    return [element("label", {}, `${label} `, list), list];
  };
  const [environments, list] = choice("environment", "environment", []);
  const [noise] = choice("noise", "noise in evaluations", ["on", "off"]);
  const [unit] = choice("unit", "against", ["frames", "hours"]);
  const chart = makeChart(360);
  const { table, scroll } = tableOf([["agent"], ["seeds", true], ["frames of the slowest", true], ["last score", true], ["best score", true], ["states"]], "Agents");
  view.append(element("div", { class: "controls" }, environments, noise, unit), chart.box, scroll);
  return (changed, parts) => {
    if (changed.environments) list.replaceChildren(...changed.environments.map((value) => element("option", { value }, value)));
    list.value = parts.chosen;
    if (changed.chart) setChart(chart, changed.chart);
    if (!changed.table) return;
    table.tBodies[0].replaceChildren(...changed.table.map((group) => {
      const row = element("tr", {}, element("th", { scope: "row" }, tipRow(group.name, group.colour)));
      for (const [text, value] of [[count(group.seeds), group.seeds], [count(group.frames), group.frames], [measure(group.last), group.last], [measure(group.best), group.best]]) {
        row.append(element("td", { class: "number" }));
        setCell(row.lastChild, text, value);
      }
      row.append(element("td", {}, Object.entries(group.states).map(([state, number]) => `${number} ${state}`).join(", ")));
      return row;
    }));
    sortTable(table);
  };
};

// --- addresses and events ----------------------------------------------------------------------------

let events = null;

const open = () => {
  if (location.hash === "#view") return; // the link that skips the header
  const asked = new URLSearchParams(location.hash.slice(1));
  const name = asked.has("run") ? "run" : asked.has("compare") ? "compare" : "runs";
  asked.delete("compare");
  const [first, focused] = [events === null, document.activeElement?.name];
  events?.close();
  view.replaceChildren();
  charts = [];
  tip.hidden = true;
  document.title = "noisynet";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const update = name === "run" ? runView(asked.get("run")) : name === "compare" ? compareView(asked) : runsView();
  if (!first) (view.querySelector(`select[name="${focused}"]`) ?? view).focus();
  asked.set("view", name);
  let parts = {};
  let fresh = true;
  events = new EventSource(`/events?${asked}`);
  events.onopen = () => { fresh = true; };
  events.onmessage = ({ data }) => {
    const { changed, removed } = JSON.parse(data);
    if (fresh) parts = {};
    fresh = false;
    Object.assign(parts, changed);
    for (const gone of removed) delete parts[gone];
    update(changed, parts);
    connection.textContent = `live, ${new Date().toLocaleTimeString("en-GB")}`;
    connection.classList.remove("lost");
  };
  events.onerror = () => {
    connection.textContent = "no connection to the dashboard";
    connection.classList.add("lost");
  };
};

window.addEventListener("hashchange", open);
open();
