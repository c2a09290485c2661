/** Tables, maps, policies and replays; then the head of the page, and everything is drawn. */
const cellText = (cell) => {
  const [mean, deviation, runs] = cell.sample;
  const text = pair(mean, deviation) + (!cell.bold && cell.p < 0.05 && cell.p_holm > 0.05 ? " °" : "");
  const test = cell.best ? "best mean" : !known(cell.p) ? "not tested" : `p ${probability(cell.p)}, Holm ${probability(cell.p_holm)}`;
  return [cell.bold && !cell.provisional ? el("strong", {}, text) : text, el("small", {}, `n = ${runs}${cell.comparable ? "" : `, stopped at ${count(cell.steps)}`}`),
    ...(choice.details ? [el("small", {}, `IQM ${figure(cell.iqm)}${range(cell.interval)}`), el("small", {}, test)] : [])];
};
const range = ([low, high]) => (known(low) ? ` [${figures(low, high).join(", ")}]` : "");
section("scores", (body, controls) => {
  const moment = data.scores[Number(choice.at)] ?? data.scores[0];
  const slider = el("input", { type: "range", id: "at", min: 0, max: data.scores.length - 1, value: data.scores.length - 1 - Number(choice.at), "aria-label": "Steps at which scores are compared",
    onchange: () => { choice.at = String(data.scores.length - 1 - Number(slider.value)); changed("scores"); } });
  controls.replaceChildren(el("label", { class: "pick", for: "at" }, "compare"), slider, el("output", {}, moment.steps === null ? "at the end" : `at ${count(moment.steps)} steps`), tick("details", "IQM and tests"));
  const [tasks, methods] = [data.tasks.filter(shownTask), methodNames.filter(shownMethod)];
  const cell = (task, method) => {
    const one = moment.cells.find((found) => found.task === task && found.method === method);
    return one ? { value: one.sample[0], content: cellText(one), off: one.provisional } : { value: null, content: "–", off: true };
  };
  if (methods.length > tasks.length) {
    table(body, "scores-table", [{ title: "Method", text: true }, ...tasks.map((task) => ({ title: task, note: moment.basis[task] }))],
      methods.map((method) => [{ value: method, content: named(method) }, ...tasks.map((task) => cell(task, method))]));
  } else {
    table(body, "scores-table", [{ title: "Task", text: true }, ...methods.map((method) => ({ content: named(method) }))],
      tasks.map((task) => [{ value: task, content: [task, el("small", {}, moment.basis[task])] }, ...methods.map((method) => cell(task, method))]));
  }
}, () => !alone);

section("aggregate", (body) => {
  const { methods, levels } = data.aggregates;
  const charts = body.appendChild(el("div", { class: "charts" }));
  const here = methods.filter(({ method }) => shownMethod(method));
  table(charts, "aggregate-table", [{ title: "Method", text: true }, { title: "IQM" }, { title: "95 % interval" }], here.map(({ method, iqm, interval }) => [
    { value: method, content: named(method) }, { value: iqm, content: iqm.toFixed(2) }, { value: interval[0], content: known(interval[0]) ? `${interval[0].toFixed(2)} to ${interval[1].toFixed(2)}` : "too few seeds", off: !known(interval[0]) }]));
  chart(charts, { title: "Performance profile", x: levels, xName: "normalised score", xFormat: (x) => x.toFixed(2), yName: "share of runs above",
    lines: here.map(({ method, profile }) => ({ name: method, colour: colourOf(method), dash: data.methods[method].dash, y: profile })) });
}, () => data.aggregates.methods.length > 1);

section("improvement", (body) => {
  const methods = methodNames.filter(shownMethod);
  const wide = methods.length < 7; // Beyond, numbers stand for the names.
  const cell = (method, other) => {
    const found = data.improvements.find((one) => one.method === method && one.other === other);
    if (!found) return { value: null, content: method === other ? "" : "–", off: true };
    const [low, high] = found.interval;
    const text = found.probability.toFixed(2);
    const share = known(low) ? Math.round(Math.abs(found.probability - 0.5) * 90) : 0;
    return {
      value: found.probability, title: `${method} beats ${other}: ${text}`,
      content: [low > 0.5 || (known(high) && high < 0.5) ? el("strong", {}, text) : text,
        el("small", {}, known(low) ? `${low.toFixed(2)} to ${high.toFixed(2)}` : "too few seeds")],
      style: `background: color-mix(in srgb, var(${found.probability > 0.5 ? "--more" : "--less"}) ${share}%, var(--surface))`,
    };
  };
  table(body, "improvement-table", [{ title: "row beats column", text: true }, ...methods.map((method, i) => ({ content: wide ? named(method) : [key(method), ` ${i + 1}`] }))],
    methods.map((method, i) => [{ value: method, content: wide ? named(method) : [`${i + 1} `, ...named(method)] }, ...methods.map((other) => cell(method, other))]));
}, () => data.improvements.length > 0);

