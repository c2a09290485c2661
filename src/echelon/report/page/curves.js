/** Charts of methods over training: scores, coupling, discriminator. */
(() => {
  const { el, choice, data, find } = Report;
  const AXES = { env_steps: "environment steps", wall_s: "of training", gradient_steps: "gradient steps" };
  const AXIS_TITLES = { env_steps: "Environment steps", wall_s: "Wall clock", gradient_steps: "Gradient steps" };
  const SMALL_FROM = 4; // charts beside each other from which on they are small
  const cache = new Map();

  /** A method's runs of a task taken together; remembered, since every change draws everything. */
  Report.methodBand = (method, task, metric, axis, statistic) => {
    const runs = Report.counted(method, task).filter((run) => run.curves[metric] && run.axes[axis]);
    const key = [metric, axis, statistic, ...runs.map((run) => run.index)].join();
    if (cache.has(key)) return cache.get(key);
    const curves = runs.map((run) => ({ x: run.axes[axis], y: run.curves[metric] }));
    if (statistic === "iqm" && runs.length > 1) return Report.slowly("band", curves, `band ${key}`) ?? Report.stats.band(curves, "mean");
    cache.set(key, Report.stats.band(curves, statistic));
    return cache.get(key);
  };

  const series = (task, metric, axis, statistic) => Report.methods(task).flatMap((method) => {
    const band = Report.methodBand(method, task, metric, axis, statistic);
    if (!band) return [];
    const look = { colour: Report.colour(method), method };
    const single = choice.single ? Report.runsOf(method, task).filter((run) => run.curves[metric] && run.axes[axis]).map((run) => (
      { ...look, x: run.axes[axis], y: run.curves[metric], weight: "faint", run: run.index })) : [];
    const name = data.methods[method].name;
    return [...single, { ...look, ...band, name, label: Report.alone ? null : name, dash: Report.dash(method) }];
  });
  const format = (axis) => (axis === "wall_s" ? Report.duration : undefined);

  /** One chart per task, small where there are many, and a legend if lines could not be named. */
  const draw = (host, metric, axis, statistic, marks) => {
    const tasks = Report.tasks().filter((task) => Report.visible().some((run) => run.task === task && run.curves[metric]));
    host.replaceChildren();
    host.classList.toggle("one", tasks.length === 1);
    host.classList.toggle("small", tasks.length >= SMALL_FROM);
    let named = true;
    for (const task of tasks) {
      const lines = series(task, metric, axis, statistic);
      if (!lines.length) continue;
      named = Report.card(host, task, {
        series: lines, marks: marks?.(task), xLabel: AXES[axis], xFormat: format(axis), interval: statistic === "iqm", small: tasks.length >= SMALL_FROM,
        describe: `${Report.metricName(metric)} on ${task} against ${AXES[axis]}, a line per method`,
      }) && named;
    }
    if (!host.childElementCount) host.append(el("p", { class: "empty" }, "All runs are hidden."));
    else if (!named) host.prepend(Report.legend(Report.methods()));
  };

  const leaderMetrics = () => [...new Set(data.runs.flatMap((run) => Object.keys(run.curves)))].filter((name) => name.endsWith("/leader"));
  find("curves-controls").append(
    Report.segments("Horizontal axis", () => Object.entries(AXIS_TITLES).filter(([axis]) => data.runs.some((run) => run.axes[axis])),
      () => choice.axis, (value) => { choice.axis = value; }),
    ...(Report.alone ? [] : [Report.segments("Statistic", () => [["mean", "Mean ± deviation"], ["iqm", "IQM, 95 % interval"]],
      () => choice.statistic, (value) => { choice.statistic = value; })]),
    Report.select("Quantity", () => leaderMetrics().map((name) => [name, Report.metricName(name)]), () => choice.metric, (value) => { choice.metric = value; }),
    ...(Report.alone ? [] : [Report.tick("single runs", "single", () => choice.single, (value) => { choice.single = value; })]));
  Report.section("curves", () => {
    const centre = choice.statistic === "mean" ? "mean over runs, the band one standard deviation to either side"
      : "interquartile mean over runs, the band its 95 % stratified bootstrap interval";
    const against = AXES[choice.axis].replace("of training", "the time of training");
    find("curves-caption").textContent = Report.alone ? `The leader's ${Report.metricName(choice.metric)} in training episodes, against ${against}.`
      : `The leader's ${Report.metricName(choice.metric)} in training episodes, against ${against}. The line is the ${centre}; pale and dashed where fewer runs go on than at most.`;
    draw(find("curves-charts"), choice.metric, choice.axis, choice.statistic);
  });

  const COUPLING = { is_deviation: "IS deviation", ess: "Effective sample size", "kl/follower_to_leader": "KL to the leader" };
  const measured = (metric) => Report.visible().some((run) => run.curves[metric]?.some((value) => value !== null));
  const shown = Object.entries(COUPLING).filter(([metric]) => measured(metric));
  choice.coupling ??= shown[0]?.[0] ?? null;
  find("coupling-controls").append(Report.segments("Quantity", () => shown, () => choice.coupling, (value) => { choice.coupling = value; }));
  Report.section("coupling", () => draw(find("coupling-charts"), choice.coupling, "env_steps", "mean"), () => Object.keys(COUPLING).some(measured));
  Report.section("adversary", () => draw(find("adversary-charts"), "adversary/loss", "env_steps", "mean", (task) => {
    const sizes = new Set(Report.visible().filter((run) => run.task === task && run.curves["adversary/loss"]).map((run) => run.policies));
    return [...sizes].map((size) => ({ y: Math.log(size), label: `ln ${size}: a blind guess` }));
  }), () => measured("adversary/loss"));
})();
