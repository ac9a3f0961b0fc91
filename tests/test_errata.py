"The table of errata: complete, quoted verbatim, and with what was once wrong in it set right."
import re
from pathlib import Path

import pytest
from quotations import is_verbatim, latex

from gnn_bandits.core import read_table
from gnn_bandits.paper.ledger import claim_sections

FILE = Path(__file__).parents[1]/"nbs"/"results"/"errata.csv"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the table belongs to the repository")
COLUMNS = "key kind where line quotation printed right decides changes more".split()
PEDANTIC = ["samples-in-h", "featureless", "two-b", "episodes", "factor-two", "log-factor"]


def test_every_entry_is_complete():
    table = read_table(FILE)
    assert list(table.columns) == COLUMNS
    assert table["key"].is_unique and not table.isna().any(axis=None)
    assert set(table["kind"]) == {"erratum", "departure", "slip"}
    assert set(table["changes"]) == {"a conclusion", "a constant", "nothing"}
    assert (table.loc[table["kind"] == "slip", "changes"] == "nothing").all()
    assert (table.drop(columns=["key", "line"]).map(len) > 0).all(axis=None)
    assert table["decides"].str.contains(r"\d").all()       # a number decides
    assert (table["quotation"].map(len) <= 100).all()        # short


def test_quotations_are_verbatim():
    source = latex()
    for one in read_table(FILE).itertuples():
        assert is_verbatim(source, one.quotation, one.line), (one.key, one.line, one.quotation)


def test_a_wrong_quotation_is_noticed():
    source = "first\nsecond line\n  goes on $x$\nlast"
    assert is_verbatim(source, "line goes on $x$", 2) and is_verbatim(source, "goes", 3)
    for words, line in (("goes on", 2), ("Second", 2), ("second line", 1), ("", 9), ("last", 3)):
        assert not is_verbatim(source + "\n"*9, words, line), (words, line)


def test_sections_are_those_of_the_paper():
    source, sections = latex().split("\n"), read_table(FILE.parent/"paper_sections.csv")
    starts = [n for n, text in enumerate(source, 1)
              if re.match(r"\s*\\(sub)?section\{|\\begin\{abstract\}", text)]
    figures = next(n for n, text in enumerate(source, 1)
                   if n > starts[-1] and text.startswith(r"\begin{figure}"))
    assert sections["first"].tolist() == starts + [figures]
    assert (sections["last"].to_numpy()[:-1] < sections["first"].to_numpy()[1:]).all()
    for one in sections.itertuples():
        if not re.search(r"Theorem|UCB|Abstract|Figures", one.title):
            assert f"{{{one.title}}}" in source[one.first - 1]


def test_what_was_corrected_stays_corrected():
    table = read_table(FILE).set_index("key")
    assert not {"one-ridge", "union-bound", "kernel-above-one", "who-is-best"} & set(table.index)
    assert "899 at t = 1" in table.loc["third-term", "decides"]
    assert "89,793 at t = 100" in table.loc["third-term", "decides"]
    assert "N^3" in table.loc["factorial", "right"]
    assert table.loc["gntk-eigenvalues", "changes"] == "nothing"
    assert {"selected-by", "ridge-above-two", "not-nested", "noise-of-ridge", "above-one",
            "subspace", "poly-lambda", "two-k"} <= set(table.index)
    padding = ["divisor", "outer-product", "theta-zero", "feature-map", "m-one", "root-mn"]
    assert (table.loc[padding + PEDANTIC, "kind"] == "slip").all()


def test_links_lead_to_notebooks():
    more = read_table(FILE)["more"]
    for name in more[more.str.endswith(".ipynb")].unique(): assert (FILE.parents[1]/name).exists()


def test_every_entry_has_an_anchor_and_a_section():
    page, keys = FILE.parents[1]/"33_errata.ipynb", list(read_table(FILE)["key"])
    assert list(claim_sections(page, r'^entry\("\w+", "([\w-]+)"')) == keys
    text = page.read_text(encoding="utf-8")
    for key in keys: assert text.count(f'id=\\"erratum-{key}\\"') == 1, key


def test_an_independent_script_finds_two_errata_again(tmp_path, monkeypatch):
    "numpy and scipy only; a changed number is noticed"
    monkeypatch.syspath_prepend(FILE.parents[2]/"scripts")
    from check_verdicts import recomputed_errata
    assert recomputed_errata(FILE.parent) == 0
    table = read_table(FILE)
    for old, new in (("r^{-4.9}", "r^{-4.0}"), ("and 60 at", "and 59 at")):
        table["decides"] = table["decides"].str.replace(old, new, regex=False)
    table.to_csv(tmp_path/"errata.csv", index=False)
    assert recomputed_errata(tmp_path) == 2
