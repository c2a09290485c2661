/** Tables, maps, policies and replays; then the head of the page, and everything is drawn. */
const range = ([low, high]) => (known(low) ? ` [${figures(low, high).join(", ")}]` : "");
const cellText = (cell) => {
  const [mean, deviation, runs] = cell.sample;
  const text = pair(mean, deviation) + (!cell.bold && cell.p < 0.05 && cell.p_holm > 0.05 ? " °" : "");
  const test = cell.best ? "best mean" : !known(cell.p) ? "not tested" : `p ${probability(cell.p)}, Holm ${probability(cell.p_holm)}`;
  return [
    cell.bold && !cell.provisional ? el("strong", {}, text) : text,
    el("small", {}, `n = ${runs}${cell.comparable ? "" : `, stopped at ${count(cell.steps)}`}`),
    ...(choice.details ? [el("small", {}, `IQM ${figure(cell.iqm)}${range(cell.interval)}`), el("small", {}, test)] : []),
  ];
};
section("scores", (body, controls) => {
  controls.replaceChildren(tick("details", "IQM and tests"));
  const [tasks, methods] = [data.tasks.filter(shownTask), methodNames.filter(shownMethod)];
  const cell = (task, method) => {
    const one = data.scores.find((found) => found.task === task && found.method === method);
    return one ? { value: one.sample[0], content: cellText(one), off: one.provisional } : { value: null, content: "–", off: true };
  };
  if (methods.length > tasks.length) {
    table(body, "scores-table", [text("Method"), ...tasks.map((task) => ({ title: task, note: data.basis[task] }))],
      methods.map((method) => [ofMethod(method), ...tasks.map((task) => cell(task, method))]));
  } else {
    table(body, "scores-table", [text("Task"), ...methods.map((method) => ({ content: named(method) }))],
      tasks.map((task) => [{ value: task, content: [task, el("small", {}, data.basis[task])] }, ...methods.map((method) => cell(task, method))]));
  }
}, () => !alone);

section("aggregate", (body) => {
  const charts = body.appendChild(el("div", { class: "charts" }));
  const here = data.aggregates.filter(shown);
  const between = ([low, high]) => (known(low) ? { value: low, content: `${low.toFixed(2)} to ${high.toFixed(2)}` } : { content: "too few seeds", off: true });
  table(charts, "aggregate-table", [text("Method"), { title: "IQM" }, { title: "95 % interval" }],
    here.map(({ method, iqm, interval }) => [ofMethod(method), { value: iqm, content: iqm.toFixed(2) }, between(interval)]));
  chart(charts, { title: "Performance profile", x: data.aggregates[0].levels, xName: "normalised score", xFormat: (x) => x.toFixed(2), yName: "share of runs above",
    lines: here.map(({ method, profile }) => ({ name: method, colour: colourOf(method), dash: data.methods[method].dash, y: profile })) });
}, () => data.aggregates.length > 1);

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
  const heads = methods.map((method, i) => ({ content: wide ? named(method) : [key(method), ` ${i + 1}`] }));
  const first = (method, i) => ({ value: method, content: wide ? named(method) : [`${i + 1} `, ...named(method)] });
  table(body, "improvement-table", [text("row beats column"), ...heads],
    methods.map((method, i) => [first(method, i), ...methods.map((other) => cell(method, other))]));
}, () => data.improvements.length > 0);

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
  const word = (x, y, content, more) => svg("text", { x, y, "text-anchor": "middle", ...more }, content);
  const drawing = svg("svg", {
    class: "map", viewBox: `0 0 ${edge + side + 2} ${edge + side + 2}`, role: "img", "data-frame": frame,
    "aria-label": `KL map of ${one.method}, ${one.seed === "mean" ? "mean of the seeds" : `seed ${one.seed}`}`,
  }, word(edge + side / 2, 11, "to policy"), word(-edge - side / 2, 10, "from policy", { transform: "rotate(-90)" }));
  rows.forEach((row, i) => {
    const middle = edge + (i + 0.5) * cell;
    drawing.append(word(edge - 11, middle + 4, i), word(middle, edge - 7, i));
    row.forEach((value, j) => {
      const [x, y] = [edge + j * cell, edge + i * cell];
      const fill = i === j ? "var(--sunken)" : known(value) ? heat(value) : "var(--line)";
      drawing.append(svg("rect", { x: x + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1, rx: 2, style: `fill: ${fill}` },
        svg("title", {}, `from ${i} to ${j}: ${figure(value)}`)));
      if (i === j || rows.length > 6 || !known(value)) return;
      const ink = { class: "value", style: `fill: ${farness(value) > 0.6 ? "#111" : "#fff"}` };
      drawing.append(word(x + cell / 2, y + cell / 2 + 3.5, value < 0.995 ? value.toFixed(2).slice(1) : value.toPrecision(2), ink));
    });
    const others = row.map((value, j) => (j === i || !known(value) ? Infinity : value));
    const near = others.indexOf(Math.min(...others));
    const place = { cx: edge + (near + 0.5) * cell, cy: middle, r: Math.min(cell * 0.46, 17) };
    if (Number.isFinite(others[near])) drawing.append(svg("circle", { class: "nearest-edge", ...place }), svg("circle", { class: "nearest", ...place }));
  });
  const when = el("span", { class: "muted" }, `${count(one.steps[frame])} steps`);
  return el("figure", { class: "card" }, el("figcaption", {}, ...named(one.method), when), drawing);
};
/** Lists of the tasks and seeds of `things`, which set `state`. */
const seedList = (things, state) => {
  const tasks = new Set(things.map((one) => one.task));
  const seeds = new Set(things.filter((one) => one.task === state.task).map((one) => one.seed));
  return [select("Task", [...tasks].map((task) => [task, task]), state.task, (value) => { state.task = value; }),
    select("Seed", [...seeds].map((seed) => [seed, seed === "mean" ? "mean of the seeds" : `seed ${seed}`]), state.seed, (value) => { state.seed = value; })];
};
section("maps", (body, controls) => {
  const here = data.maps.filter((one) => shown(one) && one.task === mapped.task && String(one.seed) === String(mapped.seed));
  const last = Math.max(1, ...here.map((one) => one.steps.at(-1)));
  const grid = body.appendChild(el("div", { class: "maps" }));
  const slider = el("input", {
    type: "range", id: "moment", min: 0, max: MOMENTS, value: mapped.moment, "aria-label": "Moment of training",
    oninput: () => { stop(); move(Number(slider.value)); },
  });
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
  const ramp = el("span", { class: "ramp", style: `background: linear-gradient(90deg, ${VIRIDIS.join()})` });
  body.append(el("div", { class: "ramp-legend" }, `near, up to ${figure(nearest)}`, ramp, `${figure(farthest)} far, logarithmic`));
}, () => data.maps.some(shown));

