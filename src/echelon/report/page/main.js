/** The head of the page, light and dark, the list of sections; then everything is drawn once. */
(() => {
  const { el, data, find, choice } = Report;

  /** Words of the page that speak of several runs, for one. */
  const ALONE = {
    "curves-title": "How it learned", "policies-title": "What each policy is", "kicker": "Run",
    "policies-caption": "The return of every policy over training: the leader is the strong line. Below, what each one scores, and how far it is from the leader.",
    "coupling-caption": "Importance weights of followers' actions under the leader: their mean distance from 1 (lower is better), the effective share of all collected rows (higher is better), and the mean KL divergence from followers to the leader.",
  };
  const said = ({ sample }) => Report.pair(sample.mean, sample.deviation);
  const name = (method) => data.methods[method].name;

  /** What became of a single run. */
  const single = () => {
    const [run] = data.runs;
    const state = run.finished ? `${run.iterations.toLocaleString("en")} iterations` : `${run.notes.find((note) => note.startsWith("unfinished")) ?? "unfinished"}`;
    const trained = `${name(run.method)} on ${run.task}, seed ${run.seed}, ${state}. In training its leader ends at a ${metric} of ${Report.figure(run.final[data.score] ?? NaN)}`;
    if (!run.evaluation) return `${trained}; training returns lag behind, so evaluate it to know what it can do.`;
    const measured = (mode) => Report.figure(run.evaluation[mode][run.evaluation.leader]?.[data.score] ?? NaN);
    return `${trained}; evaluated over ${run.evaluation.episodes} episodes it scores ${measured("deterministic")} with deterministic and ${measured("sampled")} with sampled actions.`;
  };
  const metric = Report.metricName(data.score);

  /** What the comparison says, in a sentence or two. */
  const summary = () => {
    if (!Report.visible().length) return "All runs are hidden.";
    if (Report.alone) return single();
    const tasks = Report.contested();
    const cells = Report.scoreCells().filter((cell) => cell.comparable && tasks.includes(cell.task));
    const unfinished = Report.tasks().some((task) => !Report.basis(task).finished);
    const soFar = unfinished ? " No run has finished yet: this is provisional, at the steps that all have reached." : "";
    if (!tasks.length) return `No task was run by two methods, so none can be called better.${soFar}`;
    if (tasks.length === 1) {
      const [best, second] = cells.toSorted((a, b) => b.sample.mean - a.sample.mean);
      const test = Number.isNaN(second.p) ? "; one run of each cannot tell whether that is chance" : second.p > 0.05 ? `, which may be chance (p = ${Report.probability(second.p)})` : `, a difference beyond chance (p ${second.p < 0.001 ? "" : "= "}${Report.probability(second.p)})`;
      const only = Report.tasks().length > 1 ? ", the only task that two or more methods ran" : "";
      return `On ${best.task}${only}, ${name(best.method)} is highest with ${/^e/.test(Report.basisText(best.task)) ? "an" : "a"} ${Report.basisText(best.task)} of ${said(best)} (n\u00a0=\u00a0${best.sample.runs}); ${name(second.method)} follows with ${said(second)} (n\u00a0=\u00a0${second.sample.runs})${test}.${soFar}`;
    }
    const wins = Report.methods().map((method) => ({
      method, best: cells.filter((cell) => cell.method === method && cell.best).length, bold: cells.filter((cell) => cell.method === method && cell.bold).length,
    })).sort((a, b) => b.best - a.best || b.bold - a.bold);
    const level = wins.filter((win) => win.best === wins[0].best);
    const rest = wins.slice(1).filter((win) => win.bold).map((win) => `${name(win.method)} on ${win.bold}`);
    const of = tasks.length === Report.tasks().length ? `${tasks.length} tasks` : `the ${tasks.length} tasks that two or more methods ran`;
    if (level.length > 1) return `${level.map((win) => name(win.method)).join(" and ")} have the highest mean ${metric} on ${wins[0].best} of ${of} each.${soFar}`;
    return `${name(wins[0].method)} has the highest mean ${metric} on ${wins[0].best} of ${of} and is among the best on ${wins[0].bold}`
      + `${rest.length ? `; ${rest.join(", ")}` : "; no other method is"}.${soFar}`;
  };
  const facts = () => {
    const runs = Report.visible();
    const total = (key) => runs.reduce((sum, run) => sum + (run[key] ?? 0), 0);
    const unfinished = runs.filter((run) => !run.finished).length;
    if (Report.alone) return [["policies", `${runs[0]?.policies ?? 0}`], ["environment steps", Report.count(total("envSteps"))], ["of training", Report.duration(total("seconds"))]];
    return [["runs", `${runs.length}`], unfinished ? ["unfinished", `${unfinished}`] : null, ["tasks", `${Report.tasks().length}`], ["methods", `${Report.methods().length}`],
      ["environment steps", Report.count(total("envSteps"))], ["of training", Report.duration(total("seconds"))]].filter(Boolean);
  };
  Report.onChange(() => {
    find("summary").textContent = summary();
    find("facts").replaceChildren(...facts().map(([name, value]) => el("div", {}, el("dt", {}, Number(value) === 1 ? name.replace(/s$/, "") : name), el("dd", {}, value))));
  });

  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    root.dataset.theme = choice.theme ?? (system.matches ? "dark" : "light");
    find("theme").textContent = root.dataset.theme === "dark" ? "☀ Light" : "☾ Dark";
  };
  system.addEventListener("change", paint);
  find("theme").addEventListener("click", () => { choice.theme = root.dataset.theme === "dark" ? "light" : "dark"; paint(); Report.at(null); });
  paint();

  let waiting = null;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // A phone's address bar comes and goes.
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(Report.changed, 120);
  });
  root.classList.toggle("alone", Report.alone);
  if (Report.alone) find("curves").after(find("replay"), find("policies"));
  if (Report.alone) for (const [id, text] of Object.entries(ALONE)) find(id).textContent = text;

  const sections = [...document.querySelectorAll("section[data-name]")];
  const links = sections.map((section) => el("a", {
    href: `#section=${section.id}`,
    onclick: (event) => { event.preventDefault(); section.scrollIntoView(); Report.at(section.id); },
  }, section.dataset.name));
  find("contents").append(...links);
  Report.onChange(() => setTimeout(() => sections.forEach((section, i) => { links[i].hidden = section.hidden; })));
  const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
    const link = links[sections.indexOf(entry.target)];
    if (!entry.isIntersecting) return link.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    if (Report.ready) Report.at(entry.target.id);
  }), { rootMargin: "-45% 0px -50% 0px" });
  sections.forEach((section) => watcher.observe(section));
  Report.begin();

  // Written anew while runs go on: the page looks again, and keeps its place and choices.
  if (data.again) setTimeout(() => location.reload(), data.again * 1000);
})();
