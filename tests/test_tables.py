"The command that makes the tables of results: whole, resumable, and what pages say of it is true."
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits.campaigns import CampaignPolicy, choose
from gnn_bandits.molecules import read_smiles
from gnn_bandits.paper.ledger import HOW_TO_MAKE
from gnn_bandits.surrogate import Surrogate, candidate_priors

ROOT = Path(__file__).parent.parent
RESULTS = ROOT/"nbs/results"
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.skipif(not (ROOT/"scripts").exists(), reason="needs the source tree")]
sys.path.insert(0, str(ROOT/"scripts"))
try:
    import molecule_tables
    import paper_tables
    import tables
finally: sys.path.remove(str(ROOT/"scripts"))


@pytest.fixture(scope="module")
def registry():
    sys.path.insert(0, str(ROOT/"scripts"))
    try: return tables.registry()
    finally: sys.path.remove(str(ROOT/"scripts"))


def test_every_table_is_committed_with_exactly_its_keys(registry):
    for name, table in registry.items():
        known, keys = set(table.known(tables.read_text(RESULTS/f"{name}.csv"))), table.keys()
        assert len(keys) == len(set(keys)), name
        if name == "released_first": assert known < set(keys)     # two panels have no first point
        else: assert known == set(keys), name
        assert table.play.__doc__ and set(table.clock).isdisjoint(table.key)
        assert sorted(k for g in table.groups(keys) for k in g) == sorted(keys)


def test_rows_are_in_the_order_of_their_keys(registry):
    for name, table in registry.items():
        place = {k: i for i, k in enumerate(table.keys())}
        at = [place[k] for k in table.known(tables.read_text(RESULTS/f"{name}.csv"))]
        assert at == sorted(at), name


def test_every_command_that_is_named_is_one(registry):
    pages = [*(ROOT/"nbs").glob("*.ipynb"), ROOT/"README.md", ROOT/"CONTRIBUTING.md"]
    text = "\n".join([*HOW_TO_MAKE.values(), *(p.read_text(encoding="utf-8") for p in pages)])
    said = {n for words in re.findall(r"scripts/tables\.py((?: [a-z_0-9]+)+)", text)
            for n in words.split() if n not in ("makes", "it")}
    assert len(said) >= 20 and said <= set(registry), said - set(registry)
    made = re.search(r"^MOLECULES = ((?:.*\\\n)*.*)$", (ROOT/"Makefile").read_text(), re.M)[1]
    assert set(made.replace("\\", "").split()) == {n for n in registry if n.startswith("molecules")
                                                   } | {"splits"}
    scripts = {m for p in pages for m in re.findall(r"scripts/\w+\.py", p.read_text("utf-8"))}
    assert all((ROOT/s).exists() for s in scripts), scripts


@pytest.fixture
def toy(monkeypatch):
    "A table of squares that notes what is played"
    seen = []
    def squares(keys, o):
        "Squares."
        for a, b in keys:
            if seen[-1:] == ["stop"]: raise RuntimeError("stopped")
            seen.append((a, b))
            yield dict(a=a, b=b, square=b**2/3, took=len(seen))
    keys = lambda: [(a, b) for a in ("y", "x") for b in (1, 2, 3)]
    table = tables.Table(squares, ("a", "b"), keys, lambda k: k[0], 4, ("took",))
    monkeypatch.setattr(tables, "registry", lambda: dict(squares=table))
    return seen


def test_a_table_goes_on_where_it_was(toy, tmp_path, capsys):
    run = lambda *a: tables.main(["squares", "--results", str(tmp_path), *a])
    file = tmp_path/"squares.csv"
    run("--only", "a=x", "b=1", "b=3")
    assert toy == [("x", 1), ("x", 3)] and pd.read_csv(file)["square"].tolist() == [0.3333, 3.]
    file.write_text(file.read_text().replace("0.3333", "3.333e-01"))     # stays as it is
    toy.append("stop")
    with pytest.raises(RuntimeError): run()
    toy.pop()
    run(), run()
    assert sorted(toy) == sorted([("y", 1), ("y", 2), ("y", 3), ("x", 1), ("x", 2), ("x", 3)])
    rows = tables.read_text(file)
    assert rows[["a", "b"]].agg("".join, axis=1).tolist() == ["y1", "y2", "y3", "x1", "x2", "x3"]
    assert rows["square"][3] == "3.333e-01"
    assert run("--again", "--only", "b=2") == 0 and "0 differ" in capsys.readouterr().out
    file.write_text(file.read_text().replace("1.333", "1.334", 1))
    assert run("--again", "--only", "b=2") == 1 and "1 differ" in capsys.readouterr().out
    run("--list")
    assert "6 of 6, by a, b: Squares." in capsys.readouterr().out
    for bad in (["none"], [], ["squares", "--only", "c=1"], ["squares", "--only", "b=7"]):
        with pytest.raises(SystemExit): tables.main(bad)


@pytest.mark.parametrize("name, keys", [("elimination", [("gntk", 1., 0), ("linearized", 1., 0)]),
                                        ("stopping", [(0,)]), ("landing", [(0,)]),
                                        ("molecules_theory", [("random", 5, 0)]),
                                        ("taylor_error", [(64, 1)])])
def test_committed_rows_come_out_again(registry, name, keys):
    "Up to one unit of the last digit, on any processor"
    table, whole = registry[name], tables.read_text(RESULTS/f"{name}.csv")
    old = whole[[k in keys for k in table.known(whole)]].reset_index(drop=True)
    new = tables.work(table, keys, tables.Options()).reindex(columns=old.columns, fill_value="")
    pd.testing.assert_frame_equal(new.map(tables.number), old.map(tables.number),
                                  rtol=1.01*10.**(1 - table.digits))


def test_a_released_run_leaves_nothing_unfinished(tmp_path):
    row, = paper_tables.released([("training", 8, "GNN-PE", 3)], tables.Options(room=tmp_path))
    assert row["run"] == 3 and row["recipe"] == "training" and not list(tmp_path.iterdir())
    assert set(row) == set(pd.read_csv(RESULTS/"released.csv"))


def test_the_quick_choice_of_a_batch_is_the_plain_one():
    pytest.importorskip("rdkit")
    smiles = [a*k + b for a in ("C", "CO", "N") for k in (1, 2, 3, 4) for b in "CNOF"]
    X = read_smiles(smiles, invalid="skip").domain
    y, rng = X.sizes.double().numpy(), np.random.default_rng(0)
    model, policy = Surrogate(candidate_priors(X)), CampaignPolicy()
    some = rng.permutation(len(y))[:12]
    model.learn(some.tolist(), (y[some] + rng.standard_normal(12)).tolist())
    free = torch.ones(len(y), dtype=torch.bool).index_fill(0, torch.tensor(some), False)
    plain = choose(model.latent, policy, 5, free, free | True, some.tolist(), [], rng)
    assert plain == molecule_tables.choose_near(model, policy, 5, free)
