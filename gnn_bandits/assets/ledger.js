// Tables of claims: buttons that sort, fields that filter, and links that open a row.
(() => {
  const start = box => {
    const body = box.querySelector("tbody"), rows = [...body.rows];
    const form = box.querySelector("form"), heads = [...box.querySelectorAll("th")];
    const text = new Map(rows.map(r => [r, r.textContent.toLowerCase()]));
    const pick = name => form.elements[name].value;
    const show = () => {
      const words = pick("words").toLowerCase().split(/\s+/);
      let count = 0;
      for (const r of rows) {
        r.hidden = !(["verdict", "kind"].every(k => !pick(k) || r.dataset[k] === pick(k))
                     && words.every(w => text.get(r).includes(w)));
        count += !r.hidden;
      }
      box.querySelector("output").textContent = `${count} of ${rows.length} shown`;
    };
    form.hidden = false;
    form.addEventListener("input", show);
    form.addEventListener("submit", e => e.preventDefault());
    form.addEventListener("reset", () => setTimeout(show));
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(h => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = r => Number(r.cells[column].dataset.value);
        body.append(...[...rows].sort((a, b) => (value(a) - value(b))*(up ? 1 : -1)));
      });
    });
    const open = () => {
      const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!row || !body.contains(row)) return;
      if (row.hidden) { form.reset(); rows.forEach(r => r.hidden = false); }
      row.querySelectorAll("details").forEach(d => d.open = true);
      row.scrollIntoView();
    };
    addEventListener("hashchange", open);
    show();
    if (document.readyState === "complete") open();
    else addEventListener("load", open);                // when pictures and math have their size
  };
  for (const box of document.querySelectorAll(".ledger:not(.ledger-begun)")) {
    box.classList.add("ledger-begun");
    start(box);
  }
})();