/** What each policy of a run did, by any metric that is logged per policy. */
const ensembles = data.runs.filter((run) => Object.keys(run.by_policy).length);
const looked = { task: ensembles[0]?.task, seed: ensembles[0]?.seed, metric: "return" };
section("policies", (body, controls) => {
  const families = [...new Set(ensembles.flatMap((run) => Object.keys(run.by_policy)))];
  const chosen = (run) => run.task === looked.task && String(run.seed) === String(looked.seed) && run.by_policy[looked.metric];
  const runs = shownRuns().filter((run) => ensembles.includes(run) && chosen(run));
  const metrics = families.map((name) => [name, metricName(name)]);
  controls.replaceChildren(select("Metric", metrics, looked.metric, (value) => { looked.metric = value; }), ...seedList(ensembles, looked));
  const charts = body.appendChild(el("div", { class: `charts ${runs.length === 1 ? "one" : ""}` }));
  for (const run of runs) {
    const follower = (policy) => ({ name: run.population ? `member ${policy}` : `follower ${policy}`, colour: `--c${(policy + 1) % 8}`, width: 1 });
    const leader = { name: "leader", colour: colourOf(run.method), width: 2.6 };
    const lines = run.by_policy[looked.metric].map((y, policy) => ({ y, ...(policy || run.population ? follower(policy) : leader) }));
    chart(charts, { title: run.method, note: run.name, x: run.x, lines, yName: metricName(looked.metric), ...along("env_steps") });
  }
  if (!runs.length) charts.append(el("p", { class: "empty" }, "No run with this task and seed is shown."));
  if (alone) policyTable(body, runs[0] ?? data.runs[0]);
}, () => ensembles.some((run) => shownRuns().includes(run)));
const policyTable = (body, run) => {
  const last = data.maps[0]?.maps.at(-1);
  const evaluated = run.deterministic.length > 0;
  const name = (policy) => (policy === run.leader ? el("strong", {}, `${policy}, the leader`) : `${policy}, ${run.population ? "member" : "follower"}`);
  const scores = evaluated ? [{ title: "Evaluated" }, { title: "Sampled" }] : [];
  table(body, "policies-table", [text("Policy"), { title: "In training" }, ...scores, ...(last ? [{ title: "KL to leader" }] : [])],
    run.trained.map((trained, policy) => [
      { value: policy, content: name(policy) }, number(trained),
      ...(evaluated ? [number(run.deterministic[policy]), number(run.sampled[policy])] : []),
      ...(last ? [policy === run.leader ? { value: 0, content: "" } : number(last[policy][run.leader])] : []),
    ]));
};

