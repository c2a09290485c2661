/** Methods compared: final scores, one number over all tasks, who beats whom, steps to reach, scores against a setting. */
(() => {
  const { el, svg, choice, data, find, stats } = Report;
  const SLIDER = 100;
  const several = !Report.alone;

  const longest = () => Math.max(...Report.visible().map((run) => run.envSteps), 1);
  const slider = el("input", {
    type: "range", min: 1, max: SLIDER, id: "at", "aria-label": "Compare at so many environment steps",
    oninput: () => { choice.at = Number(slider.value) >= SLIDER ? null : (longest() * Number(slider.value)) / SLIDER; Report.changed(); },
  });
  const told = el("output", { class: "muted", for: "at" });
  Report.onChange(() => {
    slider.value = choice.at === null ? SLIDER : Math.round((choice.at / longest()) * SLIDER);
    told.textContent = choice.at === null ? "at the end" : `at ${Report.count(choice.at)} steps`;
    slider.setAttribute("aria-valuetext", told.textContent);
  });
  find("scores-controls").append(el("label", { class: "pick", for: "at" }, "Compare"), slider, told,
    Report.tick("IQM and tests", "details", () => choice.details, (value) => { choice.details = value; }));

  const content = (cell) => {
    const { mean, deviation, runs } = cell.sample;
    const text = Report.pair(mean, deviation) + (!cell.bold && cell.boldHolm && cell.comparable ? " °" : "");
    const where = cell.comparable ? "" : `, stopped at ${Report.count(cell.steps)}`;
    const parts = [cell.bold && !cell.provisional ? el("strong", {}, text) : text, el("small", { class: "n" }, `n = ${runs}${where}`)];
    if (!choice.details) return parts;
    const interval = Report.interval("iqm", [cell.values]);
    const range = interval ? ` [${Report.figure(interval[0])}, ${Report.figure(interval[1])}]` : "";
    const test = cell.best ? "best mean" : Number.isNaN(cell.p) ? "not tested" : `p ${Report.probability(cell.p)}, Holm ${Report.probability(cell.holm)}`;
    return [...parts, el("small", {}, `IQM ${Report.figure(stats.iqm(cell.values))}${range}`), el("small", {}, test)];
  };
  Report.section("scores", () => {
    const [cells, tasks, methods] = [Report.scoreCells(), Report.tasks(), Report.methods()];
    const seeds = cells.some((cell) => cell.sample.runs < 2);
    const unequal = tasks.some((task) => Report.basis(task).steps !== null && !Report.basis(task).chosen && Report.basis(task).finished);
    const any = (wanted) => tasks.some((task) => Report.basis(task).evaluated === wanted);
    find("scores-caption").textContent = `The leader's ${Report.metricName(data.score)}, mean ± deviation over n runs, each seed counted once. `
      + (any(true) ? "Evaluated: deterministic actions at the end of training, every episode counted once. " : "")
      + (any(false) ? "Training: mean over the last twentieth of training, which lags behind what the policy can do. " : "")
      + (unequal ? "Runs of different length are compared where the shortest finished one ends. " : "")
      + "Bold, as in the paper: the best mean of a task and all that do not differ from it by Welch's t-test (p > 0.05). "
      + (cells.some((cell) => !cell.bold && cell.boldHolm && cell.comparable) ? "° marks what no longer differs once Holm's correction counts every comparison in this table. " : "")
      + (cells.some((cell) => cell.provisional) ? "Grey scores are provisional: these runs have not finished. " : "")
      + (seeds ? "A single run cannot be tested." : "");
    const cell = (task, method) => {
      const one = cells.find((found) => found.task === task && found.method === method);
      return one ? { value: one.sample.mean, content: content(one), off: one.provisional } : { value: NaN, content: "–", off: true };
    };
    if (methods.length > tasks.length) {
      Report.table("scores-table", [{ title: "Method", text: true }, ...tasks.map((task) => ({ title: task, note: Report.basisText(task) }))],
        methods.map((method) => [{ value: data.methods[method].name, content: Report.named(method) }, ...tasks.map((task) => cell(task, method))]));
    } else {
      Report.table("scores-table", [{ title: "Task", text: true }, ...methods.map((method) => ({ title: data.methods[method].name, swatch: Report.colour(method) }))],
        tasks.map((task) => [{ value: task, content: [task, el("small", {}, Report.basisText(task))] }, ...methods.map((method) => cell(task, method))]));
    }
  }, () => several);

  /** A dot with its interval on a line from `low` to `high`. */
  const intervalPlot = (method, value, interval, [low, high]) => {
    const x = (number) => ((number - low) / (high - low)) * 160;
    return svg("svg", { class: `interval ${Report.colour(method)}`, viewBox: "-5 0 170 18", "aria-hidden": "true" },
      svg("line", { class: "half", x1: 0, x2: 160, y1: 9, y2: 9 }),
      interval ? svg("line", { x1: x(interval[0]), x2: x(interval[1]), y1: 9, y2: 9 }) : "", svg("circle", { cx: x(value), cy: 9, r: 5 }));
  };
  const rangeText = (interval) => (interval ? `${interval[0].toFixed(2)} to ${interval[1].toFixed(2)}` : interval === null ? "too few runs" : "…");
  Report.section("aggregate", () => {
    const [found, tasks] = [Report.aggregates(), Report.contested()];
    const left = Report.methods().filter((method) => !found.some((one) => one.method === method)).map((method) => data.methods[method].name);
    find("aggregate-caption").textContent = `Over the ${tasks.length} tasks that two or more methods ran, on a scale where 0 is the return that training started with and 1 the mean of `
      + "the task's best method. The interquartile mean of all runs with its 95 % stratified bootstrap interval; on the right the share of runs that end above a score, tasks counted alike."
      + (left.length ? ` Without ${left.join(", ")}, which did not run all of them.` : "");
    const intervals = found.map((one) => Report.interval("iqm", one.strata));
    const ends = found.flatMap((one, i) => [one.iqm, ...(intervals[i] ?? [])]);
    const range = [Math.min(0, ...ends), Math.max(1, ...ends)];
    Report.table("aggregate-table", [{ title: "Method", text: true }, { title: "IQM", note: "95 % interval" }, { title: `${Report.figure(range[0])} … ${Report.figure(range[1])}`, text: true }],
      found.map((one, i) => [
        { value: data.methods[one.method].name, content: Report.named(one.method) }, { value: one.iqm, content: [one.iqm.toFixed(2), el("small", {}, rangeText(intervals[i]))] },
        { value: one.iqm, content: intervalPlot(one.method, one.iqm, intervals[i], range) },
      ]));
    const levels = Array.from({ length: 101 }, (_, i) => range[0] + ((range[1] - range[0]) * i) / 100);
    find("aggregate-chart").replaceChildren();
    Report.card(find("aggregate-chart"), "Performance profile", {
      series: found.map((one) => ({ name: data.methods[one.method].name, label: data.methods[one.method].name, method: one.method, colour: Report.colour(one.method),
        dash: Report.dash(one.method), x: levels, y: Report.profile(one, levels) })),
      xLabel: "normalised score", xFormat: (x) => x.toFixed(2), describe: "Share of runs above a normalised score, a line per method",
    });
  }, () => several && Report.contested().length > 1 && Report.aggregates().length > 1);
  /** Share of runs above each level, every task counted alike. */
  Report.profile = (one, levels) => levels.map((level) => stats.mean(one.strata.map((values) => values.filter((value) => value > level).length / values.length)));

  /** Methods as heads of columns: numbers that the rows explain, where names would not fit. */
  const NUMBERS_FROM = 7;
  const heads = (methods) => methods.map((method, i) => ({ title: methods.length < NUMBERS_FROM ? data.methods[method].name : `${i + 1}`, swatch: Report.colour(method) }));
  const rowHead = (method, methods) => ({
    value: data.methods[method].name, content: [methods.length < NUMBERS_FROM ? null : el("span", { class: "muted" }, `${methods.indexOf(method) + 1} `), ...Report.named(method)],
  });

  /** The row's method against the column's: darker where it wins more often, bold where the interval stays on one side. */
  Report.section("improvement", () => {
    const methods = Report.methods().filter((method) => Report.tasks().some((task) => Report.scores(method, task).length));
    const cell = (a, b) => {
      const found = a === b ? null : Report.improvement(a, b);
      if (!found) return { value: NaN, content: a === b ? "" : "–", off: true };
      const first = a < b ? found : Report.improvement(b, a); // Each pair is resampled once.
      const drawn = first.tested ? Report.interval("improvement", first.strata) : null;
      const interval = drawn && (a < b ? drawn : [1 - drawn[1], 1 - drawn[0]]);
      const sure = interval && (interval[0] > 0.5 || interval[1] < 0.5);
      const text = found.probability.toFixed(2);
      const range = rangeText(interval);
      const share = interval === null ? 0 : Math.round(Math.abs(found.probability - 0.5) * 90);
      return {
        value: found.probability, title: `${data.methods[a].name} beats ${data.methods[b].name}: ${text}, ${interval === null ? range : `95 % interval ${range}`}`,
        style: `background: color-mix(in srgb, var(${found.probability > 0.5 ? "--more" : "--less"}) ${share}%, var(--surface))`,
        content: [sure ? el("strong", {}, text) : text, methods.length <= 5 ? el("small", {}, range) : null],
      };
    };
    Report.table("improvement-table", [{ title: "Row beats column", text: true }, ...heads(methods)],
      methods.map((method) => [rowHead(method, methods), ...methods.map((other) => cell(method, other))]));
    drawReach();
  }, () => several && Report.contested().length > 0);

  const drawReach = () => {
    const methods = Report.methods();
    const manyTasks = Report.tasks().length > 1;
    const final = (method, task) => stats.known(Report.counted(method, task).filter((run) => run.finished).map((run) => run.final[data.score] ?? null));
    const rows = Report.tasks().flatMap((task) => Report.methods(task).map((method) => {
      const curve = Report.methodBand(method, task, data.score, "env_steps", "mean");
      return [...(manyTasks ? [{ value: task }] : []), rowHead(method, methods), ...methods.map((other) => {
        const values = final(other, task);
        const theirs = values.length && other !== method ? Report.methodBand(other, task, data.score, "env_steps", "mean") : null;
        if (!curve || !theirs) return { value: NaN, content: other === method ? "" : "–", off: true };
        const steps = stats.reaches(curve, stats.mean(values));
        if (Number.isNaN(steps)) return { value: Infinity, content: "never", off: true };
        return { value: steps, content: `${Report.count(steps)} (${(steps / theirs.x[theirs.x.length - 1]).toFixed(2)} ×)` };
      })];
    }));
    Report.table("reach-table", [...(manyTasks ? [{ title: "Task", text: true }] : []), { title: "Method", text: true },
      ...heads(methods).map((head) => ({ ...head, title: `${head.title}'s score` }))], rows);
    find("reach").hidden = !rows.flat().some((cell) => cell.value === Infinity || Number.isFinite(cell.value)); // none has finished
  };

  /** Score against the value of a setting: methods that differ in it alone. */
  const sweeps = () => data.sweeps.map((sweep) => ({ ...sweep, points: sweep.points.filter(([, method]) => Report.scores(method, sweep.task).length) }))
    .filter((sweep) => sweep.points.length > 1);
  Report.section("sweeps", () => {
    const host = find("sweeps-charts");
    host.replaceChildren();
    for (const { task, setting, points } of sweeps()) {
      const values = points.map(([, method]) => Report.scores(method, task));
      const ends = values.map((one) => Report.interval("mean", [one]) ?? [stats.mean(one), stats.mean(one)]);
      // Values of a setting are seldom evenly spaced, so they stand side by side.
      Report.card(host, setting.replaceAll(".", " ").replaceAll("_", " "), {
        series: [{ name: Report.basisText(task), colour: "ink", points: true, x: points.map((_, i) => i), y: values.map(stats.mean), low: ends.map(([low]) => low), high: ends.map(([, high]) => high) }],
        xTicks: points.map(([value], i) => [i, String(value)]), xLabel: setting, xFormat: (x) => String(points[Math.max(0, Math.min(points.length - 1, Math.round(x)))][0]), interval: true,
        describe: `${Report.basisText(task)} on ${task} against ${setting}`,
      }, task);
    }
  }, () => sweeps().length > 0);
})();