section("sweeps", (body) => {
  const charts = body.appendChild(el("div", { class: "charts" }));
  for (const { task, setting, points } of data.sweeps.filter(shown)) {
    const value = (i) => (Number.isInteger(i) && points[i] ? String(points[i][0]) : "");
    const column = (k) => points.map((point) => point[k]);
    chart(charts, { title: setting.replace(/[._]/g, " "), note: task, x: points.map((_, i) => i), xName: setting, xFormat: value, xTick: value, xSplits: () => points.map((_, i) => i), xRange: [-0.4, points.length - 0.6],
      yName: data.scores[0].basis[task], points: true, lines: [{ name: "score", colour: "--ink", y: column(1), low: column(4), high: column(5), tell: (i) => `${pair(points[i][1], points[i][2])} (n = ${points[i][3]})` }] });
  }
}, () => data.sweeps.some(shown));

/** KL maps over training: a slider and a play button move all of them together. */
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const MOMENTS = 200;
const mapped = { moment: MOMENTS, timer: null, task: data.maps[0]?.task, seed: data.maps[0]?.seed };
const distances = Float64Array.from(data.maps.flatMap((one) => one.maps.flat(2)).filter((value) => value > 0)).sort();
// Policies start out almost equal: a few of those first distances must not use up half of the colours.
const [nearest, farthest] = [distances[Math.floor(distances.length * 0.05)], distances.at(-1)];
const farness = (value) => (value > 0 && farthest > nearest ? Math.min(1, Math.max(0, Math.log(value / nearest) / Math.log(farthest / nearest))) : 0);
const heat = (value) => {
  const place = farness(value) * (VIRIDIS.length - 1);
  const below = Math.min(VIRIDIS.length - 2, Math.floor(place));
  return `color-mix(in srgb, ${VIRIDIS[below + 1]} ${100 * (place - below)}%, ${VIRIDIS[below]})`;
};
const drawMap = (one, steps) => {
  const frame = Math.max(0, one.steps.findLastIndex((at) => at <= steps * (1 + 1e-9)));
  const [rows, edge, side] = [one.maps[frame], 38, 240];
  const cell = side / rows.length;
  const drawing = svg("svg", { class: "map", viewBox: `0 0 ${edge + side + 2} ${edge + side + 2}`, role: "img", "data-frame": frame, "aria-label": `KL map of ${one.method}, ${one.seed === "mean" ? "mean of the seeds" : `seed ${one.seed}`}` },
    svg("text", { x: edge + side / 2, y: 11, "text-anchor": "middle" }, "to policy"), svg("text", { x: -edge - side / 2, y: 10, "text-anchor": "middle", transform: "rotate(-90)" }, "from policy"));
  rows.forEach((row, i) => {
    drawing.append(svg("text", { x: edge - 6, y: edge + (i + 0.5) * cell + 4, "text-anchor": "end" }, i), svg("text", { x: edge + (i + 0.5) * cell, y: edge - 7, "text-anchor": "middle" }, i));
    row.forEach((value, j) => {
      const [x, y, fill] = [edge + j * cell, edge + i * cell, i === j ? "var(--sunken)" : known(value) ? heat(value) : "var(--line)"];
      drawing.append(svg("rect", { x: x + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1, rx: 2, style: `fill: ${fill}` }, svg("title", {}, `from ${i} to ${j}: ${figure(value)}`)));
      if (i !== j && rows.length <= 6 && known(value)) drawing.append(svg("text", { class: "value", x: x + cell / 2, y: y + cell / 2 + 3.5, "text-anchor": "middle", style: `fill: ${farness(value) > 0.6 ? "#111" : "#fff"}` }, value < 0.995 ? value.toFixed(2).slice(1) : value.toPrecision(2)));
    });
    const others = row.map((value, j) => (j === i || !known(value) ? Infinity : value));
    const near = others.indexOf(Math.min(...others));
    const place = { cx: edge + (near + 0.5) * cell, cy: edge + (i + 0.5) * cell, r: Math.min(cell * 0.46, 17) };
    if (Number.isFinite(others[near])) drawing.append(svg("circle", { class: "nearest-edge", ...place }), svg("circle", { class: "nearest", ...place }));
  });
  return el("figure", { class: "card" }, el("figcaption", {}, ...named(one.method), el("span", { class: "muted" }, `${count(one.steps[frame])} steps`)), drawing);
};
const seedList = (things, state) => [select("Task", [...new Set(things.map((one) => one.task))].map((task) => [task, task]), state.task, (value) => { state.task = value; }),
  select("Seed", [...new Set(things.filter((one) => one.task === state.task).map((one) => one.seed))].map((seed) => [seed, seed === "mean" ? "mean of the seeds" : `seed ${seed}`]), state.seed, (value) => { state.seed = value; })];
