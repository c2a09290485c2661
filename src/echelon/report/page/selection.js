/** Which runs and tasks are shown: what is unticked here is nowhere on the page. */
(() => {
  const { el, choice, data, find } = Report;

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
    return el("div", { class: "method", "data-method": index }, box(runs, data.methods[index].name, colour, Report.key(index)), more, seeds);
  };
  find("run-list").append(...data.methods.map((_, index) => method(index)));
  Report.onChange(() => {
    const shown = Report.visible().length;
    find("shown").textContent = shown === data.runs.length ? `${shown}` : `${shown} of ${data.runs.length} shown`;
  });
  if (window.matchMedia("(max-width: 60rem)").matches) find("selection").open = false;

  const chip = (task, index) => {
    const button = el("button", {
      type: "button", class: "chip",
      onclick: () => { if (!choice.off.delete(index)) choice.off.add(index); Report.changed(); },
      ondblclick: () => { data.tasks.forEach((_, k) => (k === index ? choice.off.delete(k) : choice.off.add(k))); Report.changed(); },
    }, task);
    Report.onChange(() => button.setAttribute("aria-pressed", String(!choice.off.has(index))));
    return button;
  };
  if (data.tasks.length > 1) {
    const all = el("button", { type: "button", class: "quiet", onclick: () => { choice.off.clear(); Report.changed(); } }, "all tasks");
    Report.onChange(() => { all.hidden = !choice.off.size; });
    find("tasks").append(...data.tasks.map(chip), all);
    find("tasks").title = "A click hides or shows a task, a double click shows it alone";
  }
})();