const replays = JSON.parse(find("replays").textContent);
const played = { run: Object.keys(replays)[0], handle: null, drawn: null };
const recorded = () => data.runs.filter((run) => run.name in replays && shownRuns().includes(run));
section("replay", (body, controls) => {
  const run = recorded().find((one) => one.name === played.run) ?? recorded()[0];
  const list = select("Run", recorded().map((one) => [one.name, one.name]), run.name, (value) => { played.run = value; });
  controls.replaceChildren(list, el("span", {}, ...named(run.method), ` on ${run.task}, run ${run.name}`));
  played.stage ??= el("div", { id: "replay-stage" });
  body.append(played.stage);
  if (played.drawn === run.name) return;
  played.handle?.destroy();
  [played.drawn, played.handle] = [run.name, EchelonReplay.mount(played.stage, replays[run.name])];
}, () => recorded().length > 0);
/** Policies after a number of steps, if the replay has several checkpoints. */
const replayAt = (steps) => {
  const [replay, run] = [replays[played.drawn], data.runs.find((one) => one.name === played.drawn)];
  const several = played.handle && replay.episodes.some((episode) => (episode.iteration ?? replay.iteration) !== replay.iteration);
  if (several) played.handle.at((steps / run.env_steps) * replay.iteration);
};

/** A chart per parameter of the physics, a line per policy. */
const tried = data.runs.filter((run) => run.robustness);
const changedRun = { name: tried[0]?.name };
section("robustness", (body, controls) => {
  const here = shownRuns().filter((run) => tried.includes(run));
  const run = here.find((one) => one.name === changedRun.name) ?? here[0];
  const { leader, plain, parameters, score, episodes, means, best } = run.robustness;
  controls.replaceChildren(select("Run", here.map((one) => [one.name, one.name]), run.name, (value) => { changedRun.name = value; }));
  const verdict = plain.length === 1 ? `It scores ${figure(means[0])} over all values`
    : best === leader ? `The leader is the most robust policy: ${figure(means[leader])} over all values`
    : `Policy ${best} is more robust than the leader: ${figures(means[best], means[leader]).join(" against ")} over all values`;
  body.append(el("p", {}, `${verdict}, ${episodes} episodes each; ${figure(plain[best])} in plain physics.`));
  const charts = body.appendChild(el("div", { class: "charts small" }));
  const look = (policy) => (policy === leader ? { name: "leader", colour: colourOf(run.method), width: 2.6 }
    : { name: `policy ${policy}`, colour: `--c${(policy + 1) % 8}`, width: 1 });
  for (const [name, { values, scores }] of Object.entries(parameters)) {
    chart(charts, { title: metricName(name), x: values, xName: metricName(name), xFormat: tickText, yName: metricName(score), height: 200,
      lines: scores.map((y, policy) => ({ y, ...look(policy) })) });
  }
}, () => shownRuns().some((run) => tried.includes(run)));

section("speed", (body) => {
  const rows = data.speed.filter(shown);
  const parts = [...new Set(rows.flatMap((row) => Object.keys(row.parts)))];
  const total = (row) => Object.values(row.parts).reduce((sum, value) => sum + value, 0);
  const longest = Math.max(...rows.map(total));
  const bar = (row) => {
    const told = Object.entries(row.parts).map(([part, seconds]) => [part, `${part} ${figure(seconds)} s`, seconds / total(row)]);
    const spans = told.map(([part, title, share]) => el("span", { class: `p${parts.indexOf(part) % 6}`, title, style: `flex: ${share} 0 0` }));
    const look = { class: "parts", role: "img", style: `width: ${(100 * total(row)) / longest}%` };
    return el("div", { ...look, "aria-label": told.map(([, title]) => title).join(", ") }, ...spans);
  };
  table(body, "speed-table", [text("Task"), text("Method"), { title: "Steps per second" }, { title: "Seconds of an iteration" }, text("Parts")],
    rows.map((row) => [{ value: row.task }, ofMethod(row.method), { value: row.rate, content: count(row.rate) }, number(total(row) || null),
      { value: total(row), content: bar(row) }]));
  body.append(el("div", { class: "legend" }, ...parts.map((part, i) => el("span", {}, el("i", { class: `p${i % 6}` }), part))));
}, () => data.speed.some(shown));

