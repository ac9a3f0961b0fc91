"The page beside the paper: every claim and erratum once, in the order of the paper's lines."
import json
import re
from pathlib import Path

import pytest

from gnn_bandits.core import read_table
from gnn_bandits.paper.beside import beside_page, readable, section_of

NBS = Path(__file__).parents[1]/"nbs"
pytestmark = pytest.mark.skipif(not NBS.exists(), reason="the tables belong to the repository")


@pytest.fixture(scope="module")
def tables():
    return [read_table(NBS/"results"/f"{name}.csv")
            for name in ("paper_sections", "claims", "errata")]


def test_the_committed_page_is_what_the_tables_say(tables):
    cells = json.loads((NBS/"34_beside.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = ["".join(out["data"]["text/markdown"]) for cell in cells
             for out in cell.get("outputs", []) if "text/markdown" in out.get("data", {})]
    assert shown == [beside_page(*tables)], "run the notebook again"


def test_boxes_close_and_links_are_unique(tables):
    page = beside_page(*tables)
    for tag in ("div", "details", "nav", "style", "span"):
        assert len(re.findall(rf"<{tag}\b", page)) == page.count(f"</{tag}>"), tag
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) == len(tables[0])
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", page)
    assert "<script" not in page


def test_entries_follow_the_lines_of_the_paper(tables):
    sections, claims, errata = tables
    lined = claims.assign(line=range(200, 200 + len(claims)), quotation="some words")
    page = re.sub(r"<details>.*?</details>", "", beside_page(sections, lined, errata), flags=re.S)
    lines = [int(n) for n in re.findall(r'"beside-line">line (\d+)<', page)]
    assert lines == sorted(lines) and len(lines) == len(claims) + (errata["kind"] != "slip").sum()
    bare = claims.drop(columns=["line", "quotation"], errors="ignore")
    assert len(beside_page(sections, bare, errata)) > 10_000


def test_first_and_last_line_belong_to_a_section(tables):
    for one in tables[0].itertuples():
        assert [section_of(tables[0], n) for n in (one.first, one.last)] == [one.number]*2


def test_a_place_that_does_not_exist_is_refused(tables):
    for line in (1, 570, 2000):
        with pytest.raises(ValueError, match="within one section"): section_of(tables[0], line)
    with pytest.raises(ValueError, match="Section 5"): section_of(tables[0], where="Figure 9")


def test_no_macro_of_the_paper_is_left(tables):
    for text in tables[2]["quotation"]:
        assert not re.search(r"\\(?:v|m|c|s)[a-zA-Z]\b(?<!\\mu)", readable(text)), readable(text)
