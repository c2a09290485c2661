/** The head of the page, light and dark, the list of sections; then everything is drawn once. */
(() => {
  const { el, data, find, stats } = Report;

  /** What the comparison says, in a sentence or two. */
  const summary = () => {
    const cells = Report.scoreCells();
    const metric = Report.metricName(data.score);
    const said = ({ sample }) => `${Report.figure(sample.mean)}${sample.runs > 1 ? ` ± ${Report.figure(sample.deviation)}` : ""}`;
    if (!cells.length) return Report.visible().length ? "No run has finished yet; the curves show how far they are." : "All runs are hidden.";
    const tasks = [...new Set(cells.map((cell) => cell.task))];
    if (tasks.length === 1) {
      const [best, second] = cells.toSorted((a, b) => b.sample.mean - a.sample.mean);
      const name = data.methods[best.method].name;
      if (!second) return `${name} on ${best.task} ends at a ${metric} of ${said(best)}.`;
      const test = Number.isNaN(second.p) ? "; one run of each cannot tell whether that is chance" : second.p > 0.05 ? `, which may be chance (p = ${Report.probability(second.p)})` : `, a difference beyond chance (p ${second.p < 0.001 ? "" : "= "}${Report.probability(second.p)})`;
      return `On ${best.task}, ${name} ends highest with a ${metric} of ${said(best)}; ${data.methods[second.method].name} follows with ${said(second)}${test}.`;
    }
    const wins = Report.methods().map((method) => ({
      method, best: cells.filter((cell) => cell.method === method && cell.best).length, bold: cells.filter((cell) => cell.method === method && cell.bold).length,
    })).sort((a, b) => b.best - a.best || b.bold - a.bold);
    const rest = wins.slice(1).filter((win) => win.bold).map((win) => `${data.methods[win.method].name} on ${win.bold}`);
    return `${data.methods[wins[0].method].name} has the highest mean ${metric} on ${wins[0].best} of ${tasks.length} tasks and is among the best on ${wins[0].bold}`
      + `${rest.length ? `; ${rest.join(", ")}` : "; no other method is"}.`;
  };
  const facts = () => {
    const runs = Report.visible();
    const total = (key) => runs.reduce((sum, run) => sum + (run[key] ?? 0), 0);
    const unfinished = runs.filter((run) => !run.finished).length;
    return [["runs", `${runs.length}`], unfinished ? ["unfinished", `${unfinished}`] : null, ["tasks", `${Report.tasks().length}`], ["methods", `${Report.methods().length}`],
      ["environment steps", Report.count(total("envSteps"))], ["of training", Report.duration(total("seconds"))]].filter(Boolean);
  };
  Report.onChange(() => {
    find("summary").textContent = summary();
    find("facts").replaceChildren(...facts().map(([name, value]) => el("div", {}, el("dt", {}, Number(value) === 1 ? name.replace(/s$/, "") : name), el("dd", {}, value))));
  });

  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const paint = () => {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    find("theme").textContent = root.dataset.theme === "dark" ? "☀ Light" : "☾ Dark";
  };
  system.addEventListener("change", paint);
  find("theme").addEventListener("click", () => { chosen = root.dataset.theme === "dark" ? "light" : "dark"; paint(); });
  paint();

  let waiting = null;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // A phone's address bar comes and goes.
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(Report.changed, 120);
  });
  Report.changed();

  const sections = [...document.querySelectorAll("section[data-name]")].filter((section) => !section.hidden);
  const links = sections.map((section) => el("a", { href: `#${section.id}` }, section.dataset.name));
  find("contents").append(...links);
  const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
    const link = links[sections.indexOf(entry.target)];
    if (entry.isIntersecting) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }), { rootMargin: "-45% 0px -50% 0px" });
  sections.forEach((section) => watcher.observe(section));
})();
