/** The page's data, what the reader chose, and small tools. Everything was computed before; here it is shown and hidden. */
const find = (id) => document.getElementById(id);
const packed = Uint8Array.from(atob(find("data").textContent), (letter) => letter.charCodeAt(0));
const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
const alone = data.runs.length === 1;
const methodNames = Object.keys(data.methods);

/** An element: attributes by name (functions are listeners), then children. */
const dress = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};
const el = (tag, attributes = {}, ...children) => dress(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** Numbers the way people read them; null is a dash. */
const known = (number) => number !== null && number !== undefined && Number.isFinite(number);
const count = (number) => {
  if (!known(number)) return "–";
  const [unit, suffix] = [[1e9, "\u202fG"], [1e6, "\u202fM"], [1e3, "\u202fk"]].find(([size]) => Math.abs(number) >= size * 0.9995) ?? [1, ""];
  const scaled = number / unit;
  return scaled.toFixed(unit === 1 ? 0 : Math.abs(scaled) < 9.995 ? 2 : Math.abs(scaled) < 99.95 ? 1 : 0) + suffix;
};
/** A number beside an axis, with no more digits than it needs: 200 k, 1.6 M. */
const tickText = (value) => {
  if (Math.abs(value) < 1e4) return String(Number(value.toPrecision(5)));
  const [digits, suffix = ""] = count(value).split("\u202f");
  return `${Number(digits)}${suffix && `\u202f${suffix}`}`;
};
/** Three digits that matter, four from a hundred on; several numbers have the decimals of the largest. */
const figures = (...numbers) => {
  const size = Math.max(...numbers.filter(known).map(Math.abs), 0);
  if (size && (size >= 1e7 || size < 1e-3)) return numbers.map((number) => (known(number) ? number.toExponential(1) : "–"));
  const decimals = size ? Math.max(0, 2 - Math.floor(Math.log10(size)) + (size >= 100 ? 1 : 0)) : 0;
  const format = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return numbers.map((number) => (known(number) ? number.toLocaleString("en", format) : "–"));
};
const figure = (number) => figures(number)[0];
const pair = (mean, deviation) => (known(deviation) ? figures(mean, deviation).join(" ± ") : figure(mean));
const duration = (seconds) => {
  if (!known(seconds)) return "–";
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${rest} s` : `${rest} s`;
};
const probability = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));
const metricName = (metric) => metric.replace("/leader", "").replaceAll("_", " ");

/** What the reader chose; it is in the address, so that a link shows what its sender saw. */
const usual = {
  axis: "env_steps", statistic: "mean", curves: data.score, curvesLog: "", curvesSmooth: "0", single: "",
  diagnostics: "", diagnosticsLog: "", diagnosticsSmooth: "0", details: "", theme: "",
};
const choice = { ...usual, hidden: new Set() };
const words = new URLSearchParams(location.hash.slice(1));
for (const name of Object.keys(usual)) if (words.has(name)) choice[name] = words.get(name);
words.getAll("hidden").forEach((key) => choice.hidden.add(key));
const remember = () => {
  const now = new URLSearchParams(Object.entries(choice).filter(([name, value]) => name in usual && value !== usual[name]));
  choice.hidden.forEach((key) => now.append("hidden", key));
  history.replaceState(null, "", `#${now}`);
};
const shownMethod = (method) => !choice.hidden.has(`method ${method}`);
const shownTask = (task) => !choice.hidden.has(`task ${task}`);
/** Whether a run, or what else has a run, a method or a task, is not hidden. */
const shown = ({ run, method, task }) => !(run && choice.hidden.has(`run ${run}`)) && (!method || shownMethod(method)) && (!task || shownTask(task));
const shownRuns = () => data.runs.filter((run) => shown({ ...run, run: run.name }));
const hide = (key, yes) => { choice.hidden[yes ? "add" : "delete"](key); changed(); };

/** Sections: `draw(body, controls)` fills them, unless `wanted` says that there is nothing to see. */
const sections = [];
const section = (id, draw, wanted = () => true) => {
  const place = find(id);
  const [body, controls] = [el("div", { class: "body" }), el("div", { class: "controls" })];
  const fold = el("details", { open: true }, el("summary", {}, el("h2", {}, place.title)), el("p", { class: "caption" }, ...place.childNodes), controls, body);
  place.removeAttribute("title");
  place.replaceChildren(fold);
  const link = el("a", { href: `#${id}`, onclick: (event) => { event.preventDefault(); fold.open = true; place.scrollIntoView(); } }, place.dataset.name ?? "");
  fold.addEventListener("toggle", () => fold.open && !body.childElementCount && changed(id)); // It also tells of the first state.
  const redraw = () => {
    const { id: name, dataset: { value } } = place.contains(document.activeElement) ? document.activeElement : el("i");
    body.replaceChildren();
    draw(body, controls);
    if (name || value) place.querySelector(name ? `#${name}` : `[data-value="${value}"]`)?.focus(); // What had the focus is drawn again too.
  };
  sections.push({ id, place, fold, body, link, wanted, draw: redraw });
};
let [running, queue, soon] = [false, [], []]; // sections, and charts of those that have been drawn
/** Draw what is on the screen, then the rest, each in its own time; or only the section in which something was chosen. */
const changed = (only) => {
  remember();
  listeners.forEach((act) => act());
  for (const one of sections) {
    one.place.hidden = one.link.hidden = !one.wanted();
    if (!one.fold.open) one.body.replaceChildren(); // It is drawn when it is opened.
  }
  const away = ({ place }) => Math.max(place.getBoundingClientRect().top - innerHeight, -place.getBoundingClientRect().bottom, 0);
  queue = sections.filter((one) => (!only || one.id === only || queue.includes(one)) && !one.place.hidden && one.fold.open);
  queue.sort((a, b) => away(a) - away(b));
  window.Report.ready = false;
  if (!running) step();
};
const step = () => {
  running = true;
  if (soon.length) soon.shift()();
  else queue.shift()?.draw();
  if (soon.length || queue.length) setTimeout(step);
  else [running, window.Report.ready] = [false, true];
};
const listeners = [];
window.Report = { data, choice, changed, pair, tickText, duration, ready: false };

const within = (event) => event.target.closest("section").id;
/** Controls that set a choice: buttons of which one is pressed, a list, a box to tick. */
const segments = (name, options) => el("div", { class: "segments", role: "group" }, ...options.map(([value, text]) => el("button", {
  type: "button", "aria-pressed": String(choice[name] === value), "data-value": value, onclick: (event) => { choice[name] = value; changed(within(event)); },
}, text)));
const select = (label, options, value, set) => el("select", {
  "aria-label": label, "data-value": label, hidden: options.length < 2, onchange: (event) => { set(event.target.value); changed(within(event)); },
}, ...options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)));
const tick = (name, text) => el("label", { class: "pick" }, el("input", {
  type: "checkbox", "data-value": name, checked: choice[name] === "1",
  onchange: (event) => { choice[name] = event.target.checked ? "1" : ""; changed(within(event)); },
}), text);

