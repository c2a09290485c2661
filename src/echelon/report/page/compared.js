/** What is compared: each seed once, at the same place of training, by evaluation where every run has one. As in
 * echelon/report/contents.py and comparison.py, but over the runs that are shown. */
(() => {
  const { choice, data, stats } = Report;
  const SAME_BUDGET = 1.05;

  /** A method's runs of a task, each seed once: of several the longest, the first of these. */
  Report.counted = (method, task) => Report.memo(`counted ${method} ${task}`, () => {
    const longest = new Map();
    for (const run of Report.runsOf(method, task)) if (!(longest.get(run.seed)?.envSteps >= run.envSteps)) longest.set(run.seed, run);
    return Report.runsOf(method, task).filter((run) => longest.get(run.seed) === run);
  });
  const evaluated = (run) => run.evaluation?.deterministic[run.evaluation.leader]?.[data.score] ?? NaN;

  Report.basis = (task) => Report.memo(`basis ${task}`, () => {
    if (choice.at !== null) return { evaluated: false, steps: choice.at, finished: true, chosen: true };
    const runs = Report.methods(task).flatMap((method) => Report.counted(method, task));
    const finished = runs.filter((run) => run.finished);
    const lengths = (finished.length ? finished : runs).map((run) => run.envSteps);
    const equal = finished.length > 0 && Math.max(...lengths) <= SAME_BUDGET * Math.min(...lengths);
    return {
      evaluated: equal && finished.every((run) => Number.isFinite(evaluated(run))),
      steps: equal ? null : Math.min(...lengths), finished: finished.length > 0, chosen: false,
    };
  });
  /** What the numbers of a task are, in words. */
  Report.basisText = (task) => {
    const { evaluated: measured, steps } = Report.basis(task);
    const name = Report.metricName(data.score);
    return `${measured ? "evaluated" : "training"} ${name}${steps === null ? "" : ` at ${Report.count(steps)} steps`}`;
  };

  const trainingScore = (run, steps) => {
    if (!run.curves[data.score]) return NaN;
    if (steps === null || (run.envSteps <= SAME_BUDGET * steps && !choice.at)) return run.final[data.score] ?? NaN;
    return stats.atStep(run.axes.env_steps, run.curves[data.score], steps);
  };
  /** Scores of a method's runs of a task: {values, steps, provisional, comparable}, or null. */
  Report.scored = (method, task) => Report.memo(`scored ${method} ${task}`, () => {
    const [basis, runs] = [Report.basis(task), Report.counted(method, task)];
    let { steps } = basis;
    let ready = basis.chosen ? runs.filter((run) => run.envSteps >= steps * (1 - 1e-9)) : basis.finished ? runs.filter((run) => run.finished) : runs;
    const comparable = ready.length > 0;
    if (!ready.length && runs.length && !basis.chosen) [ready, steps] = [runs, Math.min(...runs.map((run) => run.envSteps))];
    const values = stats.known(ready.map((run) => (basis.evaluated && comparable ? evaluated(run) : trainingScore(run, steps))));
    return values.length ? { values, steps, provisional: !(comparable && basis.finished), comparable } : null;
  });
  /** Scores that can be compared with those of other methods. */
  Report.scores = (method, task) => {
    const found = Report.scored(method, task);
    return found?.comparable ? found.values : [];
  };

  /** A cell per task and method: sample, p and Holm's. */
  Report.scoreCells = () => Report.memo("cells", () => {
    const cells = [];
    for (const task of Report.tasks()) {
      const here = Report.methods(task).flatMap((method) => {
        const scored = Report.scored(method, task);
        return scored ? [{ task, method, ...scored, sample: stats.sample(scored.values) }] : [];
      });
      const best = here.filter((cell) => cell.comparable).reduce((top, cell) => (top && top.sample.mean >= cell.sample.mean ? top : cell), null);
      here.forEach((cell) => Object.assign(cell, { best: cell === best, p: cell === best || !cell.comparable ? NaN : stats.welch(cell.sample, best.sample) }));
      cells.push(...here);
    }
    const corrected = stats.holm(cells.map((cell) => cell.p));
    cells.forEach((cell, i) => Object.assign(cell, { holm: corrected[i], bold: cell.best || cell.p > 0.05, boldHolm: cell.best || corrected[i] > 0.05 }));
    return cells;
  });
  /** Tasks on which two methods or more can be compared. */
  Report.contested = () => Report.memo("contested", () => Report.tasks().filter((task) => Report.methods(task).filter((method) => Report.scores(method, task).length).length > 1));

  /** Scores of a task by method, where 0 is the training return that runs started with and 1 the best method's mean. */
  const normalised = (task) => {
    const scores = new Map(Report.methods(task).map((method) => [method, Report.scores(method, task)]).filter(([, values]) => values.length));
    const runs = Report.methods(task).flatMap((method) => Report.counted(method, task));
    const starts = runs.map((run) => run.curves[data.score]?.find((value) => value !== null)).filter((value) => value !== undefined);
    const [low, high] = [stats.mean(starts), Math.max(...[...scores.values()].map(stats.mean))];
    return high > low ? new Map([...scores].map(([method, values]) => [method, values.map((value) => (value - low) / (high - low))])) : new Map();
  };
  /** Methods that ran every contested task: {method, strata, iqm}. */
  Report.aggregates = () => Report.memo("aggregates", () => {
    const tables = Report.contested().map(normalised);
    return Report.methods().map((method) => ({ method, strata: tables.map((table) => table.get(method)) }))
      .filter(({ strata }) => strata.length && strata.every(Boolean)).map((one) => ({ ...one, iqm: stats.iqm(one.strata.flat()) }));
  });

  /** How likely a run of one method beats one of another: {probability, strata, tested}, or null. */
  Report.improvement = (a, b) => {
    const pairs = Report.tasks().map((task) => [Report.scores(a, task), Report.scores(b, task)]).filter(([ours, theirs]) => ours.length && theirs.length);
    const tested = pairs.some(([ours, theirs]) => ours.length > 1 && theirs.length > 1);
    return pairs.length ? { probability: stats.meanImprovement(pairs.flat()), strata: pairs.flat(), tested } : null;
  };
  /** 95 % interval by resampling; undefined until it is computed, null where there is nothing to resample. */
  Report.interval = (name, strata) => (strata.every((values) => values.length < 2) ? null : Report.slowly(name, strata, `${name} ${JSON.stringify(strata)}`));
})();
