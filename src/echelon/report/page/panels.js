/** The policies of single runs, and their replays. */
(() => {
  const { el, data, find } = Report;
  const several = data.runs.filter((run) => run.followerReturns.length);
  find("policies").hidden = !several.length;
  if (several.length) {
    const state = { task: several[0].task, seed: several[0].seed };
    const tasks = () => [...new Set(several.map((run) => run.task))].map((task) => [task, task]);
    const seeds = () => [...new Set(several.filter((run) => run.task === state.task).map((run) => run.seed))].sort((a, b) => a - b).map((seed) => [seed, `seed ${seed}`]);
    find("policies-controls").append(Report.select("Task", tasks, () => state.task, (value) => { state.task = value; }),
      Report.select("Seed", seeds, () => state.seed, (value) => { state.seed = Number(value); }));
    Report.onChange(() => {
      const host = find("policies-charts");
      const runs = Report.visible().filter((run) => run.followerReturns.length && run.task === state.task && run.seed === state.seed);
      host.replaceChildren();
      host.classList.toggle("one", runs.length === 1);
      for (const run of runs) {
        const look = { x: run.policySteps, colour: Report.colour(run.method), run: run.index };
        const followers = run.followerReturns.map((y, k) => ({ ...look, y, name: run.followerNames[k], weight: "faint" }));
        const lines = [...followers, { ...look, y: run.leaderReturn, name: "leader", weight: "strong" }];
        Report.card(host, data.methods[run.method].name, { series: lines, xLabel: "environment steps", describe: `Return of each policy of ${run.name}` }, run.name);
      }
      if (!runs.length) host.append(el("p", { class: "empty" }, "No run with this task and seed is shown."));
    });
  }

  const replays = JSON.parse(find("replays").textContent).map((one) => ({ ...one, index: data.runs.findIndex((run) => run.name === one.run) }));
  if (!replays.length || typeof EchelonReplay === "undefined") return;
  let [handle, playing] = [null, null];
  const shown = () => replays.filter((one) => !Report.choice.hidden.has(one.index));
  const state = { run: replays[0].run };
  const title = el("span");
  find("replay-controls").append(Report.select("Run", () => shown().map((one) => [one.run, one.run]), () => state.run, (value) => { state.run = value; }), title);
  Report.onChange(() => {
    const one = shown().find((item) => item.run === state.run) ?? shown()[0];
    find("replay").hidden = !one;
    if (one === playing) return;
    const run = data.runs[one?.index];
    title.replaceChildren(...(run ? [Report.swatch(Report.colour(run.method)), `${data.methods[run.method].name} on ${run.task}, `, el("span", { class: "muted" }, `run ${run.name}`)] : []));
    handle?.destroy();
    [handle, playing] = [null, one];
    if (one) handle = EchelonReplay.mount(find("replay-stage"), one.replay);
  });
})();
