/** Line charts by uPlot, in a card each, that answer the pointer and the arrow keys. */
const HEIGHT = 250;
const SMALL_FROM = 4; // charts beside each other from which on they are small
const painter = document.body.appendChild(el("span", { hidden: true }));
/** A colour of the style sheet as a canvas understands it. */
const paint = (name, alpha = 1) => {
  painter.style.color = `color-mix(in srgb, var(${name}) ${100 * alpha}%, transparent)`;
  return getComputedStyle(painter).color;
};
const colourOf = (method) => `--c${data.methods[method].colour}`;

/** Centred moving mean over `half` points to either side. */
const smoothed = (values, half) => (half && values ? values.map((value, i) => {
  const near = known(value) ? values.slice(Math.max(0, i - half), i + half + 1).filter(known) : [];
  return near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : null;
}) : values);

/** A chart of `spec` inside `host`: title, note, x, xName, xFormat, yName, log, marks [[y, text]], and lines
 * {name, colour, dash, width, alpha, y, low, high, tell(i)}; a line without a name is not told. */
const chart = (host, spec) => {
  const label = `${spec.title}: ${spec.yName} against ${spec.xName}. Arrow keys read values.`;
  const place = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": label });
  const note = spec.note ? el("span", { class: "muted" }, spec.note) : null;
  host.append(el("figure", { class: "card" }, el("figcaption", {}, spec.title, note), place));
  place.style.minHeight = `${spec.height ?? HEIGHT}px`;
  soon.push(() => place.isConnected && draw(place, spec));
};
const draw = (place, spec) => {
  const columns = [spec.x];
  const series = [{ label: spec.xName, value: (_, value) => spec.xFormat(known(value) ? value : spec.x.at(-1)) }];
  const bands = [];
  const add = (values, options) => {
    columns.push(spec.log ? values.map((value) => (value > 0 ? value : null)) : values);
    series.push({ spanGaps: false, points: { show: false }, ...options });
  };
  for (const line of spec.lines) {
    if (line.low?.some(known)) {
      add(line.high, { class: "untold", width: 0 });
      add(line.low, { class: "untold", width: 0 });
      bands.push({ series: [columns.length - 2, columns.length - 1], fill: paint(line.colour, 0.16) });
    }
    const last = line.y.findLastIndex(known); // What is told where the pointer is not.
    add(line.y, {
      label: line.name ?? "", class: line.name ? "told" : "untold", stroke: paint(line.colour, line.alpha ?? 1),
      width: line.width ?? 2, dash: line.dash?.map((part) => 1.6 * part),
      points: { show: line.y.filter(known).length < 2, size: 7, fill: paint(line.colour) },
      value: (_, value, __, i) => {
        const at = i ?? last;
        return known(line.y[at]) ? line.tell?.(at) ?? figure(line.y[at]) : "–";
      },
    });
  }
  for (const [y, text] of spec.marks ?? []) {
    add(spec.x.map(() => y), { label: text, class: "told", stroke: paint("--muted"), width: 1, dash: [2, 4], value: () => figure(y) });
  }
  const font = "12px system-ui";
  const axis = { stroke: paint("--muted"), grid: { stroke: paint("--line"), width: 1 }, ticks: { show: false }, font, labelFont: font, labelSize: 18 };
  const ticks = (format) => (_, places) => places.map((tick) => (tick === null ? "" : format(tick)));
  const plot = new uPlot({
    width: Math.max(220, place.clientWidth), height: spec.height ?? HEIGHT, series, bands,
    cursor: { points: { size: 7 }, y: false }, legend: { markers: { width: 3 } },
    scales: { x: { time: false }, y: { distr: spec.log ? 3 : 1 } },
    axes: [{ ...axis, label: spec.xName, size: 28, space: 70, values: ticks(spec.xTick ?? tickText) },
      { ...axis, label: spec.yName, size: 54, values: ticks(tickText) }],
  }, columns, place);
  place.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -spec.x.length, End: spec.x.length }[event.key];
    if (!move) return;
    event.preventDefault();
    const i = Math.min(spec.x.length - 1, Math.max(0, (plot.cursor.idx ?? spec.x.length) + move));
    plot.setCursor({ left: plot.valToPos(spec.x[i], "x"), top: 10 });
  });
};

const AXES = { env_steps: "environment steps", wall_s: "time of training", gradient_steps: "gradient steps" };
/** What a chart needs of a horizontal axis. */
const along = (axis) => ({ xName: AXES[axis], xFormat: axis === "wall_s" ? duration : count, xTick: axis === "wall_s" ? duration : null });
const metricsOf = (leaders) => [...new Set(data.curves.map((one) => one.metric))].filter((name) => name.endsWith("/leader") === leaders);

