/** Tables as LaTeX, Markdown or CSV; charts as SVG or PNG. */
(() => {
  const { el, svg } = Report;
  const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];

  const tex = (text) => text.replace(/[\\{}$&#_%^~]/g, (letter) => ({ "\\": "\\textbackslash{}", "^": "\\^{}", "~": "\\~{}" }[letter] ?? `\\${letter}`))
    .replace(/ ± /g, " $\\pm$ ").replace(/[\u202f\u00a0]/g, "~").replace(/–/g, "--").replace(/ ·/g, " $\\cdot$").replace(/°/g, "$^\\circ$").replace(/×/g, "$\\times$");
  const NUMBER = /^-[\d.,]+(e[+-]?\d+)?( ± [\d.,]+(e[+-]?\d+)?)?( °)?$/;
  /** From rows of cells {text, bold}, the first of them the heads. */
  Report.formats = {
    LaTeX: (rows) => {
      const line = (row) => `${row.map((cell) => (cell.bold ? `\\textbf{${tex(cell.text)}}` : tex(cell.text))).join(" & ")} \\\\`;
      return [`\\begin{tabular}{l${"r".repeat(rows[0].length - 1)}}`, "\\toprule", line(rows[0]), "\\midrule", ...rows.slice(1).map(line), "\\bottomrule", "\\end{tabular}"].join("\n");
    },
    Markdown: (rows) => {
      const line = (row) => `| ${row.map((cell) => (cell.bold ? `**${cell.text}**` : cell.text).replaceAll("|", "\\|").replaceAll("<", "&lt;")).join(" | ")} |`;
      return [line(rows[0]), `|---|${"---:|".repeat(rows[0].length - 1)}`, ...rows.slice(1).map(line)].join("\n");
    },
    CSV: (rows) => rows.map((row) => row.map(({ text }) => {
      const plain = /^[=+@-]/.test(text) && !NUMBER.test(text) ? `'${text}` : text; // or a spreadsheet takes a name for a formula
      return /[",]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
    }).join()).join("\n"),
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // not allowed here: the old way
      const area = el("textarea", { style: "position: fixed; opacity: 0" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const save = (blob, name) => {
    const link = el("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const button = (name, title, act) => {
    const made = el("button", {
      type: "button", title,
      onclick: async () => { Report.exported = await act(); made.textContent = "✓"; setTimeout(() => { made.textContent = name; }, 900); },
    }, name);
    return made;
  };

  /** Buttons that copy a table; `rows` gives it as text. */
  Report.copyButtons = (rows) => el("div", { class: "export" }, "copy as", ...Object.entries(Report.formats).map(([name, format]) =>
    button(name, `Copy this table as ${name}`, async () => { const text = format(rows()); await copy(text); return text; })));

  /** A chart as a file of its own: what the style sheet says is written into it. */
  const standalone = (plot) => {
    const clone = plot.cloneNode(true);
    const [from, to] = [[plot, ...plot.querySelectorAll("*")], [clone, ...clone.querySelectorAll("*")]];
    from.forEach((element, i) => {
      const style = getComputedStyle(element);
      for (const name of PAINT) to[i].style.setProperty(name, style.getPropertyValue(name));
    });
    const [, , width, height] = plot.getAttribute("viewBox").split(" ");
    const ground = getComputedStyle(document.documentElement).getPropertyValue("--surface");
    clone.prepend(svg("rect", { width: "100%", height: "100%", fill: ground }));
    for (const [name, value] of [["xmlns", "http://www.w3.org/2000/svg"], ["width", width], ["height", height]]) clone.setAttribute(name, value);
    return { text: new XMLSerializer().serializeToString(clone), width: Number(width), height: Number(height) };
  };
  const toPng = ({ text, width, height }) => new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 3 * width, height: 3 * height });
      canvas.getContext("2d").drawImage(image, 0, 0, 3 * width, 3 * height);
      canvas.toBlob(done, "image/png");
    };
    image.onerror = fail;
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
  /** Buttons that save the drawing inside `host`. */
  Report.saveButtons = (host, name) => {
    const file = name.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase();
    const drawing = () => standalone(host.querySelector("svg"));
    return el("span", { class: "export" },
      button("SVG", "Save this chart as SVG", async () => { const { text } = drawing(); save(new Blob([text], { type: "image/svg+xml" }), `${file}.svg`); return text; }),
      button("PNG", "Save this chart as PNG", async () => { const blob = await toPng(drawing()); save(blob, `${file}.png`); return blob.size; }));
  };
})();