/** A method's line and name. */
const key = (method) => svg("svg", { class: "key", viewBox: "0 0 24 10", "aria-hidden": "true" }, svg("line", {
  x1: 0, y1: 5, x2: 24, y2: 5, style: `stroke: var(--c${data.methods[method].colour})`,
  "stroke-dasharray": data.methods[method].dash.map((part) => 1.3 * part).join(" "),
}));
const named = (method) => [key(method), ` ${method}`];

const sorted = {}; // table id: {column, down}
const compare = (a, b) => (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true })
  : (known(a) ? a : -Infinity) - (known(b) ? b : -Infinity));
const text = (title) => ({ title, text: true }); // a column of words
const number = (value, off) => ({ value, content: figure(value), off });
const ofMethod = (method) => ({ value: method, content: named(method) });
/** A table whose columns sort. Columns are {title, text, note}; cells {value, content, off, style, title}; `value` is what a column sorts by. */
const table = (host, id, columns, rows) => {
  const order = sorted[id];
  const body = order && columns[order.column] ? [...rows].sort((a, b) => compare(a[order.column].value, b[order.column].value) * (order.down ? -1 : 1)) : rows;
  const place = el("div", { class: "table", id });
  const sort = (column) => {
    sorted[id] = { column, down: order?.column === column ? !order.down : !columns[column].text };
    place.replaceWith(table(host, id, columns, rows));
    find(id).querySelectorAll("thead button")[column].focus();
  };
  const heads = columns.map((column, i) => el("th", {
    scope: "col", class: column.text ? "text" : null, "aria-sort": order?.column === i ? (order.down ? "descending" : "ascending") : null,
  }, el("button", { type: "button", onclick: () => sort(i) }, column.content ?? column.title), column.note ? el("small", {}, column.note) : null));
  const cells = (row) => row.map((cell, i) => el(i ? "td" : "th", {
    scope: i ? null : "row", class: [columns[i].text ? "text" : "", cell.off ? "off" : ""].join(" ").trim() || null, title: cell.title, style: cell.style,
  }, ...[cell.content ?? cell.value].flat()));
  const copy = el("button", { type: "button", class: "copy", onclick: async () => {
    const plain = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
    const lines = [...place.querySelectorAll("tr")].map((row) => [...row.children].map(plain).join("\t"));
    await navigator.clipboard.writeText(lines.join("\n"));
    copy.textContent = "copied";
  } }, "copy");
  const rowsBelow = el("tbody", {}, ...body.map((row) => el("tr", {}, ...cells(row))));
  place.append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), rowsBelow)), copy);
  host.append(place);
  return place;
};
