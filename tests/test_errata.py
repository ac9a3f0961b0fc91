"The table of errata: complete, without repetition, and with what was once wrong in it set right."
from pathlib import Path

import pytest

from gnn_bandits.core import read_table
from gnn_bandits.paper.ledger import claim_sections

FILE = Path(__file__).parents[1]/"nbs"/"results"/"errata.csv"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the table belongs to the repository")
KINDS = {"nothing", "a constant", "a statement", "the experiments", "typographical"}


def test_every_entry_is_complete():
    table = read_table(FILE)
    assert list(table.columns) == ["key", "where", "printed", "right", "decides", "changes", "more"]
    assert table["key"].is_unique and not table.isna().any(axis=None)
    assert set(table["changes"]) == KINDS
    assert (table.drop(columns="key").map(len) > 0).all(axis=None)
    assert table["decides"].str.contains(r"\d").all()       # a number decides


def test_what_was_corrected_stays_corrected():
    table = read_table(FILE).set_index("key")
    assert not {"one-ridge", "union-bound", "kernel-above-one"} & set(table.index)
    assert "899 at t = 1" in table.loc["third-term", "decides"]
    assert "89,793 at t = 100" in table.loc["third-term", "decides"]
    assert "N^3" in table.loc["factorial", "right"]
    assert table.loc["gntk-eigenvalues", "changes"] == "nothing"
    assert {"featureless", "samples-in-h", "selected-by"} <= set(table.index)
    padding = ["divisor", "outer-product", "theta-zero", "feature-map", "m-one", "root-mn"]
    assert (table.loc[padding, "changes"] == "typographical").all()


def test_links_lead_to_notebooks():
    more = read_table(FILE)["more"]
    for name in more[more.str.endswith(".ipynb")].unique(): assert (FILE.parents[1]/name).exists()


def test_every_entry_has_an_anchor_and_a_section():
    page, keys = FILE.parents[1]/"28_errata.ipynb", list(read_table(FILE)["key"])
    assert list(claim_sections(page, r'^(?:slip|typo)\("([\w-]+)"')) == keys
    text = page.read_text(encoding="utf-8")
    for key in keys: assert text.count(f'id=\\"erratum-{key}\\"') == 1, key
