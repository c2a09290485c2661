/** The policies of single runs, and their replays. */
(() => {
  const { el, data, find } = Report;
  const several = data.runs.filter((run) => run.followerReturns.length);
  if (several.length) {
    const state = { task: several[0].task, seed: several[0].seed };
    find("policies-controls").append(...Report.taskAndSeed(several, state));
    Report.section("policies", () => {
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
      if (Report.alone) policyTable(runs[0]);
    }, () => Report.visible().some((run) => run.followerReturns.length));
  } else find("policies").hidden = true;

  /** What each policy of a run is: its name, how far it is from the leader, and what it scores. */
  const policyTable = (run) => {
    const { evaluation, policies, kl } = run;
    const last = kl.maps[kl.maps.length - 1];
    const leader = evaluation?.leader ?? 0;
    const member = run.followerNames[0]?.startsWith("member");
    const training = (policy) => run.final[`return/policy_${policy}`] ?? run.final["return/leader"] ?? NaN;
    const measured = (mode, policy) => evaluation?.[mode][policy]?.["return/leader"] ?? NaN;
    const number = (value) => ({ value, content: Report.figure(value) });
    const columns = [{ title: "Policy", text: true }, { title: "In training" }, ...(evaluation ? [{ title: "Evaluated" }, { title: "Sampled" }] : []),
      ...(last ? [{ title: "KL to leader" }, { title: "Nearest" }] : [])];
    Report.table("policies-table", columns, Array.from({ length: policies }, (_, policy) => {
      const row = last?.slice(policy * policies, (policy + 1) * policies).map((value, k) => (k === policy || value === null ? Infinity : value));
      const nearest = row ? row.indexOf(Math.min(...row)) : -1;
      return [{ value: policy, content: policy === leader ? el("strong", {}, `${policy}, the leader`) : `${policy}, ${member ? "member" : "follower"}` }, number(training(policy)),
        ...(evaluation ? [number(measured("deterministic", policy)), number(measured("sampled", policy))] : []),
        ...(row ? [policy === leader ? { value: 0, content: "" } : number(row[leader]), { value: nearest, content: nearest === leader ? "the leader" : `policy ${nearest}` }] : [])];
    }));
  };

  const replays = JSON.parse(find("replays").textContent).map((one) => ({ ...one, index: data.runs.findIndex((run) => run.name === one.run) }));
  if (!replays.length || typeof EchelonReplay === "undefined") {
    find("replay").hidden = true;
    return;
  }
  let [handle, playing] = [null, null];
  const shown = () => replays.filter((one) => Report.visible().includes(data.runs[one.index]));
  const state = { run: replays[0].run };
  const title = el("span");
  find("replay-controls").append(Report.select("Run", () => shown().map((one) => [one.run, one.run]), () => state.run, (value) => { state.run = value; }), title);
  /** Policies as they were after so many steps, where the replay has several checkpoints. */
  Report.replayAt = (steps) => {
    const run = data.runs[playing?.index];
    if (handle && run && playing.replay.episodes.some((episode) => (episode.iteration ?? playing.replay.iteration) !== playing.replay.iteration)) {
      handle.at((steps / run.envSteps) * run.iterations);
    }
  };
  Report.section("replay", () => {
    const one = shown().find((item) => item.run === state.run) ?? shown()[0];
    if (one === playing) return;
    const run = data.runs[one.index];
    title.replaceChildren(Report.swatch(Report.colour(run.method)), `${data.methods[run.method].name} on ${run.task}, `, el("span", { class: "muted" }, `run ${run.name}`));
    handle?.destroy();
    [handle, playing] = [null, one];
    handle = EchelonReplay.mount(find("replay-stage"), one.replay);
  }, () => shown().length > 0);
})();
