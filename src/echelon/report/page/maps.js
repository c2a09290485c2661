/** KL maps over training: a slider and a play button move all of them together. */
(() => {
  const { el, svg, data, find } = Report;
  const mapped = data.runs.filter((run) => run.kl.maps.length);
  if (!mapped.length) {
    find("maps").hidden = true;
    return;
  }
  const MOMENTS = 200;
  const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
  const state = Report.mapState = { moment: MOMENTS, timer: null, task: mapped[0].task, seed: mapped[0].seed };
  const MEAN = "mean";

  /** Runs that are mapped: of one seed, or all of them, to be averaged. */
  const shown = () => Report.visible().filter((run) => run.kl.maps.length && run.task === state.task && (state.seed === MEAN || run.seed === Number(state.seed)));
  /** Lists of runs that share a figure: a method's seeds, or one run each. */
  const figures = () => {
    if (state.seed !== MEAN) return shown().map((run) => [run]);
    return Report.methods(state.task).map((method) => Report.counted(method, state.task).filter((run) => shown().includes(run))).filter((runs) => runs.length);
  };
  const values = Float64Array.from(mapped.flatMap((run) => run.kl.maps.flat()).filter((value) => value > 0)).sort();
  // Policies start out almost equal: a few of those first distances must not use up half of the colours.
  const [low, high] = [values[Math.floor(values.length * 0.05)], values[values.length - 1]];
  const share = (value) => (value > 0 && high > low ? Math.log(value / low) / Math.log(high / low) : 0);
  const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const colour = (value) => {
    const place = Math.min(1, Math.max(0, share(value))) * (VIRIDIS.length - 1);
    const below = Math.min(VIRIDIS.length - 2, Math.floor(place));
    const mixed = [0, 1, 2].map((k) => Math.round(channel(VIRIDIS[below], k) + (place - below) * (channel(VIRIDIS[below + 1], k) - channel(VIRIDIS[below], k))));
    return `rgb(${mixed.join()})`;
  };

  /** The newest map of a run that was measured by `steps`. */
  const frameAt = (run, steps) => Math.max(0, run.kl.steps.findLastIndex((at) => at <= steps * (1 + 1e-9)));
  const lastStep = () => Math.max(1, ...shown().map((run) => run.kl.steps[run.kl.steps.length - 1]));
  const stepsNow = () => (lastStep() * state.moment) / MOMENTS;

  const average = (maps) => maps[0].map((_, i) => {
    const known = maps.map((map) => map[i]).filter((value) => value !== null);
    return known.length ? Report.stats.mean(known) : null;
  });
  const figure = (runs) => {
    const [run] = runs;
    const frame = frameAt(run, stepsNow());
    const alike = runs.filter((one) => one.policies === run.policies);
    const [size, map] = [run.policies, average(alike.map((one) => one.kl.maps[frameAt(one, stepsNow())]))];
    const [edge, side] = [26, 240];
    const cell = side / size;
    const drawing = svg("svg", { class: "map", viewBox: `0 0 ${edge + side + 2} ${edge + side + 2}`, role: "img", "data-frame": frame, "aria-label": describe(run, map, size) });
    for (let i = 0; i < size; i++) {
      const row = map.slice(i * size, (i + 1) * size);
      const others = row.map((value, j) => (j === i || value === null ? Infinity : value));
      const nearest = others.indexOf(Math.min(...others));
      drawing.append(svg("text", { x: edge - 8, y: edge + (i + 0.5) * cell + 4, "text-anchor": "end" }, i), svg("text", { x: edge + (i + 0.5) * cell, y: edge - 9, "text-anchor": "middle" }, i));
      row.forEach((value, j) => {
        const [x, y] = [edge + j * cell, edge + i * cell];
        const fill = i === j ? "var(--sunken)" : value === null ? "var(--line)" : colour(value);
        drawing.append(svg("rect", { x: x + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1, rx: 2, fill }, svg("title", {}, `from ${i} to ${j}: ${Report.figure(value ?? NaN)}`)));
        if (i !== j && size <= 6 && value !== null) {
          drawing.append(svg("text", { class: "value", x: x + cell / 2, y: y + cell / 2 + 3.5, "text-anchor": "middle", style: `fill: ${share(value) > 0.6 ? "#111" : "#fff"}` }, short(value)));
        }
      });
      if (Number.isFinite(others[nearest])) {
        const place = { cx: edge + (nearest + 0.5) * cell, cy: edge + (i + 0.5) * cell, r: Math.min(cell * 0.46, 17) };
        drawing.append(svg("circle", { class: "nearest-edge", ...place }), svg("circle", { class: "nearest", ...place }));
      }
    }
    const note = `${Report.count(run.kl.steps[frame])} steps${alike.length > 1 ? `, mean of ${alike.length}` : ""}`;
    const host = el("div", {}, drawing);
    return el("figure", { class: "card", "data-run": run.index },
      el("figcaption", {}, ...Report.named(run.method), el("span", { class: "muted" }, note), Report.saveButtons(host, `kl ${run.name} ${frame}`)), host);
  };
  const short = (value) => (value >= 9.95 ? value.toFixed(0) : value >= 0.995 ? value.toFixed(1) : value.toFixed(2).replace(/^0/, ""));
  const describe = (run, map, size) => {
    const near = [...Array(size - 1).keys()].map((k) => k + 1).filter((i) => {
      const others = map.slice(i * size, (i + 1) * size).map((value, j) => (j === i || value === null ? Infinity : value));
      return others.indexOf(Math.min(...others)) === 0;
    });
    return `KL map of ${run.name}: the leader is nearest to ${near.length} of ${size - 1} followers`;
  };

  const slider = el("input", {
    type: "range", min: 0, max: MOMENTS, value: MOMENTS, id: "moment", "aria-label": "Moment of training",
    oninput: () => { stop(); state.moment = Number(slider.value); draw(); },
  });
  const button = el("button", { type: "button", class: "play", id: "play", onclick: () => (state.timer ? stop() : start()) }, "▶ Play");
  const clock = el("output", { class: "muted", for: "moment" });
  const stop = () => { clearInterval(state.timer); state.timer = null; button.textContent = "▶ Play"; };
  const start = () => {
    if (state.moment >= MOMENTS) state.moment = 0;
    button.textContent = "❚❚ Pause";
    draw();
    state.timer = setInterval(() => {
      state.moment = Math.min(MOMENTS, state.moment + 1);
      draw();
      if (state.moment >= MOMENTS) stop();
    }, 40);
  };
  const draw = () => {
    slider.value = state.moment;
    const text = `${Report.count(stepsNow())} environment steps`;
    clock.textContent = text;
    Report.replayAt?.(stepsNow());
    slider.setAttribute("aria-valuetext", text);
    find("maps-figures").replaceChildren(...figures().map(figure));
    if (!shown().length) find("maps-figures").append(el("p", { class: "empty" }, "No run with this task and seed is shown."));
  };

  find("maps-controls").append(button, slider, clock, ...Report.taskAndSeed(mapped, state, MEAN));
  if (values.length) {
    find("maps-legend").append(`near, up to ${Report.figure(low)}`, el("span", { class: "ramp", style: `background: linear-gradient(90deg, ${VIRIDIS.join()})` }), `${Report.figure(high)} far, logarithmic`);
  }
  Report.section("maps", draw, () => Report.visible().some((run) => run.kl.maps.length));
})();
