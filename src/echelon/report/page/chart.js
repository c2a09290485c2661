/** A line chart in SVG, as wide as its place, that answers the pointer and the arrow keys. */
Report.chart = (() => {
  const { svg, el } = Report;
  const TALL = 270;
  const SMALL = 196;

  /** Round numbers between `low` and `high`, about `wanted` of them. */
  const ticks = (low, high, wanted) => {
    const raw = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  };
  /** A number on an axis: as short as the distance between ticks allows. */
  const tickText = (value, step) => {
    if (value !== 0 && (Math.abs(value) >= 1e4 || step >= 1e3)) return Report.count(value).replace(/\.0+(?=\D|$)|(\.\d*?)0+(?=\D|$)/, "$1");
    const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
    return String(Number(value.toFixed(decimals + 1)));
  };

  /** The range of all series, marks included, with a little air. */
  const extent = (spec) => {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of spec.series) {
      line.x.forEach((x, i) => {
        const y = line.y[i];
        if (y === null || !Number.isFinite(y)) return;
        x0 = Math.min(x0, x); x1 = Math.max(x1, x);
        y0 = Math.min(y0, y, line.low ? line.low[i] : y); y1 = Math.max(y1, y, line.high ? line.high[i] : y);
      });
    }
    for (const mark of spec.marks ?? []) { y0 = Math.min(y0, mark.y); y1 = Math.max(y1, mark.y); }
    if (spec.xTicks) [x0, x1] = [-0.4, spec.xTicks.length - 0.6];
    const air = (y1 - y0) * 0.06 || Math.abs(y1) * 0.1 || 1;
    return { x0: spec.xTicks ? x0 : Math.min(x0, 0), x1: x1 > x0 ? x1 : x0 + 1, y0: y0 >= 0 && y0 - air < 0 ? 0 : y0 - air, y1: y1 + air };
  };

  const path = (xs, ys, place, wanted) => {
    let text = "";
    let open = false;
    xs.forEach((x, i) => {
      if (!wanted(i)) open = false;
      if (ys[i] === null || !Number.isFinite(ys[i]) || !wanted(i)) return;
      text += `${open ? "L" : "M"}${place.x(x).toFixed(1)},${place.y(ys[i]).toFixed(1)}`;
      open = true;
    });
    return text;
  };
  const area = (line, place, wanted) => {
    const pieces = [];
    line.x.forEach((_, i) => {
      if (!wanted(i) || !Number.isFinite(line.low[i]) || !Number.isFinite(line.high[i])) return;
      if (pieces.length && pieces.at(-1).at(-1) === i - 1) pieces.at(-1).push(i);
      else pieces.push([i]);
    });
    const point = (i, ys) => `${place.x(line.x[i]).toFixed(1)},${place.y(ys[i]).toFixed(1)}`;
    return pieces.map((here) => `M${here.map((i) => point(i, line.high)).join("L")}L${here.toReversed().map((i) => point(i, line.low)).join("L")}Z`).join("");
  };

  /** A line, and apart from it the stretches in which only some of its runs go on: [wanted, class]. */
  const stretches = (line) => {
    if (!line.n) return [[() => true, ""]];
    const most = Math.max(...line.n);
    const few = (i) => line.n[i] < most || line.n[i - 1] < most || line.n[i + 1] < most;
    return line.n.some((n) => n && n < most) ? [[(i) => line.n[i] === most, ""], [few, "few"]] : [[() => true, ""]];
  };

  /** Names at the ends of lines, moved apart where they would overlap. */
  const endLabels = (spec, place, right, height) => {
    const named = spec.series.filter((line) => line.label).map((line) => {
      let last = line.y.length - 1;
      while (last > 0 && !Number.isFinite(line.y[last] ?? NaN)) last--;
      return { line, y: place.y(line.y[last]) };
    }).filter((item) => Number.isFinite(item.y)).sort((a, b) => a.y - b.y);
    named.forEach((item, i) => { if (i) item.y = Math.max(item.y, named[i - 1].y + 14); });
    const over = named.length ? named[named.length - 1].y - (height - 34) : 0;
    if (over > 0) named.forEach((item) => { item.y -= over; });
    return named.map(({ line, y }) => svg("text", { class: `end ${line.colour}`, x: right + 6, y: y + 4 }, line.label));
  };

  /** A dot and its interval at every x. */
  const points = (line, place) => line.x.flatMap((x, i) => [
    svg("line", { class: `whisker ${line.colour}`, x1: place.x(x), x2: place.x(x), y1: place.y(line.low[i]), y2: place.y(line.high[i]) }),
    svg("circle", { class: `dot ${line.colour}`, cx: place.x(x), cy: place.y(line.y[i]), r: 4 }),
  ]);

  const frame = (spec, place, range, width, height, edges) => {
    const parts = [];
    const ys = ticks(range.y0, range.y1, 4);
    for (const y of ys) {
      parts.push(svg("line", { class: "grid", x1: edges.left, x2: edges.right, y1: place.y(y), y2: place.y(y) }));
      parts.push(svg("text", { x: edges.left - 7, y: place.y(y) + 4, "text-anchor": "end" }, tickText(y, ys.length > 1 ? ys[1] - ys[0] : 1)));
    }
    const xs = ticks(range.x0, range.x1, Math.max(2, Math.floor(width / 110)));
    const format = (x) => (spec.xFormat ? spec.xFormat(x) : tickText(x, xs.length > 1 ? xs[1] - xs[0] : 1));
    for (const [x, text] of spec.xTicks ?? xs.map((value) => [value, format(value)])) {
      const room = width - 3.4 * text.length - 2; // A number at the edge would lose its last digit.
      parts.push(svg("text", { x: Math.min(place.x(x), room), y: height - 21, "text-anchor": "middle" }, text));
    }
    parts.push(svg("text", { x: (edges.left + edges.right) / 2, y: height - 4, "text-anchor": "middle" }, spec.xLabel));
    for (const mark of spec.marks ?? []) {
      parts.push(svg("line", { class: "mark", "data-value": mark.y, x1: edges.left, x2: edges.right, y1: place.y(mark.y), y2: place.y(mark.y) }));
      parts.push(svg("text", { x: edges.right - 2, y: place.y(mark.y) - 5, "text-anchor": "end" }, mark.label));
    }
    return parts;
  };

  /** The crosshair: pointer and arrow keys move it, the tip tells the values. */
  const answer = (plot, spec, place, range, edges) => {
    const layer = svg("g");
    plot.append(layer);
    const tip = Report.find("tip");
    const told = spec.series.filter((line) => line.name);
    const hide = () => { layer.replaceChildren(); tip.hidden = true; };
    const show = (x) => {
      const rows = told.map((line) => {
        let best = -1;
        line.x.forEach((at, i) => {
          if (Number.isFinite(line.y[i] ?? NaN) && (best < 0 || Math.abs(at - x) < Math.abs(line.x[best] - x))) best = i;
        });
        return { line, best };
      }).filter((row) => row.best >= 0 && Math.abs(row.line.x[row.best] - x) <= (range.x1 - range.x0) * 0.05);
      layer.replaceChildren(svg("line", { class: "rule", x1: place.x(x), x2: place.x(x), y1: edges.top, y2: edges.bottom }),
        ...rows.map(({ line, best }) => svg("circle", { class: `dot ${line.colour}`, cx: place.x(line.x[best]), cy: place.y(line.y[best]), r: 4 })));
      tip.replaceChildren(el("div", { class: "muted" }, `${(spec.xFormat ?? Report.count)(x)} ${spec.xLabel}`),
        ...rows.sort((a, b) => b.line.y[b.best] - a.line.y[a.best]).slice(0, 14).map(({ line, best }) =>
          el("div", { class: `row ${line.colour}` }, el("i"), line.name, el("b", {}, valueText(line, best)))));
      tip.hidden = false;
      const box = plot.getBoundingClientRect();
      const left = box.left + place.x(x);
      tip.style.left = `${left + tip.offsetWidth + 24 > window.innerWidth ? Math.max(8, left - tip.offsetWidth - 14) : left + 14}px`;
      tip.style.top = `${Math.max(8, Math.min(box.top + 20, window.innerHeight - tip.offsetHeight - 8))}px`;
    };
    const valueText = (line, i) => {
      const spread = line.low && line.high && line.high[i] > line.low[i];
      const n = line.n && Math.max(...line.n) > 1 ? `, n = ${line.n[i]}` : "";
      if (!spread) return Report.figure(line.y[i]) + n;
      return (spec.interval ? `${Report.figure(line.y[i])} [${Report.figure(line.low[i])}, ${Report.figure(line.high[i])}]`
        : Report.pair(line.y[i], line.high[i] - line.y[i])) + n;
    };
    let at = range.x1;
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      at = Math.min(range.x1, Math.max(range.x0, place.back(event.clientX - box.left)));
      show(at);
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (move === undefined) return;
      event.preventDefault();
      at = Math.min(range.x1, Math.max(range.x0, at + move * (range.x1 - range.x0)));
      show(at);
    });
  };

  /** Draw `spec` into `host`: series {name, label, colour, dash, x, y, low, high, n, weight, points}, marks, xLabel, describe.
   * Returns whether the lines could be named at their ends. */
  return (host, spec) => {
    const [width, height] = [Math.max(200, host.clientWidth), spec.small ? SMALL : TALL];
    const named = spec.series.filter((line) => line.label);
    const longest = Math.max(0, ...named.map((line) => line.label.length));
    const fits = named.length && named.length <= 8 && width > 260 && longest < (width > 380 ? 14 : 6);
    const right = width - (fits ? 14 + longest * 7.2 : 12);
    const edges = { left: 46, right, top: 10, bottom: height - 38 };
    const range = extent(spec);
    const place = {
      x: (x) => edges.left + ((x - range.x0) / (range.x1 - range.x0)) * (edges.right - edges.left),
      y: (y) => edges.bottom - ((y - range.y0) / (range.y1 - range.y0)) * (edges.bottom - edges.top),
      back: (px) => range.x0 + ((px - edges.left) / (edges.right - edges.left)) * (range.x1 - range.x0),
    };
    const plot = svg("svg", {
      class: "plot", viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img",
      "aria-label": `${spec.describe}. Arrow keys read values.`,
    });
    plot.append(...frame(spec, place, range, width, height, edges));
    for (const line of spec.series) {
      if (line.low && !line.points) for (const [wanted, few] of stretches(line)) plot.append(svg("path", { class: `band ${few} ${line.colour}`, d: area(line, place, wanted) }));
    }
    for (const line of spec.series) {
      for (const [wanted, few] of stretches(line)) {
        plot.append(svg("path", {
          class: `line ${line.weight ?? ""} ${few} ${line.colour}`, d: path(line.x, line.y, place, wanted),
          "stroke-dasharray": line.dash || null, "data-run": line.run, "data-method": line.method,
        }));
      }
      if (line.points) plot.append(...points(line, place));
    }
    if (fits) plot.append(...endLabels(spec, place, right, height));
    answer(plot, spec, place, range, edges);
    host.replaceChildren(plot);
    return Boolean(fits) || named.length < 2;
  };
})();

/** A titled place for a chart inside `parent`, drawn at once. */
Report.card = (parent, title, spec, note) => {
  const host = Report.el("div");
  parent.append(Report.el("figure", { class: "card" }, Report.el("figcaption", {}, title, note ? Report.el("span", { class: "muted" }, note) : null,
    Report.saveButtons(host, `${title} ${note ?? ""} ${spec.xLabel}`)), host));
  return Report.chart(host, spec);
};
/** Which line is whose, for charts whose lines could not be named at their ends. */
Report.legend = (methods) => Report.el("div", { class: "legend" }, ...methods.map((method) => Report.el("span", {}, Report.key(method), Report.data.methods[method].name)));
