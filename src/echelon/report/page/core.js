"use strict";
/** The page's data, what the reader chose, and small tools that every other file uses. */
const Report = {};

Report.data = JSON.parse(document.getElementById("data").textContent);
Report.data.runs.forEach((run, index) => { run.index = index; });

/** What the reader chose, as it was sent: see state.js. */
Report.choice = {
  hidden: new Set(), // indices of runs
  off: new Set(), // indices of tasks
  axis: "env_steps",
  statistic: "mean",
  metric: Report.data.score,
  coupling: null,
  single: false,
  details: false,
  at: null, // environment steps to compare at; null: at the end
  theme: null,
};
/** Computed once per change. */
Report.memo = (key, compute) => {
  if (!Report.known.has(key)) Report.known.set(key, compute());
  return Report.known.get(key);
};
Report.known = new Map();

Report.alone = Report.data.runs.length === 1;
Report.visible = () => Report.memo("visible", () => Report.data.runs.filter((run) =>
  !Report.choice.hidden.has(run.index) && !Report.choice.off.has(Report.data.tasks.indexOf(run.task))));
Report.runsOf = (method, task) => Report.memo(`runs ${method} ${task ?? ""}`, () =>
  Report.visible().filter((run) => run.method === method && (!task || run.task === task)));
/** Methods with a run that is not hidden, as indices. */
Report.methods = (task) => Report.memo(`methods ${task ?? ""}`, () =>
  Report.data.methods.map((_, index) => index).filter((index) => Report.runsOf(index, task).length));
Report.tasks = () => Report.memo("tasks", () => Report.data.tasks.filter((task) => Report.visible().some((run) => run.task === task)));
Report.find = (id) => document.getElementById(id);

/** An element: attributes by name (`on` functions are listeners), then children. */
Report.el = (tag, attributes = {}, ...children) => Report.dress(document.createElement(tag), attributes, children);
Report.svg = (tag, attributes = {}, ...children) =>
  Report.dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
Report.dress = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

/** Numbers the way people read them. */
Report.count = (number) => {
  if (!Number.isFinite(number)) return "–";
  for (const [unit, suffix] of [[1e9, "\u202fG"], [1e6, "\u202fM"], [1e3, "\u202fk"]]) {
    if (Math.abs(number) >= unit * 0.9995) {
      const scaled = number / unit;
      return scaled.toFixed(Math.abs(scaled) < 9.995 ? 2 : Math.abs(scaled) < 99.95 ? 1 : 0) + suffix;
    }
  }
  return number.toFixed(0);
};
/** Decimals that leave three digits that matter, four from a hundred on. */
Report.decimals = (size) => (size === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size)) + (size >= 100 ? 1 : 0)));
Report.fixed = (number, decimals) => number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
Report.figure = (number) => {
  if (!Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 1e-3) return number.toExponential(1);
  return Report.fixed(number, Report.decimals(size));
};
/** Mean and deviation to the same decimals, those of the larger. */
Report.pair = (mean, deviation) => {
  if (!Number.isFinite(deviation)) return Report.figure(mean);
  const size = Math.max(Math.abs(mean), deviation);
  if (size >= 1e7 || size < 1e-3) return `${Report.figure(mean)} ± ${Report.figure(deviation)}`;
  const decimals = Report.decimals(size);
  return `${Report.fixed(mean, decimals)} ± ${Report.fixed(deviation, decimals)}`;
};
Report.duration = (seconds) => {
  if (!Number.isFinite(seconds)) return "–";
  const total = Math.round(seconds);
  const [hours, minutes] = [Math.floor(total / 3600), Math.floor(total / 60) % 60];
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${String(total % 60).padStart(2, "0")} s` : `${total} s`;
};
Report.probability = (p) => (!Number.isFinite(p) ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));
/** `upright_late/leader` as a reader calls it. */
Report.metricName = (metric) => metric.replace("/leader", "").replaceAll("_", " ");

/** Colours and dashes by method, the same as in the figures. */
Report.colour = (method) => `c${Report.data.methods[method].colour}`;
Report.dash = (method) => Report.data.dashes[Report.data.methods[method].dash].map((part) => (1.3 * part).toFixed(1)).join(" ");
Report.key = (method) =>
  Report.svg("svg", { class: `key ${Report.colour(method)}`, viewBox: "0 0 24 10", "aria-hidden": "true" },
    Report.svg("line", { x1: 0, y1: 5, x2: 24, y2: 5, "stroke-dasharray": Report.dash(method) }));
Report.swatch = (colour) => Report.el("span", { class: `swatch ${colour}`, "aria-hidden": "true" });

/** A method's name beside its colour, or where colours come twice its line. */
Report.named = (method) => {
  const { methods } = Report.data;
  const twice = new Set(methods.map(({ colour }) => colour)).size < methods.length;
  return twice ? [Report.key(method), ` ${methods[method].name}`] : [Report.swatch(Report.colour(method)), methods[method].name];
};

/** Buttons of which one is pressed. */
Report.segments = (label, options, get, set) => {
  const group = Report.el("div", { class: "segments", role: "group", "aria-label": label });
  const draw = () => group.replaceChildren(...options().map(([value, name]) => Report.el("button", {
    type: "button", "aria-pressed": String(get() === value), "data-value": value,
    onclick: () => { set(value); Report.changed(); group.querySelector(`[data-value="${value}"]`).focus(); },
  }, name)));
  Report.onChange(draw);
  return group;
};
/** A list to choose from; it hides itself where there is no choice. */
Report.select = (label, options, get, set) => {
  const list = Report.el("select", { "aria-label": label, onchange: () => { set(list.value); Report.changed(); } });
  Report.onChange(() => {
    list.replaceChildren(...options().map(([value, name]) => Report.el("option", { value, selected: String(get()) === String(value) }, name)));
    list.hidden = options().length < 2;
  });
  return list;
};
/** A box to tick. */
Report.tick = (label, id, get, set) => {
  const input = Report.el("input", { type: "checkbox", id, onchange: () => { set(input.checked); Report.changed(); } });
  Report.onChange(() => { input.checked = get(); });
  return Report.el("label", { class: "pick" }, input, label);
};
/** Lists of tasks and seeds of `runs`, which set `state.task` and `state.seed`; `mean` is offered where seeds can be averaged. */
Report.taskAndSeed = (runs, state, mean) => {
  const tasks = () => [...new Set(runs.map((run) => run.task))].map((task) => [task, task]);
  const seeds = () => {
    const found = [...new Set(runs.filter((run) => run.task === state.task).map((run) => run.seed))].sort((a, b) => a - b).map((seed) => [seed, `seed ${seed}`]);
    return mean && found.length > 1 ? [...found, [mean, "mean of the seeds"]] : found;
  };
  return [Report.select("Task", tasks, () => state.task, (value) => { state.task = value; }),
    Report.select("Seed", seeds, () => state.seed, (value) => { state.seed = value === mean ? value : Number(value); })];
};
