/** Charts of methods over training: scores, coupling, discriminator. */
(() => {
  const { el, choice, data, find } = Report;
  const AXES = { env_steps: "environment steps", wall_s: "of training", gradient_steps: "gradient steps" };
  const AXIS_TITLES = { env_steps: "Environment steps", wall_s: "Wall clock", gradient_steps: "Gradient steps" };
  const cache = new Map();

  /** A method's runs of a task taken together; remembered, since every change draws everything. */
  Report.methodBand = (method, task, metric, axis, statistic) => {
    const runs = Report.runsOf(method, task).filter((run) => run.curves[metric] && run.axes[axis]);
    const key = [metric, axis, statistic, ...runs.map((run) => run.index)].join();
    if (!cache.has(key)) cache.set(key, Report.stats.band(runs.map((run) => ({ x: run.axes[axis], y: run.curves[metric] })), statistic));
    return cache.get(key);
  };

  const series = (task, metric, axis, statistic) => Report.methods(task).flatMap((method) => {
    const band = Report.methodBand(method, task, metric, axis, statistic);
    if (!band) return [];
    const look = { colour: Report.colour(method), method };
    const single = choice.single ? Report.runsOf(method, task).filter((run) => run.curves[metric] && run.axes[axis]).map((run) => (
      { ...look, x: run.axes[axis], y: run.curves[metric], weight: "faint", run: run.index })) : [];
    const name = data.methods[method].name;
    return [...single, { ...look, ...band, name, label: name, dash: Report.dash(method) }];
  });
  const format = (axis) => (axis === "wall_s" ? Report.duration : undefined);

  /** One chart per task and metric. Metrics are [name, title]; a title stands before the task's name. */
  const draw = (host, metrics, axis, statistic, marks) => {
    const wanted = metrics.flatMap(([metric, title]) => Report.tasks()
      .filter((task) => Report.visible().some((run) => run.task === task && run.curves[metric])).map((task) => ({ metric, title, task })));
    host.replaceChildren();
    host.classList.toggle("one", wanted.length === 1);
    for (const { metric, title, task } of wanted) {
      const lines = series(task, metric, axis, statistic);
      if (!lines.length) continue;
      Report.card(host, title ?? task, {
        series: lines, marks: marks?.(task), xLabel: AXES[axis], xFormat: format(axis), interval: statistic === "iqm",
        describe: `${Report.metricName(metric)} on ${task} against ${AXES[axis]}, a line per method`,
      }, title && Report.tasks().length > 1 ? task : null);
    }
    if (!host.childElementCount) host.append(el("p", { class: "empty" }, "All runs are hidden."));
  };

  const leaderMetrics = () => [...new Set(data.runs.flatMap((run) => Object.keys(run.curves)))].filter((name) => name.endsWith("/leader"));
  find("curves-controls").append(
    Report.segments("Horizontal axis", () => Object.entries(AXIS_TITLES).filter(([axis]) => data.runs.some((run) => run.axes[axis])),
      () => choice.axis, (value) => { choice.axis = value; }),
    Report.segments("Statistic", () => [["mean", "Mean ± deviation"], ["iqm", "IQM, 95 % interval"]],
      () => choice.statistic, (value) => { choice.statistic = value; }),
    Report.select("Quantity", () => leaderMetrics().map((name) => [name, Report.metricName(name)]), () => choice.metric, (value) => { choice.metric = value; }),
    (() => {
      const input = el("input", { type: "checkbox", id: "single", onchange: () => { choice.single = input.checked; Report.changed(); } });
      return el("label", { class: "pick" }, input, "single runs");
    })());
  Report.onChange(() => {
    const centre = choice.statistic === "mean" ? "mean over runs, the band one standard deviation to either side"
      : "interquartile mean over runs, the band its 95 % stratified bootstrap interval";
    find("curves-caption").textContent = `The leader's ${Report.metricName(choice.metric)} against ${AXES[choice.axis].replace("of training", "the time of training")}. `
      + `The line is the ${centre}; where some runs are shorter, of those that got that far.`;
    draw(find("curves-charts"), [[choice.metric]], choice.axis, choice.statistic);
  });

  const COUPLING = { is_deviation: "IS deviation", ess: "Effective sample size", "kl/follower_to_leader": "KL from followers to the leader" };
  const measured = (metric) => data.runs.some((run) => run.curves[metric]?.some((value) => value !== null));
  const shown = Object.keys(COUPLING).filter(measured);
  find("coupling").hidden = !shown.length;
  if (shown.length) Report.onChange(() => draw(find("coupling-charts"), shown.map((metric) => [metric, COUPLING[metric]]), "env_steps", "mean"));

  find("adversary").hidden = !measured("adversary/loss");
  if (measured("adversary/loss")) {
    Report.onChange(() => draw(find("adversary-charts"), [["adversary/loss"]], "env_steps", "mean", (task) => {
      const sizes = new Set(Report.visible().filter((run) => run.task === task && run.curves["adversary/loss"]).map((run) => run.policies));
      return [...sizes].map((size) => ({ y: Math.log(size), label: `ln ${size}: a blind guess` }));
    }));
  }
})();
