/** The statistics of the report, over the runs that are not hidden. Python's, which write the tables, agree with them. One
 * function without anything from outside, so that its text can be run beside the page too. */
const makeStatistics = () => {
  const known = (values) => values.filter((value) => value !== null && Number.isFinite(value));
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = (values) => {
    if (values.length < 2) return NaN;
    const centre = mean(values);
    return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
  };
  const sample = (values) => ({ mean: mean(values), deviation: deviation(values), runs: values.length });

  /** Mean of the middle half: a quarter, rounded down, is cut at each end. */
  const iqm = (values) => {
    const sorted = Float64Array.from(values).sort();
    const cut = Math.floor(sorted.length / 4);
    let sum = 0;
    for (let i = cut; i < sorted.length - cut; i++) sum += sorted[i];
    return sum / (sorted.length - 2 * cut);
  };
  const quantile = (sorted, q) => {
    const place = q * (sorted.length - 1);
    const below = Math.floor(place);
    return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
  };
  /** Small and seeded, so that a page looks the same each time. */
  const generator = (seed) => () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  /** 95 % percentile interval of `statistic(...strata)`, each stratum resampled within itself. */
  const bootstrap = (strata, statistic, resamples = 2000) => {
    const random = generator(1);
    const drawn = new Float64Array(resamples);
    for (let i = 0; i < resamples; i++) {
      drawn[i] = statistic(...strata.map((stratum) => stratum.map(() => stratum[Math.floor(random() * stratum.length)])));
    }
    drawn.sort();
    return [quantile(drawn, 0.025), quantile(drawn, 0.975)];
  };
  /** How often a score of `ours` is above one of `theirs`; a draw counts half. */
  const improvement = (ours, theirs) =>
    mean(ours.flatMap((a) => theirs.map((b) => (a > b ? 1 : a === b ? 0.5 : 0))));

  const logGamma = (x) => {
    if (x < 12) return logGamma(x + 1) - Math.log(x); // Stirling's series is exact to 1e-13 from here on.
    return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5) - 1 / (1680 * x ** 7);
  };
  const betaFraction = (x, a, b) => {
    let c = 1;
    let d = 1 / (1 - ((a + b) * x) / (a + 1));
    let value = d;
    for (let m = 1; m < 300; m++) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      for (const term of [even, odd]) {
        d = 1 / (1 + term * d);
        c = 1 + term / c;
        value *= c * d;
      }
      if (Math.abs(c * d - 1) < 1e-15) break;
    }
    return value;
  };
  const incompleteBeta = (x, a, b) => {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(1 - x, b, a);
    const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
    return (front * betaFraction(x, a, b)) / a;
  };
  /** Two-sided p of equal means by Welch's t-test. */
  const welch = (a, b) => {
    if (Math.min(a.runs, b.runs) < 2) return NaN;
    const [va, vb] = [a.deviation ** 2 / a.runs, b.deviation ** 2 / b.runs];
    if (va + vb === 0) return a.mean === b.mean ? 1 : 0;
    const t2 = (a.mean - b.mean) ** 2 / (va + vb);
    const freedom = (va + vb) ** 2 / (va ** 2 / (a.runs - 1) + vb ** 2 / (b.runs - 1));
    return incompleteBeta(freedom / (freedom + t2), freedom / 2, 0.5);
  };
  /** Holm's correction; NaN is no test. */
  const holm = (values) => {
    const adjusted = values.map(() => NaN);
    const order = values.map((p, index) => [p, index]).filter(([p]) => !Number.isNaN(p)).sort((a, b) => a[0] - b[0]);
    let highest = 0;
    order.forEach(([p, index], rank) => {
      highest = Math.max(highest, Math.min(1, p * (order.length - rank)));
      adjusted[index] = highest;
    });
    return adjusted;
  };

  const GRID = 200;
  const RESAMPLES = 500;
  /** y of a curve at `grid`, NaN outside of it. */
  const interpolate = (xs, ys, grid) => {
    const values = new Float64Array(grid.length).fill(NaN);
    let at = 0;
    grid.forEach((x, i) => {
      if (x < xs[0] - 1e-9 * Math.abs(xs[0]) || x > xs[xs.length - 1] * (1 + 1e-12)) return;
      while (at < xs.length - 2 && xs[at + 1] < x) at++;
      const share = xs[at + 1] === xs[at] ? 0 : (x - xs[at]) / (xs[at + 1] - xs[at]);
      values[i] = ys[at] + Math.min(1, Math.max(0, share)) * (ys[at + 1] - ys[at]);
    });
    return values;
  };
  /** Runs of one method at the same places: centre, low and high of what was asked for. */
  const band = (curves, statistic) => {
    const clean = curves
      .map(({ x, y }) => {
        const places = y.map((_, i) => i).filter((i) => y[i] !== null && x[i] !== null && Number.isFinite(y[i]));
        return { x: places.map((i) => x[i]), y: places.map((i) => y[i]) };
      })
      .filter((curve) => curve.x.length > 1);
    if (!clean.length) return null;
    const first = Math.min(...clean.map((curve) => curve.x[0]));
    const last = Math.max(...clean.map((curve) => curve.x[curve.x.length - 1]));
    const grid = Array.from({ length: GRID }, (_, i) => first + ((last - first) * i) / (GRID - 1));
    const values = clean.map((curve) => interpolate(curve.x, curve.y, grid));
    const random = generator(7);
    const draws = Array.from({ length: RESAMPLES * clean.length }, () => random());
    const found = { x: grid, y: [], low: [], high: [], n: [] };
    grid.forEach((_, i) => {
      const here = values.map((value) => value[i]).filter(Number.isFinite);
      const [centre, low, high] = statistic === "iqm" ? iqmInterval(here, draws) : meanBand(here);
      found.y.push(centre);
      found.low.push(low);
      found.high.push(high);
      found.n.push(here.length);
    });
    return found;
  };
  const meanBand = (here) => {
    if (!here.length) return [NaN, NaN, NaN];
    const [centre, spread] = [mean(here), here.length > 1 ? deviation(here) : 0];
    return [centre, centre - spread, centre + spread];
  };
  const iqmInterval = (here, draws) => {
    if (!here.length) return [NaN, NaN, NaN];
    if (here.length === 1) return [here[0], here[0], here[0]];
    const found = new Float64Array(RESAMPLES);
    const taken = new Float64Array(here.length);
    for (let r = 0; r < RESAMPLES; r++) {
      for (let k = 0; k < here.length; k++) taken[k] = here[Math.floor(draws[r * here.length + k] * here.length)];
      found[r] = iqm(taken);
    }
    found.sort();
    return [iqm(here), quantile(found, 0.025), quantile(found, 0.975)];
  };
  /** Where a curve first gets to `score`. */
  const reaches = (curve, score) => {
    const first = curve.y.findIndex((value) => value >= score);
    if (first <= 0) return first === 0 ? curve.x[0] : NaN;
    const [x0, x1, y0, y1] = [curve.x[first - 1], curve.x[first], curve.y[first - 1], curve.y[first]];
    return x0 + ((score - y0) / (y1 - y0)) * (x1 - x0);
  };
  /** Value of a thinned curve over the last twentieth of `steps`, at least its last point by then. */
  const atStep = (xs, ys, steps) => {
    const reached = xs.map((_, i) => i).filter((i) => ys[i] !== null && xs[i] <= steps * (1 + 1e-9));
    if (!reached.length) return NaN;
    const last = reached.filter((i) => xs[i] > 0.95 * steps);
    return last.length ? mean(last.map((i) => ys[i])) : ys[reached[reached.length - 1]];
  };
  /** Strata alternate between ours and theirs, a pair per task. */
  const meanImprovement = (strata) => mean(strata.flatMap((_, k) => (k % 2 ? [] : [improvement(strata[k], strata[k + 1])])));
  /** What takes long, by name. */
  const slow = {
    iqm: (strata) => bootstrap(strata, (...drawn) => iqm(drawn.flat())),
    mean: (strata) => bootstrap(strata, (...drawn) => mean(drawn.flat())),
    improvement: (strata) => bootstrap(strata, (...drawn) => meanImprovement(drawn)),
    band: (curves) => band(curves, "iqm"),
  };
  return { known, mean, deviation, sample, iqm, improvement, meanImprovement, welch, holm, band, atStep, reaches, slow };
};
Report.stats = makeStatistics();

