/** The list of runs: what is unticked here is nowhere on the page. */
Report.selection = (() => {
  const { el, choice, data } = Report;

  const toggle = (runs, shown) => {
    runs.forEach((run) => (shown ? choice.hidden.delete(run.index) : choice.hidden.add(run.index)));
    Report.changed();
  };
  const box = (runs, label, colour, extra) => {
    const input = el("input", { type: "checkbox", onchange: () => toggle(runs, input.checked) });
    const update = () => {
      const shown = runs.filter((run) => !choice.hidden.has(run.index)).length;
      input.checked = shown > 0;
      input.indeterminate = shown > 0 && shown < runs.length;
    };
    Report.onChange(update);
    update();
    return el("label", { class: `pick ${colour}` }, input, extra, el("span", { class: "name" }, label));
  };
  const method = (index) => {
    const runs = data.runs.filter((run) => run.method === index);
    const colour = Report.colour(index);
    const seeds = el("div", { class: "seeds", hidden: true }, ...runs.map((run) =>
      Report.dress(box([run], run.name, colour, null), { "data-run": run.index }, [])));
    const more = el("button", {
      type: "button", class: "more", "aria-expanded": "false",
      onclick: () => { seeds.hidden = !seeds.hidden; more.setAttribute("aria-expanded", String(!seeds.hidden)); },
    }, runs.length === 1 ? "1 run" : `${runs.length} runs`);
    const item = el("div", { class: "method" }, box(runs, data.methods[index].name, colour, Report.key(index)), more, seeds);
    item.dataset.method = index;
    return item;
  };
  Report.find("run-list").append(...data.methods.map((_, index) => method(index)));
  Report.onChange(() => {
    const shown = Report.visible().length;
    Report.find("shown").textContent = shown === data.runs.length ? `${shown}` : `${shown} of ${data.runs.length} shown`;
  });
  if (window.matchMedia("(max-width: 60rem)").matches) Report.find("selection").open = false;
})();
