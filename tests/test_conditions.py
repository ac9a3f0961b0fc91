"Conditions beside the graph: pools, kernels, campaigns and the command line."
import importlib.metadata
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from gnn_bandits import Campaign, GraphDomain, GraphRegressor, Prior, cli
from gnn_bandits.campaigns import pool_hash
from gnn_bandits.graphs import twins
from gnn_bandits.kernels import GNTK, Columns, Overlap, Unit
from gnn_bandits.molecules import read_reactions
from gnn_bandits.surrogate import Surrogate, candidate_priors

pytest.importorskip("rdkit")
pytestmark = pytest.mark.usefixtures("one_thread")
ACIDS, ALCOHOLS = ("CC(=O)O", "OC=O", "CCC(=O)O"), ("CO", "CCO", "CC(C)O")
SMILES, COLUMNS = ["acid", "alcohol"], ["heat", "salt"]


@pytest.fixture(scope="module")
def table():
    rows = itertools.product(ACIDS, ALCOHOLS, (20, 60, 100.5), ("NaCl", "none"))
    out = pd.DataFrame(rows, columns=[*SMILES, *COLUMNS])
    return out.assign(name=[f"r{k}" for k in range(len(out))])


@pytest.fixture
def made(table, tmp_path):
    return lambda **more: Campaign.create(tmp_path/"c", **dict(
        table=table, ids=table["name"], smiles=SMILES, columns=COLUMNS) | more)


def truth(table):
    size = table["alcohol"].str.len()
    return (table["heat"]/50 + size*(table["salt"] == "NaCl")).to_numpy()


def test_the_kernel_written_out(table):
    X = read_reactions(table, SMILES)[0].with_columns(table, COLUMNS)
    k = Columns(("alcohol", "heat", "salt"), (1., 0.5, 2.), Overlap(1))
    part = X.beside["alcohol"]
    O = Overlap(1).gram(part.levels).numpy()
    apart = 2 - 2*O
    apart = apart/apart[~np.eye(3, dtype=bool)].mean()
    x, at, salt = table["heat"].to_numpy(), part.values.numpy(), table["salt"].to_numpy()
    unit = np.mean([(a - b)**2 for a, b in itertools.permutations((20, 60, 100.5), 2)])
    D = (apart[at][:, at] + (x[:, None] - x)**2/unit/0.25
         + (salt[:, None] != salt)/4)
    assert_allclose(k.gram(X), np.exp(-D/2), atol=1e-12)
    assert np.linalg.eigvalsh(k.gram(X)).min() > -1e-10
    assert_allclose(k.cross(X, X[[5, 9]]), np.exp(-D/2)[:, [5, 9]], atol=1e-12)
    U = Unit(GNTK(over="sum"))
    assert_allclose(U.gram(X).diagonal(), 1, atol=1e-12)
    K = GNTK(over="sum").gram(X)
    assert_allclose(U.gram(X), K/(K.diagonal()[:, None]*K.diagonal()).sqrt(), rtol=1e-12)


def test_length_scales_say_what_matters(table):
    X = read_reactions(table, SMILES)[0].with_columns(table, COLUMNS)
    y = 3*(table["salt"] == "NaCl") + 0.*table["heat"]
    some = list(range(0, 54, 5))
    model = Surrogate(candidate_priors(X)[:1]).learn(some, y[some])
    kernel = model.fit.prior.kernel
    lengths = dict(zip(kernel.names, kernel.lengths))
    assert min(lengths, key=lengths.get) == "salt" and lengths["heat"] > 1.5*lengths["salt"]
    assert "salt" in model.facts["prior"]


def test_equal_values_are_learned(table):
    X = read_reactions(table, SMILES)[0]
    model = Surrogate(candidate_priors(X)).learn(range(12), [0.]*12)   # no yield at all so far
    assert model.mean.isfinite().all() and (model.std > 0).all()


def test_a_prior_with_columns_is_stored(table, tmp_path):
    X = read_reactions(table, SMILES)[0].with_columns(table, COLUMNS)
    kernel = Columns(("heat", "acid"), (1., 2.), Overlap(1)) + Unit(GNTK())*Columns(("salt",))
    prior = Prior(kernel, X, "rows", "anchors")
    back = Prior.load(prior.save(tmp_path/"p.npz"), X)
    assert_allclose(back.block(range(9)), prior.block(range(9)))
    assert [c.nats for c in candidate_priors(X)] == [0., 1.5, 1.5]


def test_columns_are_part_of_the_pool(table):
    X = GraphDomain.from_smiles(table["alcohol"], duplicates="keep")
    warm, cold = X.with_columns(table, ["heat"]), X.with_columns(table, ["salt"])
    assert len({pool_hash(X), pool_hash(warm), pool_hash(cold)}) == 3
    assert len(twins(X).unique()) == 3 and len(twins(warm).unique()) == 9
    assert len(twins(X.with_columns(table, COLUMNS)).unique()) == 18
    assert "heat: numbers from 20 to 100.5" in str(warm.report())