section("maps", (body, controls) => {
  const here = data.maps.filter((one) => shown(one) && one.task === mapped.task && String(one.seed) === String(mapped.seed));
  const last = Math.max(1, ...here.map((one) => one.steps.at(-1)));
  const grid = body.appendChild(el("div", { class: "maps" }));
  const slider = el("input", { type: "range", id: "moment", min: 0, max: MOMENTS, value: mapped.moment, "aria-label": "Moment of training", oninput: () => { stop(); move(Number(slider.value)); } });
  const clock = el("output", { class: "muted", for: "moment" });
  const move = (moment) => {
    mapped.moment = slider.value = moment;
    clock.textContent = `${count((last * moment) / MOMENTS)} environment steps`;
    slider.setAttribute("aria-valuetext", clock.textContent);
    grid.replaceChildren(...here.map((one) => drawMap(one, (last * moment) / MOMENTS)));
    replayAt((last * moment) / MOMENTS);
  };
  const stop = () => { clearInterval(mapped.timer); mapped.timer = null; play.textContent = "▶ Play"; };
  const play = el("button", { type: "button", class: "play", id: "play", onclick: () => {
    if (mapped.timer) return stop();
    if (mapped.moment >= MOMENTS) move(0);
    play.textContent = "❚❚ Pause";
    mapped.timer = setInterval(() => { move(Math.min(MOMENTS, mapped.moment + 1)); if (mapped.moment >= MOMENTS) stop(); }, 40);
  } }, "▶ Play");
  stop();
  controls.replaceChildren(play, slider, clock, ...seedList(data.maps, mapped));
  move(mapped.moment);
  if (!here.length) grid.append(el("p", { class: "empty" }, "No run with this task and seed is shown."));
  if (distances.length) body.append(el("div", { class: "ramp-legend" }, `near, up to ${figure(nearest)}`, el("span", { class: "ramp", style: `background: linear-gradient(90deg, ${VIRIDIS.join()})` }), `${figure(farthest)} far, logarithmic`));
}, () => data.maps.some(shown));

/** What each policy of a run did, by any metric that is logged per policy. */
const ensembles = data.runs.filter((run) => Object.keys(run.by_policy).length);
const looked = { task: ensembles[0]?.task, seed: ensembles[0]?.seed, metric: "return" };
section("policies", (body, controls) => {
  const families = [...new Set(ensembles.flatMap((run) => Object.keys(run.by_policy)))];
  const runs = ensembles.filter((run) => shownRuns().includes(run) && run.task === looked.task && String(run.seed) === String(looked.seed) && run.by_policy[looked.metric]);
  controls.replaceChildren(select("Metric", families.map((name) => [name, metricName(name)]), looked.metric, (value) => { looked.metric = value; }), ...seedList(ensembles, looked));
  const charts = body.appendChild(el("div", { class: `charts ${runs.length === 1 ? "one" : ""}` }));
  for (const run of runs) {
    const lines = run.by_policy[looked.metric].map((y, policy) => ({ y, name: run.population ? `member ${policy}` : policy ? `follower ${policy}` : "leader", colour: policy || run.population ? `--c${(policy + 1) % 8}` : colourOf(run.method), width: policy || run.population ? 1 : 2.6 }));
    chart(charts, { title: run.method, note: run.name, x: run.x, lines, yName: metricName(looked.metric), ...along("env_steps") });
  }
  if (!runs.length) charts.append(el("p", { class: "empty" }, "No run with this task and seed is shown."));
  if (alone) policyTable(body, runs[0] ?? data.runs[0]);
}, () => ensembles.some((run) => shownRuns().includes(run)));
const policyTable = (body, run) => {
  const last = data.maps[0]?.maps.at(-1);
  const number = (value) => ({ value, content: figure(value) });
  const evaluated = run.deterministic.length > 0;
  table(body, "policies-table", [{ title: "Policy", text: true }, { title: "In training" }, ...(evaluated ? [{ title: "Evaluated" }, { title: "Sampled" }] : []), ...(last ? [{ title: "KL to leader" }] : [])],
    run.trained.map((trained, policy) => [{ value: policy, content: policy === run.leader ? el("strong", {}, `${policy}, the leader`) : `${policy}, ${run.population ? "member" : "follower"}` }, number(trained),
      ...(evaluated ? [number(run.deterministic[policy]), number(run.sampled[policy])] : []), ...(last ? [policy === run.leader ? { value: 0, content: "" } : number(last[policy][run.leader])] : [])]));
};

