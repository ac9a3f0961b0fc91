// What depends on the width of the window, on formulas or on what the reader does.
(() => {
  // search results show extracts by fetching pages, which browsers forbid for files
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement;
  const wide = (e) => e.scrollWidth > e.clientWidth + 4
                      && /auto|scroll/.test(getComputedStyle(e).overflowX);
  const boxes = "article :is(pre, div, figure, mjx-container)";
  const tall = (e) => e.scrollHeight > e.clientHeight + 4
                      && /auto|scroll/.test(getComputedStyle(e).overflowY);
  const reach = () => {
    const scrolls = all(boxes).map((e) => [e, wide(e) || tall(e)]);
    for (const [e, does] of scrolls) {
      if (does && !e.hasAttribute("tabindex")) { e.tabIndex = 0; e.dataset.reach = ""; }
      if (!does && "reach" in e.dataset) { e.removeAttribute("tabindex"); delete e.dataset.reach; }
    }
  };
  const settle = () => {
    const waited = root.classList.contains("typesetting");
    root.classList.remove("typesetting");
    const id = decodeURIComponent(location.hash.slice(1));
    if (waited && id) document.getElementById(id)?.scrollIntoView();
    reach();
  };
  addEventListener("DOMContentLoaded", () => {
    const math = window.MathJax?.startup?.promise;
    if (math) math.then(settle, settle); else settle();
    for (const e of all(".sidebar-toggle"))
      e.addEventListener("keydown", (k) => { if (k.key === "Enter") e.click(); });
  });
  let timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(reach, 150); });
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("article details:not([open])").filter((e) => !e.closest(".api, .origin"));
    opened.forEach((e) => { e.open = true; });
    all("img[loading=lazy]").forEach((e) => { e.loading = "eager"; });
  });
  addEventListener("afterprint", () => opened.forEach((e) => { e.open = false; }));
})();
