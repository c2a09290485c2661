/** A line chart in SVG, as wide as its place, that answers the pointer and the arrow keys. */
Report.chart = (() => {
  const { svg, el } = Report;
  const HEIGHT = 270;

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
    const air = (y1 - y0) * 0.06 || Math.abs(y1) * 0.1 || 1;
    return { x0: Math.min(x0, 0), x1: x1 > x0 ? x1 : x0 + 1, y0: y0 >= 0 && y0 - air < 0 ? 0 : y0 - air, y1: y1 + air };
  };

  const path = (xs, ys, place) => {
    let text = "";
    let open = false;
    xs.forEach((x, i) => {
      if (ys[i] === null || !Number.isFinite(ys[i])) return;
      text += `${open ? "L" : "M"}${place.x(x).toFixed(1)},${place.y(ys[i]).toFixed(1)}`;
      open = true;
    });
    return text;
  };
  const area = (line, place) => {
    const here = line.x.map((_, i) => i).filter((i) => Number.isFinite(line.low[i]) && Number.isFinite(line.high[i]));
    const point = (i, ys) => `${place.x(line.x[i]).toFixed(1)},${place.y(ys[i]).toFixed(1)}`;
    return here.length ? `M${here.map((i) => point(i, line.high)).join("L")}L${here.reverse().map((i) => point(i, line.low)).join("L")}Z` : "";
  };

  /** Names at the ends of lines, moved apart where they would overlap. */
  const endLabels = (spec, place, right) => {
    const named = spec.series.filter((line) => line.label).map((line) => {
      let last = line.y.length - 1;
      while (last > 0 && !Number.isFinite(line.y[last] ?? NaN)) last--;
      return { line, y: place.y(line.y[last]) };
    }).filter((item) => Number.isFinite(item.y)).sort((a, b) => a.y - b.y);
    named.forEach((item, i) => { if (i) item.y = Math.max(item.y, named[i - 1].y + 14); });
    const over = named.length ? named[named.length - 1].y - (HEIGHT - 34) : 0;
    if (over > 0) named.forEach((item) => { item.y -= over; });
    return named.map(({ line, y }) => svg("text", { class: `end ${line.colour}`, x: right + 6, y: y + 4 }, line.label));
  };

  const frame = (spec, place, range, width, edges) => {
    const parts = [];
    const ys = ticks(range.y0, range.y1, 4);
    for (const y of ys) {
      parts.push(svg("line", { class: "grid", x1: edges.left, x2: edges.right, y1: place.y(y), y2: place.y(y) }));
      parts.push(svg("text", { x: edges.left - 7, y: place.y(y) + 4, "text-anchor": "end" }, tickText(y, ys.length > 1 ? ys[1] - ys[0] : 1)));
    }
    const xs = ticks(range.x0, range.x1, Math.max(2, Math.floor(width / 110)));
    for (const x of xs) {
      const text = spec.xFormat ? spec.xFormat(x) : tickText(x, xs.length > 1 ? xs[1] - xs[0] : 1);
      parts.push(svg("text", { x: place.x(x), y: HEIGHT - 21, "text-anchor": "middle" }, text));
    }
    parts.push(svg("text", { x: (edges.left + edges.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, spec.xLabel));
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
      if (!spread) return Report.figure(line.y[i]);
      return spec.interval ? `${Report.figure(line.y[i])} [${Report.figure(line.low[i])}, ${Report.figure(line.high[i])}]`
        : `${Report.figure(line.y[i])} ± ${Report.figure(line.high[i] - line.y[i])}`;
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

  /** Draw `spec` into `host`: series {name, label, colour, dash, x, y, low, high, weight}, marks, xLabel, describe. */
  return (host, spec) => {
    const width = Math.max(240, host.clientWidth);
    const named = spec.series.filter((line) => line.label);
    const longest = Math.max(0, ...named.map((line) => line.label.length));
    const right = width - (named.length && width > 260 && longest < (width > 380 ? 14 : 6) ? 14 + longest * 7.2 : 12);
    const edges = { left: 46, right, top: 10, bottom: HEIGHT - 38 };
    const range = extent(spec);
    const place = {
      x: (x) => edges.left + ((x - range.x0) / (range.x1 - range.x0)) * (edges.right - edges.left),
      y: (y) => edges.bottom - ((y - range.y0) / (range.y1 - range.y0)) * (edges.bottom - edges.top),
      back: (px) => range.x0 + ((px - edges.left) / (edges.right - edges.left)) * (range.x1 - range.x0),
    };
    const plot = svg("svg", {
      class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, tabindex: 0, role: "img",
      "aria-label": `${spec.describe}. Arrow keys read values.`,
    });
    plot.append(...frame(spec, place, range, width, edges));
    for (const line of spec.series) if (line.low) plot.append(svg("path", { class: `band ${line.colour}`, d: area(line, place) }));
    for (const line of spec.series) {
      plot.append(svg("path", {
        class: `line ${line.weight ?? ""} ${line.colour}`, d: path(line.x, line.y, place),
        "stroke-dasharray": line.dash || null, "data-run": line.run, "data-method": line.method,
      }));
    }
    if (right < width - 12) plot.append(...endLabels(spec, place, right));
    answer(plot, spec, place, range, edges);
    host.replaceChildren(plot);
  };
})();

/** A titled place for a chart inside `parent`, drawn at once. */
Report.card = (parent, title, spec, note) => {
  const host = Report.el("div");
  parent.append(Report.el("figure", { class: "card" },
    Report.el("figcaption", {}, title, note ? Report.el("span", { class: "muted" }, note) : null), host));
  Report.chart(host, spec);
};