const replays = JSON.parse(find("replays").textContent);
const played = { run: Object.keys(replays)[0], handle: null, drawn: null };
const recorded = () => data.runs.filter((run) => run.name in replays && shownRuns().includes(run));
section("replay", (body, controls) => {
  const run = recorded().find((one) => one.name === played.run) ?? recorded()[0];
  controls.replaceChildren(select("Run", recorded().map((one) => [one.name, one.name]), run.name, (value) => { played.run = value; }), el("span", {}, ...named(run.method), ` on ${run.task}, run ${run.name}`));
  played.stage ??= el("div", { id: "replay-stage" });
  body.append(played.stage);
  if (played.drawn === run.name) return;
  played.handle?.destroy();
  [played.drawn, played.handle] = [run.name, EchelonReplay.mount(played.stage, replays[run.name])];
}, () => recorded().length > 0);
/** Policies as they were after so many steps, where the replay has several checkpoints. */
const replayAt = (steps) => {
  const [replay, run] = [replays[played.drawn], data.runs.find((one) => one.name === played.drawn)];
  if (played.handle && replay.episodes.some((episode) => (episode.iteration ?? replay.iteration) !== replay.iteration)) played.handle.at((steps / run.env_steps) * replay.iteration);
};

section("speed", (body) => {
  const rows = data.speed.filter(shown);
  const parts = [...new Set(rows.flatMap((row) => Object.keys(row.parts)))];
  const total = (row) => Object.values(row.parts).reduce((sum, value) => sum + value, 0);
  const longest = Math.max(...rows.map(total));
  const bar = (row) => el("div", { class: "parts", role: "img", "aria-label": Object.entries(row.parts).map(([part, seconds]) => `${part} ${figure(seconds)} s`).join(", "), style: `width: ${(100 * total(row)) / longest}%` },
    ...Object.entries(row.parts).map(([part, seconds]) => el("span", { class: `p${parts.indexOf(part) % 6}`, title: `${part} ${figure(seconds)} s`, style: `flex: ${seconds / total(row)} 0 0` })));
  table(body, "speed-table", [{ title: "Task", text: true }, { title: "Method", text: true }, { title: "Steps per second" }, { title: "Seconds of an iteration" }, { title: "Parts", text: true }],
    rows.map((row) => [{ value: row.task }, { value: row.method, content: named(row.method) }, { value: row.rate, content: count(row.rate) }, { value: total(row), content: figure(total(row) || null) }, { value: total(row), content: bar(row) }]));
  body.append(el("div", { class: "legend" }, ...parts.map((part, i) => el("span", {}, el("i", { class: `p${i % 6}` }), part))));
}, () => data.speed.some(shown));

section("settings", (body) => data.settings.forEach(({ tasks, methods, rows }, i) => {
  if (!tasks.some(shownTask)) return;
  const kept = methods.map((method, k) => [method, k + 1]).filter(([method]) => shownMethod(method));
  if (data.tasks.length > 1) body.append(el("h3", {}, tasks.join(", ")));
  table(body, `settings-${i}`, [{ title: "Setting", text: true }, ...kept.map(([method]) => ({ content: named(method), text: true }))],
    rows.map((row) => [{ value: row[0], content: el("code", {}, row[0]) }, ...kept.map(([, k]) => ({ value: row[k] }))]));
}), () => !alone && data.settings.length > 0);