/** `Report.slowly(name, data, key)`: what a slow statistic gives, or undefined until it has been computed beside the page; then
 * the section that asked is drawn again. */
(() => {
  const PATIENCE_MS = 800; // Results are shown together, once all are there or so much time has passed.
  const found = new Map();
  const asking = new Map(); // key: sections to draw again
  let due = null;
  const answer = (key, value) => {
    found.set(key, value);
    due ??= { timer: setTimeout(tell, PATIENCE_MS), sections: new Set() };
    asking.get(key).forEach((id) => due.sections.add(id));
    asking.delete(key);
    if (!asking.size) tell();
  };
  const tell = () => {
    const { timer, sections } = due;
    clearTimeout(timer);
    due = null;
    sections.forEach(Report.refresh);
  };
  let worker = null;
  try {
    const text = `const stats = (${makeStatistics})();\n`
      + "onmessage = ({ data: { key, name, data } }) => postMessage({ key, value: stats.slow[name](data) });";
    worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => answer(data.key, data.value);
  } catch { /* A browser that allows none: the page computes them itself. */ }
  Report.slowly = (name, data, key) => {
    if (found.has(key)) return found.get(key);
    if (!worker) {
      found.set(key, Report.stats.slow[name](data));
      return found.get(key);
    }
    if (!asking.has(key)) {
      asking.set(key, new Set());
      worker.postMessage({ key, name, data });
    }
    asking.get(key).add(Report.drawing);
    return undefined;
  };
  Report.waiting = () => asking.size > 0 || due !== null;
})();
