/** A table whose columns sort, and that can be copied. */
(() => {
  const { el, find } = Report;
  const sorted = {}; // table id: {column, down}

  const compare = (a, b) => {
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
    return (Number.isFinite(a) ? a : -Infinity) - (Number.isFinite(b) ? b : -Infinity);
  };
  /** What is copied of a cell: its text without what is small. */
  const words = (cell) => {
    const parts = [cell.content ?? cell.value].flat().filter((part) => part !== null && part !== undefined && !(part.tagName === "SMALL" || part.tagName === "svg"));
    return { text: parts.map((part) => part.textContent ?? String(part)).join("").replace(/[\t\r\n\u2028\u2029]+/g, " ").trim(), bold: parts.some((part) => part.tagName === "STRONG") };
  };

  /** Columns are {title, text, swatch, note}; cells {value, content, off}; `value` is what a column sorts by. */
  Report.table = (id, columns, rows) => {
    const order = sorted[id];
    const body = order && columns[order.column] ? [...rows].sort((a, b) => compare(a[order.column].value, b[order.column].value) * (order.down ? -1 : 1)) : rows;
    const sort = (column) => {
      sorted[id] = { column, down: order?.column === column ? !order.down : !columns[column].text };
      Report.table(id, columns, rows);
      find(id).querySelectorAll("thead button")[column].focus();
    };
    const heads = columns.map((column, index) => el("th", {
      scope: "col", class: column.text ? "text" : null,
      "aria-sort": order?.column === index ? (order.down ? "descending" : "ascending") : null,
    }, el("button", { type: "button", onclick: () => sort(index) }, column.swatch ? Report.swatch(column.swatch) : null, column.title), column.note ? el("small", {}, column.note) : null));
    const cells = (row) => row.map((cell, index) => el(index ? "td" : "th", {
      scope: index ? null : "row", class: [columns[index].text ? "text" : "", cell.off ? "off" : ""].join(" ").trim() || null, title: cell.title, style: cell.style,
    }, ...[cell.content ?? cell.value].flat().filter((part) => part !== null)));
    const copied = () => [columns.map((column) => ({ text: column.title })), ...body.map((row) => row.map(words))];
    find(id).replaceChildren(
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body.map((row) => el("tr", { "data-run": row.run }, ...cells(row)))))),
      Report.copyButtons(copied));
  };
})();
