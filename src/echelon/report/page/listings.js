/** Speed, settings, runs, what could not be read, and what to do next. */
(() => {
  const { el, data, find, stats } = Report;
  const total = (parts) => Object.values(parts).reduce((sum, value) => sum + value, 0);

  // Parts of time are greys and hatchings: colours are the methods'.
  const parts = [...new Set(data.runs.flatMap((run) => Object.keys(run.throughput.parts)))];
  const look = (part) => `part p${parts.indexOf(part) % 6}`;
  const bar = (found, longest) => {
    const entries = Object.entries(found);
    const words = entries.map(([part, seconds]) => `${part} ${Report.figure(seconds)} s`).join(", ");
    // Flex factors that sum to less than 1 fill only that share, so they are shares themselves.
    const spans = entries.map(([part, seconds]) => el("span", { class: look(part), style: `flex: ${seconds / total(found)} 0 0` }));
    return el("div", { class: "parts-box" },
      el("div", { class: "parts", role: "img", "aria-label": words, title: words, style: `width: ${(100 * total(found)) / longest}%` }, ...spans));
  };
  Report.section("throughput", () => {
    const rows = Report.tasks().flatMap((task) => Report.methods(task).map((method) => {
      const runs = Report.runsOf(method, task);
      const rates = stats.known(runs.map((run) => run.throughput.rate)).sort((a, b) => a - b);
      const means = Object.fromEntries(parts.map((part) => [part, stats.known(runs.map((run) => run.throughput.parts[part] ?? null))]).filter(([, values]) => values.length)
        .map(([part, values]) => [part, stats.mean(values)]));
      return { task, method, rate: rates.length ? rates[Math.floor(rates.length / 2)] : NaN, means };
    }));
    const longest = Math.max(...rows.map((row) => total(row.means)));
    const manyTasks = Report.tasks().length > 1;
    Report.table("throughput-table", [...(manyTasks ? [{ title: "Task", text: true }] : []), { title: "Method", text: true }, { title: "Steps per second" }, { title: "Seconds of an iteration" }, { title: "Parts", text: true }],
      rows.map(({ task, method, rate, means }) => [...(manyTasks ? [{ value: task }] : []),
        { value: data.methods[method].name, content: Report.named(method) }, { value: rate, content: Report.count(rate) },
        { value: total(means), content: Report.figure(total(means) || NaN) }, { value: total(means), content: bar(means, longest) }]));
    find("throughput-table").append(el("div", { class: "legend" }, ...parts.map((part) => el("span", {}, el("i", { class: look(part) }), part))));
  }, () => Report.visible().some((run) => run.throughput.rate !== null || total(run.throughput.parts)));

  const tables = data.settings.filter((one) => one.rows.length);
  find("settings-tables").append(...tables.flatMap((one, i) => [data.tasks.length > 1 ? el("h3", {}, one.tasks.join(", ")) : "", el("div", { id: `settings-${i}` })]));
  Report.section("settings", () => tables.forEach((one, i) => {
    const kept = one.methods.map((name, k) => [name, k]).filter(([name]) => one.tasks.some((task) => Report.methods(task).some((method) => data.methods[method].name === name)));
    Report.table(`settings-${i}`, [{ title: "Setting", text: true }, ...kept.map(([name]) => ({ title: name, text: true }))],
      one.rows.map(([name, ...values]) => [{ value: name, content: el("code", {}, name) }, ...kept.map(([, k]) => ({ value: values[k] }))]));
  }), () => tables.length > 0 && !Report.alone);

  const COLLAPSE_FROM = 13;
  find("runs-all").open = data.runs.length < COLLAPSE_FROM;
  find("runs-all").querySelector("summary").textContent = `All ${data.runs.length} runs`;
  find("runs-all").addEventListener("toggle", () => Report.refresh("runs"));
  Report.section("runs", () => {
    if (!find("runs-all").open) return; // Many rows that nobody looks at.
    const evaluated = (run, mode) => run.evaluation?.[mode][run.evaluation.leader]?.[data.score] ?? NaN;
    const number = (value, off) => ({ value, content: Report.figure(value), off });
    const any = Report.visible().some((run) => run.evaluation);
    const columns = [{ title: "Run", text: true }, { title: "Task", text: true }, { title: "Method", text: true }, { title: "Seed" }, { title: "Training score" },
      ...(any ? [{ title: "Evaluated" }, { title: "Sampled" }] : []), { title: "Steps" }, { title: "Time" }, { title: "Notes", text: true }];
    Report.table("runs-table", columns, Report.visible().map((run) => Object.assign([
      { value: run.name }, { value: run.task }, { value: data.methods[run.method].name, content: Report.named(run.method) }, { value: run.seed },
      number(run.final[data.score] ?? NaN, !run.finished),
      ...(any ? [number(evaluated(run, "deterministic")), number(evaluated(run, "sampled"))] : []),
      { value: run.envSteps, content: Report.count(run.envSteps) }, { value: run.seconds ?? NaN, content: Report.duration(run.seconds ?? NaN) },
      { value: run.notes.join("; "), off: true },
    ], { run: run.index })));
  }, () => !Report.alone);

  find("problems").hidden = !data.problems.length;
  find("problem-list").append(...data.problems.map((problem) => el("li", {}, el("code", {}, problem.path), `: ${problem.sentence}`)));

  Report.section("next", () => {
    const [run] = data.runs;
    const quoted = /^[\w./-]+$/.test(run.path) ? run.path : `'${run.path.replaceAll("'", "'\\''")}'`; // names of folders are anybody's
    const steps = [
      ...(run.finished ? [] : [["go on", "the command that started it; it continues from its last checkpoint"]]),
      ...(run.evaluation ? [] : [[`echelon evaluate ${quoted}`, "score every policy on episodes counted once; training returns lag behind"]]),
      [`echelon record ${quoted} --format html`, "watch its policies in 3D; the next report shows them too"],
      [`echelon play ${quoted}`, "watch and push them live in the browser"],
      [`echelon compare --tasks ${run.task} --seeds 5`, "train all algorithms with five seeds, and compare: one run says little"],
    ];
    find("next-list").replaceChildren(...steps.map(([command, why]) => el("li", {}, el("code", {}, command), el("span", { class: "muted" }, why))));
  }, () => Report.alone);
})();
