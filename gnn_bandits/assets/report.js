// Sort the table of candidates by its headers, and filter it by words.
(() => {
  const table = document.querySelector("#candidates table");
  if (!table) return;
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows].map((row, place) => ({row, place,
    cells: [...row.cells].map(c => c.textContent.trim()), text: row.textContent.toLowerCase()}));
  const sort = (column, down) => {
    const full = rows.filter(r => r.cells[column] !== "");
    const empty = rows.filter(r => r.cells[column] === "");
    const numbers = full.every(r => Number.isFinite(Number(r.cells[column])));
    const order = new Intl.Collator(undefined, {numeric: true}).compare;
    const compare = numbers ? (a, b) => Number(a) - Number(b) : order;
    full.sort((a, b) => (down ? -1 : 1)*compare(a.cells[column], b.cells[column])
                        || a.place - b.place);
    body.append(...full.concat(empty).map(r => r.row));
    heads.forEach((h, i) => h.setAttribute("aria-sort",
      i !== column ? "none" : down ? "descending" : "ascending"));
  };
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click",
    () => sort(i, head.getAttribute("aria-sort") === "ascending")));
  const box = document.querySelector("#filter"), count = document.querySelector("#count");
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const r of rows) {
      r.row.hidden = !words.every(w => r.text.includes(w));
      shown += !r.row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} shown`;
  };
  box.addEventListener("input", filter);
  filter();
})();