def test_a_campaign_through_every_door(made, table, tmp_path):
    c, y = made(), truth(table)
    assert sorted(c.domain.beside) == sorted(SMILES + COLUMNS)
    for _ in range(2): c.tell(arms := c.ask(10), y[arms])
    assert len(c.best()) == 1 and c.model().facts["explained"] > 0.5
    again = Campaign.open(tmp_path/"c")
    assert again.suggest(5).equals(c.suggest(5))
    outside = table.head(2).assign(heat=[80, 40])
    assert c.predict(table=outside)["mean"].is_monotonic_decreasing
    assert_allclose(c.predict(table=table.head(6))["mean"], Surrogate.predict(
        c.surrogate(), c.domain[:6])["mean"])
    c.add(ids=["new", "newer"], table=outside.drop(columns="name"))
    assert len(c) == 56 and len(c.ask(3)) == 3 and len(Campaign.open(tmp_path/"c")) == 56
    assert c.domain.beside["heat"].values[-2:].tolist() == [80., 40.]
    page = c.report(tmp_path/"r.html").read_text()
    assert ">heat<" in page and ">salt<" in page
    assert {*SMILES, *COLUMNS} <= {*pd.read_csv(c.export(tmp_path/"out")[0])}


def test_one_molecule_with_conditions(table, tmp_path):
    X, y = GraphDomain.from_smiles(table["alcohol"], duplicates="keep"), truth(table)
    c = Campaign.create(tmp_path/"c", X, table=table, columns=COLUMNS)
    for _ in range(2): c.tell(arms := c.ask(8), y[arms])
    assert "conditions" in c.model().facts["prior"] and y[c.best()["arm"][0]] >= np.sort(y)[-9]
    assert len(c.predict(X[:2], table=table.head(2))) == 2
    with pytest.raises(ValueError, match="a column 'heat', as in the pool"): c.predict(X[:2])
    c.add(X[:1], table=table.head(1).assign(heat=30), ids=["more"])
    assert len(c) == 55
    model = GraphRegressor().fit(c.domain[:30], y[:30])
    assert np.isfinite(model.predict(c.domain[30:54])).all()


@pytest.mark.parametrize("more, words", [
    (dict(columns=["cold"]), "no column 'cold'"), (dict(smiles=["acid", "ester"]), "'ester'"),
    (dict(columns=["same"]), "'same' says '7' in every row"),
    (dict(columns=["mixed"]), "row 3, column 'mixed': expected a number"),
    (dict(columns=["gap"]), "row 2, column 'gap': the cell is empty"),
    (dict(smiles=["acid", "hole"]), "row 2, column 'hole': '' is no molecule"),
    (dict(domain=GraphDomain.from_arrays([np.ones((2, 2))], [np.eye(2)])), "graphs or smiles")])
def test_bad_columns_make_no_campaign(made, table, tmp_path, more, words):
    bad = table.assign(same=7, mixed=[1, 2, "warm"] + [3]*51, gap=[1, None] + [2]*52,
                       hole=["CO", ""] + ["CCO"]*52)
    with pytest.raises(ValueError, match=words): made(table=bad, **more)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("change, words", [
    (dict(salt="KBr"), "'KBr' is not among the categories"), (dict(heat="warm"), "got 'warm'"),
    (dict(acid=""), "column 'acid'"), (dict(heat=None), "the cell is empty"),
    ("heat", "no column 'heat'"), ("acid", "no column 'acid'")])
def test_bad_rows_are_not_added(made, table, tmp_path, change, words):
    c, rows = made(), table.head(2).drop(columns="name")
    rows = rows.drop(columns=change) if isinstance(change, str) else rows.assign(**change)
    before = sorted(p.name for p in (tmp_path/"c").iterdir())
    with pytest.raises(ValueError, match=words): c.add(ids=["a", "b"], table=rows)
    assert len(c) == 54 and not len(c.events)
    assert sorted(p.name for p in (tmp_path/"c").iterdir()) == before
    bare = GraphDomain.joined({k: c.domain.beside[k] for k in SMILES})[:2]
    with pytest.raises(ValueError, match="a table with the columns heat, salt"): c.add(bare)


def test_from_a_shell(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    def call(line):
        try: code = cli.main(["campaign", *line.split()])
        except SystemExit as e: code = e.code
        return code, *capsys.readouterr()
    table.to_csv("pool.csv", index=False)
    new = "new pool.csv --id name --out c --smiles acid,alcohol --columns"
    for columns, words in (("cold", "no column 'cold'"), ("heat,name,heat", "every column once")):
        code, _, err = call(f"{new} {columns}")
        assert code == 2 and words in err and err.count("\n") == 1 and not (tmp_path/"c").exists()
    assert call(f"{new} heat,salt")[0] == 0
    code, out, _ = call("ask c -n 6 --csv")
    rows = pd.read_csv(pd.io.common.StringIO(out))
    assert code == 0 and [*rows][:5] == ["id", *SMILES, *COLUMNS]
    y = dict(zip(table["name"], truth(table)))
    rows.assign(value=rows["id"].map(y)).to_csv("told.csv", index=False)
    assert call("tell c told.csv")[0] == 0
    more = table.head(2).assign(name=["x", "y"], heat=[35, 45])
    more.to_csv("more.csv", index=False)
    code, out, _ = call("predict c --file more.csv --id name")
    assert code == 0 and "x" in out
    more.assign(salt="KBr").to_csv("bad.csv", index=False)
    code, _, err = call("add c bad.csv --id name")
    assert code == 2 and "'KBr' is not among" in err and err.count("\n") == 1
    assert call("add c more.csv --id name")[0] == 0 and len(Campaign.open("c")) == 56
    assert call("report c")[0] == 0 and call("export c --out out")[0] == 0


def test_a_source_tree_that_is_not_installed(monkeypatch, tmp_path):
    def lost(name): raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr("gnn_bandits.campaigns.version", lost)
    X = GraphDomain.erdos_renyi(12, 4, 0.5, 3, np.random.default_rng(0))
    assert torch.equal(Campaign.create(tmp_path/"c", X).domain.nodes, X.nodes)
