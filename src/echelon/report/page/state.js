/** What is drawn when. A change draws what is on the screen; the rest waits until it is scrolled to. Choices are kept in the
 * address, so that a link shows what its sender saw. */
(() => {
  const { choice, data, find } = Report;
  const controls = [];
  const sections = new Map(); // id: {draw, shown, dirty, near}
  let place = null; // the section on the screen

  /** Call `draw` after every change: for what is small or always on the screen. */
  Report.onChange = (draw) => controls.push(draw);
  /** A section of the page: `shown` says whether there is anything to draw. */
  Report.section = (id, draw, shown = () => true) => sections.set(id, { id, draw, shown, dirty: true, near: false });

  const redraw = (section) => {
    section.dirty = false;
    Report.drawing = section.id;
    section.draw();
    Report.drawing = null;
  };
  Report.changed = () => {
    Report.known.clear();
    remember();
    controls.forEach((draw) => draw());
    for (const section of sections.values()) {
      find(section.id).hidden = !section.shown();
      section.dirty = true;
      if (section.near && !find(section.id).hidden) redraw(section);
    }
  };
  /** Draw a section again, if it is on the screen: something it waits for has been computed. */
  Report.refresh = (id) => {
    const section = sections.get(id);
    section.dirty = true;
    if (section.near && !find(id).hidden) redraw(section);
  };
  /** Everything, also what is off the screen: to print, and once after loading, so that the page has its height. */
  Report.drawAll = () => sections.forEach((section) => { if (section.dirty && !find(section.id).hidden) redraw(section); });
  Report.begin = () => {
    const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
      const section = sections.get(entry.target.id);
      section.near = entry.isIntersecting;
      if (section.near && section.dirty) redraw(section);
    }), { rootMargin: "300px 0px" });
    sections.forEach((section) => near.observe(find(section.id)));
    Report.changed();
    const left = [...sections.values()];
    const next = () => {
      const section = left.shift();
      if (!section) {
        Report.ready = true;
        if (place) find(place)?.scrollIntoView();
        return;
      }
      if (section.dirty && !find(section.id).hidden) redraw(section);
      setTimeout(next);
    };
    next();
  };
  window.addEventListener("beforeprint", Report.drawAll);

  /** Numbers as ranges: 0-3,7. */
  const ranges = (numbers) => [...numbers].sort((a, b) => a - b).reduce((found, number) => {
    const last = found[found.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
    return found;
  }, []).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join();
  const spread = (text, count) => text.split(",").filter(Boolean).flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    return Array.from({ length: Math.min(last ?? first, count - 1) - first + 1 || 0 }, (_, i) => first + i);
  }).filter((number) => Number.isInteger(number) && number >= 0 && number < count);

  const usual = { ...choice };
  const remember = () => {
    const words = new URLSearchParams();
    if (place) words.set("section", place);
    if (choice.hidden.size) words.set("hidden", ranges(choice.hidden));
    if (choice.off.size) words.set("off", ranges(choice.off));
    for (const name of ["axis", "statistic", "metric", "coupling", "theme", "at"]) if (choice[name] !== usual[name]) words.set(name, choice[name]);
    for (const name of ["single", "details"]) if (choice[name]) words.set(name, "1");
    const text = words.toString();
    if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
  };
  /** The section that the reader is at. */
  Report.at = (id) => { place = id; remember(); };

  const words = new URLSearchParams(location.hash.slice(1));
  for (const index of spread(words.get("hidden") ?? "", data.runs.length)) choice.hidden.add(index);
  for (const index of spread(words.get("off") ?? "", data.tasks.length)) choice.off.add(index);
  const allowed = {
    axis: ["env_steps", "wall_s", "gradient_steps"], statistic: ["mean", "iqm"], theme: ["light", "dark"],
    metric: data.runs.flatMap((run) => Object.keys(run.curves)), coupling: data.runs.flatMap((run) => Object.keys(run.curves)),
  };
  for (const [name, values] of Object.entries(allowed)) if (values.includes(words.get(name))) choice[name] = words.get(name);
  if (Number(words.get("at")) > 0) choice.at = Number(words.get("at"));
  for (const name of ["single", "details"]) choice[name] = words.get(name) === "1";
  place = find(words.get("section") ?? "")?.id ?? null;
})();
