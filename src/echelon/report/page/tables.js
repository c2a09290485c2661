/** Tables: final scores, who beats whom, steps to reach, settings, runs. Every column sorts. */
(() => {
  const { el, svg, data, find, stats } = Report;
  const sorted = {}; // table id: {column, down}

  /** A table. Columns are {title, text, swatch}; cells {value, content, off}; `value` is what a column sorts by. */
  const table = (id, columns, rows) => {
    const order = sorted[id];
    const body = order ? [...rows].sort((a, b) => compare(a[order.column].value, b[order.column].value) * (order.down ? -1 : 1)) : rows;
    const sort = (column) => {
      sorted[id] = { column, down: order?.column === column ? !order.down : !columns[column].text };
      Report.changed();
      find(id).querySelectorAll("thead button")[column].focus();
    };
    const heads = columns.map((column, index) => el("th", {
      scope: "col", class: column.text ? "text" : null,
      "aria-sort": order?.column === index ? (order.down ? "descending" : "ascending") : null,
    }, el("button", { type: "button", onclick: () => sort(index) }, column.swatch ? Report.swatch(column.swatch) : null, column.title)));
    find(id).replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {},
      ...body.map((row) => el("tr", { "data-run": row.run }, ...row.map((cell, index) => el(index ? "td" : "th", {
        scope: index ? null : "row", class: [columns[index].text ? "text" : "", cell.off ? "off" : ""].join(" ").trim() || null,
      }, ...[cell.content ?? cell.value].flat())))))));
  };
  const compare = (a, b) => {
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
    return (Number.isFinite(a) ? a : -Infinity) - (Number.isFinite(b) ? b : -Infinity);
  };
  const named = (method) => [Report.swatch(Report.colour(method)), data.methods[method].name];

  /** Final scores of a method's finished runs that are not hidden. */
  Report.scores = (method, task) => stats.known(Report.runsOf(method, task).filter((run) => run.finished).map((run) => run.final[data.score] ?? null));

  /** A cell per task and method: sample, IQM, p and Holm's. */
  Report.scoreCells = () => {
    const cells = [];
    for (const task of Report.tasks()) {
      const here = Report.methods(task).map((method) => ({ task, method, values: Report.scores(method, task) })).filter((cell) => cell.values.length);
      here.forEach((cell) => Object.assign(cell, { sample: stats.sample(cell.values) }));
      const best = here.reduce((top, cell) => (top && top.sample.mean >= cell.sample.mean ? top : cell), null);
      here.forEach((cell) => Object.assign(cell, { best: cell === best, p: cell === best ? NaN : stats.welch(cell.sample, best.sample) }));
      cells.push(...here);
    }
    const corrected = stats.holm(cells.map((cell) => cell.p));
    cells.forEach((cell, i) => Object.assign(cell, { holm: corrected[i], bold: cell.best || cell.p > 0.05, boldHolm: cell.best || corrected[i] > 0.05 }));
    return cells;
  };

  const scoreContent = (cell) => {
    const { mean, deviation, runs } = cell.sample;
    const text = `${Report.figure(mean)}${runs > 1 ? ` ± ${Report.figure(deviation)}` : ""}`;
    const mark = !cell.bold && cell.boldHolm ? " °" : "";
    const interval = runs > 1 ? stats.bootstrap([cell.values], (values) => stats.iqm(values)) : null;
    const range = interval ? ` [${Report.figure(interval[0])}, ${Report.figure(interval[1])}]` : "";
    const test = cell.best ? "best mean" : Number.isNaN(cell.p) ? "one run: not tested" : `p ${Report.probability(cell.p)}, Holm ${Report.probability(cell.holm)}`;
    return [cell.bold ? el("strong", {}, text) : text, mark, el("small", {}, `IQM ${Report.figure(stats.iqm(cell.values))}${range}`), el("small", {}, test)];
  };
  Report.onChange(() => {
    const cells = Report.scoreCells();
    const methods = Report.methods();
    find("scores-caption").textContent = `The leader's ${Report.metricName(data.score)} at the end of training, mean ± deviation over finished runs. `
      + "Bold, as in the paper: the best mean of a task and all that do not differ from it by Welch's t-test (p > 0.05). "
      + "° marks what no longer differs once Holm's correction counts every comparison in this table.";
    table("scores-table", [{ title: "Task", text: true }, ...methods.map((method) => ({ title: data.methods[method].name, swatch: Report.colour(method) }))],
      Report.tasks().map((task) => [{ value: task }, ...methods.map((method) => {
        const cell = cells.find((one) => one.task === task && one.method === method);
        return cell ? { value: cell.sample.mean, content: scoreContent(cell) } : { value: NaN, content: "–", off: true };
      })]));
  });

  const intervalPlot = (method, probability, [low, high]) => svg("svg", { class: `interval ${Report.colour(method)}`, viewBox: "-4 0 168 18", "aria-hidden": "true" },
    svg("line", { class: "half", x1: 80, x2: 80, y1: 0, y2: 18 }), svg("line", { x1: low * 160, x2: high * 160, y1: 9, y2: 9 }),
    svg("circle", { cx: probability * 160, cy: 9, r: 5 }));
  /** Each pair once, the likelier winner first. */
  Report.improvements = () => {
    const methods = Report.methods();
    return methods.flatMap((a, i) => methods.slice(i + 1).flatMap((b) => {
      const pairs = Report.tasks().map((task) => [Report.scores(a, task), Report.scores(b, task)]).filter(([ours, theirs]) => ours.length && theirs.length);
      if (!pairs.length) return [];
      const probability = (flat) => stats.mean(flat.flatMap((_, k) => (k % 2 ? [] : [stats.improvement(flat[k], flat[k + 1])])));
      const found = probability(pairs.flat());
      const [low, high] = stats.bootstrap(pairs.flat(), (...strata) => probability(strata));
      return [found >= 0.5 ? { method: a, other: b, probability: found, interval: [low, high] } : { method: b, other: a, probability: 1 - found, interval: [1 - high, 1 - low] }];
    }));
  };
  Report.onChange(() => {
    const rows = Report.improvements();
    find("improvement").hidden = !rows.length;
    table("improvement-table", [{ title: "Method", text: true }, { title: "beats", text: true }, { title: "Probability" }, { title: "95 % interval" }, { title: "0 … ½ … 1", text: true }],
      rows.map((row) => [
        { value: data.methods[row.method].name, content: named(row.method) }, { value: data.methods[row.other].name, content: named(row.other) },
        { value: row.probability, content: row.probability.toFixed(2) }, { value: row.interval[0], content: `${row.interval[0].toFixed(2)} to ${row.interval[1].toFixed(2)}` },
        { value: row.probability, content: intervalPlot(row.method, row.probability, row.interval) },
      ]));
  });

  Report.onChange(() => {
    const methods = Report.methods();
    const several = data.tasks.length > 1;
    const rows = Report.tasks().flatMap((task) => Report.methods(task).map((method) => {
      const curve = Report.methodBand(method, task, data.score, "env_steps", "mean");
      return [...(several ? [{ value: task }] : []), { value: data.methods[method].name, content: named(method) }, ...methods.map((other) => {
        const values = Report.scores(other, task);
        const theirs = values.length && other !== method ? Report.methodBand(other, task, data.score, "env_steps", "mean") : null;
        if (!curve || !theirs) return { value: NaN, content: other === method ? "" : "–", off: true };
        const steps = stats.reaches(curve, stats.mean(values));
        if (Number.isNaN(steps)) return { value: Infinity, content: "never", off: true };
        return { value: steps, content: `${Report.count(steps)} (${(steps / theirs.x[theirs.x.length - 1]).toFixed(2)} ×)` };
      })];
    }));
    table("reach-table", [...(several ? [{ title: "Task", text: true }] : []), { title: "Method", text: true },
      ...methods.map((method) => ({ title: `${data.methods[method].name}'s score`, swatch: Report.colour(method) }))], rows);
  });

  const withRows = data.settings.filter((one) => one.rows.length);
  find("settings").hidden = !withRows.length;
  find("settings-tables").append(...withRows.flatMap((one, i) => [data.tasks.length > 1 ? el("h3", {}, one.task) : "", el("div", { class: "scroll", id: `settings-${i}` })]));
  Report.onChange(() => withRows.forEach((one, i) => {
    const kept = one.methods.map((name, k) => [name, k]).filter(([name]) => Report.methods(one.task).some((method) => data.methods[method].name === name));
    table(`settings-${i}`, [{ title: "Setting", text: true }, ...kept.map(([name]) => ({ title: name, text: true }))],
      one.rows.map(([name, ...values]) => [{ value: name, content: el("code", {}, name) }, ...kept.map(([, k]) => ({ value: values[k] }))]));
  }));

  Report.onChange(() => {
    const columns = [{ title: "Run", text: true }, { title: "Task", text: true }, { title: "Method", text: true }, { title: "Seed" }, { title: "Score" },
      { title: "Steps" }, { title: "Time" }, { title: "Notes", text: true }];
    table("runs-table", columns, Report.visible().map((run) => Object.assign([
      { value: run.name }, { value: run.task }, { value: data.methods[run.method].name, content: named(run.method) }, { value: run.seed },
      { value: run.final[data.score] ?? NaN, content: Report.figure(run.final[data.score] ?? NaN), off: !run.finished },
      { value: run.envSteps, content: Report.count(run.envSteps) }, { value: run.seconds ?? NaN, content: Report.duration(run.seconds ?? NaN) },
      { value: run.notes.join("; "), off: true },
    ], { run: run.index })));
  });

  const parts = [...new Set(data.runs.flatMap((run) => Object.keys(run.throughput.parts)))];
  const PART_COLOURS = { collect: "c1", update: "c0", targets: "c4", diagnostics: "c3", read: "c6" };
  const partColour = (part) => PART_COLOURS[part] ?? `c${(parts.indexOf(part) + 5) % 8}`;
  Report.onChange(() => {
    const longest = Math.max(...data.runs.map((run) => total(run)));
    table("throughput-table", [{ title: "Run", text: true }, { title: "Steps per second" }, { title: "Seconds of an iteration" }, { title: "Parts", text: true }],
      Report.visible().map((run) => Object.assign([
        { value: run.name, content: [Report.swatch(Report.colour(run.method)), run.name] }, { value: run.throughput.rate ?? NaN, content: Report.count(run.throughput.rate ?? NaN) },
        { value: total(run), content: Report.figure(total(run)) }, { value: total(run), content: bar(run, longest) },
      ], { run: run.index })));
    find("throughput-table").append(el("div", { class: "legend" }, ...parts.map((part) => el("span", {}, Report.swatch(partColour(part)), part))));
  });
  const total = (run) => Object.values(run.throughput.parts).reduce((sum, value) => sum + value, 0);
  const bar = (run, longest) => {
    const entries = Object.entries(run.throughput.parts);
    const words = entries.map(([part, seconds]) => `${part} ${Report.figure(seconds)} s`).join(", ");
    // Flex factors that sum to less than 1 fill only that share, so they are shares themselves.
    const spans = entries.map(([part, seconds]) => el("span", { class: partColour(part), style: `flex: ${seconds / total(run)} 0 0` }));
    return el("div", { class: "parts-box" },
      el("div", { class: "parts", role: "img", "aria-label": words, title: words, style: `width: ${(100 * total(run)) / longest}%` }, ...spans));
  };

  find("problems").hidden = !data.problems.length;
  find("problem-list").append(...data.problems.map((problem) => el("li", {}, el("code", {}, problem.path), `: ${problem.sentence}`)));
})();
