"""Count the words of every page of a built site as a reader meets them.

    gnn_bandits site --out _docs && python scripts/words.py _docs [PAGE ...]

Five numbers a page: prose and visible outputs, which one reads without opening anything; what is
folded away; the entries of functions (signatures and tables of parameters); code; and prose and
outputs below a heading that begins with "Appendix". A formula counts as one word. Menus, the
contents at the side and the links at the foot are left out.
"""
import sys
from pathlib import Path

from bs4 import BeautifulSoup

NOISE = ("script, style, template, svg, .headerlink, .visually-hidden, .toctree-wrapper, "
         ".bottom, summary .expanded")
PARTS = {"folded": "details, .dropdown > :not(.admonition-title)", "entries": ".api",
         "code": ".cell_input, .highlight-python, .highlight-sh",
         "appendix": 'section[id^="appendix"]'} # in this order, each without those before
COLUMNS = "read", *PARTS


def words(text:str)->int:
    "How many words a text has: pieces between blanks with a letter or a digit in them."
    return sum(any(c.isalnum() for c in piece) for piece in text.split())


def count(html:str)->dict[str, int]:
    "The words of a page: read at once, and in each of `PARTS`."
    page = BeautifulSoup(html, "html.parser")
    body, counts = page.select_one("article") or page, {}
    for part in body.select(NOISE): part.decompose()
    for part in body.select(".math"): part.string = "formula"
    for kind, selector in PARTS.items():
        counts[kind] = 0
        for part in body.select(selector):
            if part.decomposed: continue                       # it was inside another one
            summary = part.find("summary", recursive=False)    # one sees it, folded or not
            if summary: part.insert_before(summary.extract())
            counts[kind] += words(part.get_text(" "))
            part.decompose()
    return {"read": words(body.get_text(" ")), **counts}


def main(folder:str, *names:str):
    "Print a table of the pages, and their sum."
    pages = [Path(folder)/f"{n}.html" for n in names] or sorted(Path(folder).glob("*.html"))
    rows = {p.stem: count(p.read_text(encoding="utf-8")) for p in pages}
    rows["all"] = {k: sum(row[k] for row in rows.values()) for k in COLUMNS}
    print(f"{'':20}" + "".join(f"{k:>9}" for k in COLUMNS))
    for name, row in rows.items():
        print(f"{name:20}" + "".join(f"{row[k]:9,}" for k in COLUMNS))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir(): sys.exit(__doc__)
    main(*sys.argv[1:])