/** The lines of a method: those of single runs, a pale one beyond the end of its shorter runs, and its own with a band. */
const methodLines = (line, metric, statistic, half) => {
  const look = { colour: colourOf(line.method), dash: data.methods[line.method].dash };
  const most = Math.max(...line.runs);
  const iqm = statistic === "iqm" && metric === data.score;
  const edge = (side) => line.mean.map((mean, i) => (known(mean) && line.runs[i] > 1 ? mean + side * line.deviation[i] : null));
  const found = iqm ? [line.iqm, line.low, line.high] : [line.mean, edge(-1), edge(1)];
  const [centre, low, high] = found.map((values) => smoothed(values, half));
  const whole = (values) => values.map((value, i) => (line.runs[i] === most ? value : null));
  const few = centre.map((value, i) => ([-1, 0, 1].some((k) => line.runs[i + k] < most) ? value : null));
  const tell = (i) => {
    const interval = iqm && known(low[i]) ? ` [${figures(low[i], high[i]).join(", ")}]` : "";
    return (iqm ? figure(centre[i]) + interval : pair(centre[i], most > 1 ? line.deviation[i] : null)) + (most > 1 ? ` (n = ${line.runs[i]})` : "");
  };
  const single = choice.single && !alone ? Object.entries(line.single).filter(([run]) => shown({ run })) : [];
  return [...single.map(([, y]) => ({ ...look, y: smoothed(y, half), width: 1, alpha: 0.45 })),
    ...(few.some(known) ? [{ ...look, y: few, width: 1.2, alpha: 0.5 }] : []),
    { ...look, name: line.method, y: whole(centre), low: whole(low), high: whole(high), tell }];
};
/** One chart per task of a metric over training, small where there are many. */
const curves = (body, id, axis, statistic) => {
  const metric = choice[id];
  const here = data.curves.filter((one) => one.metric === metric && one.axis === axis && shownTask(one.task));
  const small = here.length >= SMALL_FROM;
  const charts = body.appendChild(el("div", { class: `charts ${here.length === 1 ? "one" : small ? "small" : ""}` }));
  for (const { task, x, lines, marks } of here) {
    const half = Math.round((Number(choice[`${id}Smooth`]) / 200) * x.length);
    const drawn = lines.filter((line) => shownMethod(line.method)).flatMap((line) => methodLines(line, metric, statistic, half));
    const look = { yName: metricName(metric), log: choice[`${id}Log`], height: small ? 200 : HEIGHT, ...along(axis) };
    const visible = !look.log || drawn.some((line) => line.y.some((value) => value > 0));
    if (drawn.length && visible) chart(charts, { title: task, x, lines: drawn, marks, ...look });
    else if (drawn.length) charts.append(el("p", { class: "empty" }, `${task}: no value is above zero, which a log axis needs.`));
  }
  const why = here.length ? "All methods are hidden." : "No run logged two points of it.";
  if (!charts.childElementCount) charts.append(el("p", { class: "empty" }, why));
};
const scaling = (id) => [el("label", { class: "pick" }, "smoothing", el("input", {
  type: "range", min: 0, max: 40, step: 2, value: choice[`${id}Smooth`], "aria-label": "Smoothing", "data-value": "Smoothing",
  onchange: (event) => { choice[`${id}Smooth`] = event.target.value; changed(id); },
})), tick(`${id}Log`, "log axis")];
/** A list of metrics, those of one group together. */
const metricList = (name, metrics) => {
  const list = select("Metric", metrics.map((metric) => [metric, metricName(metric)]), choice[name], (value) => { choice[name] = value; });
  const groups = new Map();
  for (const option of [...list.children]) {
    const group = option.value.includes("/") && !option.value.endsWith("/leader") ? option.value.split("/")[0] : "";
    if (group && !groups.has(group)) groups.set(group, list.appendChild(el("optgroup", { label: group })));
    groups.get(group)?.append(option);
  }
  return list;
};
section("curves", (body, controls) => {
  const axes = Object.keys(AXES).filter((axis) => data.curves.some((one) => one.axis === axis)).map((axis) => [axis, AXES[axis]]);
  controls.replaceChildren(metricList("curves", metricsOf(true)), segments("axis", axes),
    ...(alone ? [] : [segments("statistic", [["mean", "mean ± deviation"], ["iqm", "IQM, 95 % interval"]]), tick("single", "single runs")]),
    ...scaling("curves"));
  curves(body, "curves", choice.axis, choice.statistic);
});
section("diagnostics", (body, controls) => {
  const metrics = metricsOf(false);
  const telling = ["is_deviation", metrics.find((name) => name.startsWith("env/reward/")), "loss/actor"];
  if (!metrics.includes(choice.diagnostics)) choice.diagnostics = telling.find((name) => metrics.includes(name)) ?? metrics[0];
  controls.replaceChildren(metricList("diagnostics", metrics), ...scaling("diagnostics"));
  curves(body, "diagnostics", "env_steps", "mean");
}, () => metricsOf(false).length > 0);