section("settings", (body) => data.settings.forEach(({ tasks, methods, rows }, i) => {
  if (!tasks.some(shownTask)) return;
  const kept = methods.map((method, k) => [method, k + 1]).filter(([method]) => shownMethod(method));
  if (data.tasks.length > 1) body.append(el("h3", {}, tasks.join(", ")));
  table(body, `settings-${i}`, [text("Setting"), ...kept.map(([method]) => ({ content: named(method), text: true }))],
    rows.map((row) => [{ value: row[0], content: el("code", {}, row[0]) }, ...kept.map(([, k]) => ({ value: row[k] }))]));
}), () => !alone && data.settings.length > 0);

section("runs", (body) => {
  const any = data.runs.some((run) => run.deterministic.length);
  const scores = [{ title: "Training score" }, ...(any ? [{ title: "Evaluated" }, { title: "Sampled" }] : [])];
  table(body, "runs-table", [text("Run"), text("Task"), text("Method"), { title: "Seed" }, ...scores, { title: "Steps" }, { title: "Time" }, text("Notes")],
    shownRuns().map((run) => [
      { value: run.name }, { value: run.task }, ofMethod(run.method), { value: run.seed }, number(run.training, !run.finished),
      ...(any ? [number(run.deterministic[run.leader]), number(run.sampled[run.leader])] : []),
      { value: run.env_steps, content: count(run.env_steps) }, { value: run.seconds, content: duration(run.seconds) },
      { value: run.notes.join("; "), off: true },
    ]));
}, () => !alone);
section("problems", (body) => {
  body.append(el("ul", {}, ...data.problems.map(([path, sentence]) => el("li", {}, el("code", {}, path), `: ${sentence}`))));
}, () => data.problems.length > 0);
section("next", (body) => {
  const [run] = data.runs;
  const [quoted, source] = [run.path, run.source].map((name) => (/^[\w./:-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`)); // untrusted
  const resume = ["the command that started it", "resume from its last checkpoint"];
  const evaluate = [`echelon evaluate ${quoted}`, "score every policy on episodes counted once; training returns lag behind"];
  const watch = [
    [`echelon record ${quoted} --format html`, "watch its policies in 3D; the next report shows them too"],
    ...(run.played ? [[`echelon play ${quoted}`, "watch and push them live in the browser"]] : []),
  ];
  const steps = run.source === "" ? [
    ...(run.finished ? [] : [resume]),
    ["echelon.evaluate(folder, make_env=...)", "in Python, with what made its environment: the run does not say how to make it"],
  ] : [
    ...(run.finished ? [] : [resume]), ...(run.deterministic.length ? [] : [evaluate]), ...(run.shown ? watch : []),
    [`echelon compare --tasks ${source} --seeds 5`, "train all algorithms with five seeds, and compare: one run says little"],
  ];
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
  const fold = el("summary", { class: "muted" }, runs.length === 1 ? "1 run" : `${runs.length} runs`);
  return el("div", { class: "method" }, box(`method ${method}`, method, key(method)), el("details", {}, fold, ...runs.map((run) => box(`run ${run.name}`, run.name))));
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
const several = [[data.runs.length, "runs"], [unfinished, "unfinished"], [data.tasks.length, "tasks"], [methodNames.length, "methods"]];
const facts = [...(alone ? [[data.runs[0].policies, "policies"]] : several),
  [count(total("env_steps")), "environment steps"], [duration(total("seconds")), "of training"]].filter(([value]) => value);
const oneOf = (name) => name.replace(/ies$/, "y").replace(/s$/, "");
find("facts").append(...facts.map(([value, name]) => el("div", {}, el("dt", {}, value === 1 ? oneOf(name) : name), el("dd", {}, value))));
document.documentElement.classList.toggle("alone", alone);
sections.sort((a, b) => (a.place.compareDocumentPosition(b.place) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
find("contents").append(...sections.filter(({ place }) => place.dataset.name).map(({ link }) => link));

const [root, system] = [document.documentElement, matchMedia("(prefers-color-scheme: dark)")];
const repaint = () => { root.style.colorScheme = root.dataset.theme = choice.theme || (system.matches ? "dark" : "light"); };
system.addEventListener("change", () => { repaint(); changed(); });
find("theme").addEventListener("click", () => { choice.theme = root.dataset.theme === "dark" ? "light" : "dark"; repaint(); changed(); });
repaint();
if (matchMedia("(max-width: 60rem)").matches) {
  find("selection").open = false;
  for (const { id, fold } of sections) fold.open = ["problems", "curves", "replay", "scores", "next"].includes(id);
}
let width = innerWidth; // A phone's address bar comes and goes.
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; changed(); } });
changed();
if (data.again) setTimeout(() => location.reload(), data.again * 1000); // written again while runs are trained