section("runs", (body) => {
  const any = data.runs.some((run) => run.deterministic.length);
  const number = (value, off) => ({ value, content: figure(value), off });
  table(body, "runs-table", [{ title: "Run", text: true }, { title: "Task", text: true }, { title: "Method", text: true }, { title: "Seed" }, { title: "Training score" },
    ...(any ? [{ title: "Evaluated" }, { title: "Sampled" }] : []), { title: "Steps" }, { title: "Time" }, { title: "Notes", text: true }],
  shownRuns().map((run) => [{ value: run.name }, { value: run.task }, { value: run.method, content: named(run.method) }, { value: run.seed }, number(run.training, !run.finished),
    ...(any ? [number(run.deterministic[run.leader]), number(run.sampled[run.leader])] : []), { value: run.env_steps, content: count(run.env_steps) }, { value: run.seconds, content: duration(run.seconds) }, { value: run.notes.join("; "), off: true }]));
}, () => !alone);
section("problems", (body) => body.append(el("ul", {}, ...data.problems.map(([path, sentence]) => el("li", {}, el("code", {}, path), `: ${sentence}`)))), () => data.problems.length > 0);
section("next", (body) => {
  const [run] = data.runs;
  const quoted = /^[\w./-]+$/.test(run.path) ? run.path : `'${run.path.replaceAll("'", "'\\''")}'`; // folder names are untrusted
  const steps = [...(run.finished ? [] : [["the command that started it", "resume from its last checkpoint"]]), ...(run.deterministic.length ? [] : [[`echelon evaluate ${quoted}`, "score every policy on episodes counted once; training returns lag behind"]]),
    [`echelon record ${quoted} --format html`, "watch its policies in 3D; the next report shows them too"], [`echelon play ${quoted}`, "watch and push them live in the browser"],
    [`echelon compare --tasks ${run.task} --seeds 5`, "train all algorithms with five seeds, and compare: one run says little"]];
  body.append(el("ul", { class: "next" }, ...steps.map(([command, why]) => el("li", {}, el("code", {}, command), el("span", { class: "muted" }, why)))));
}, () => alone);

/** Which methods, runs and tasks are shown. */
const box = (key, text, extra = null) => {
  const input = el("input", { type: "checkbox", onchange: () => hide(key, !input.checked) });
  listeners.push(() => { input.checked = !choice.hidden.has(key); });
  return el("label", { class: "pick", "data-key": key }, input, extra, el("span", { class: "name" }, text));
};
find("run-list").append(...methodNames.map((method) => {
  const runs = data.runs.filter((run) => run.method === method);
  return el("div", { class: "method" }, box(`method ${method}`, method, key(method)), el("details", {}, el("summary", { class: "muted" }, runs.length === 1 ? "1 run" : `${runs.length} runs`), ...runs.map((run) => box(`run ${run.name}`, run.name))));
}));
if (data.tasks.length > 1) {
  find("tasks").append(...data.tasks.map((task) => {
    const chip = el("button", { type: "button", class: "chip", onclick: () => hide(`task ${task}`, shownTask(task)) }, task);
    listeners.push(() => chip.setAttribute("aria-pressed", String(shownTask(task))));
    return chip;
  }));
}
listeners.push(() => {
  const left = shownRuns().length;
  find("shown").textContent = left === data.runs.length ? `${left}` : `${left} of ${data.runs.length} shown`;
  find("still").hidden = left === data.runs.length;
});

find("summary").textContent = data.summary;
const total = (name) => data.runs.reduce((sum, run) => sum + (run[name] ?? 0), 0);
const unfinished = data.runs.filter((run) => !run.finished).length;
const facts = [...(alone ? [[data.runs[0].policies, "policies"]] : [[data.runs.length, "runs"], [unfinished, "unfinished"], [data.tasks.length, "tasks"], [methodNames.length, "methods"]]),
  [count(total("env_steps")), "environment steps"], [duration(total("seconds")), "of training"]].filter(([value]) => value);
find("facts").append(...facts.map(([value, name]) => el("div", {}, el("dt", {}, value === 1 ? name.replace(/ies$/, "y").replace(/s$/, "") : name), el("dd", {}, value))));
document.documentElement.classList.toggle("alone", alone);
sections.sort((a, b) => (a.place.compareDocumentPosition(b.place) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
find("contents").append(...sections.filter(({ place }) => place.dataset.name).map(({ link }) => link));

const repaint = () => { document.documentElement.style.colorScheme = document.documentElement.dataset.theme = choice.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { repaint(); changed(); });
find("theme").addEventListener("click", () => { choice.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; repaint(); changed(); });
repaint();
if (matchMedia("(max-width: 60rem)").matches) {
  find("selection").open = false;
  for (const { id, fold } of sections) fold.open = ["problems", "curves", "replay", "scores", "next"].includes(id);
}
let width = innerWidth; // A phone's address bar comes and goes.
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; changed(); } });
changed();
if (data.again) setTimeout(() => location.reload(), data.again * 1000); // written again while runs are trained
