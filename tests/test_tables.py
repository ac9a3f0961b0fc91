"The command that makes the tables of results: whole, resumable, and what pages say of it is true."
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import chisquare, multivariate_normal

from gnn_bandits.campaigns import CampaignPolicy, choose
from gnn_bandits.core import first_best
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.kernels import Matrix
from gnn_bandits.molecules import read_smiles
from gnn_bandits.paper.ledger import HOW_TO_MAKE
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import Surrogate, candidate_priors

ROOT = Path(__file__).parent.parent
RESULTS = ROOT/"nbs/results"
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.skipif(not (ROOT/"scripts").exists(), reason="needs the source tree")]
sys.path.insert(0, str(ROOT/"scripts"))
try:
    import graph_tables
    import model_tables
    import molecule_tables
    import paper_tables
    import tables
finally: sys.path.remove(str(ROOT/"scripts"))


@pytest.fixture(scope="module")
def registry():
    sys.path.insert(0, str(ROOT/"scripts"))
    try: return tables.registry()
    finally: sys.path.remove(str(ROOT/"scripts"))


def committed(name, table):
    "The keys of the rows that are committed"
    path = RESULTS/f"{name}{table.ending}"
    return table.known(tables.read_text(path)) if path.exists() or not table.unfinished else []


def test_every_table_is_committed_with_exactly_its_keys(registry):
    for name, table in registry.items():
        known, keys = set(committed(name, table)), table.keys()
        assert len(keys) == len(set(keys)), name
        if name == "released_first": assert known < set(keys)     # two panels have no first point
        elif name == "released_domains": assert known <= set(keys)         # played bit by bit
        elif table.unfinished: assert known < set(keys), f"{name} is finished: say so"
        else: assert known == set(keys), name
        assert table.play.__doc__ and set(table.clock).isdisjoint(table.key)
        assert sorted(k for g in table.groups(keys) for k in g) == sorted(keys)


def test_rows_are_in_the_order_of_their_keys(registry):
    for name, table in registry.items():
        place = {k: i for i, k in enumerate(table.keys())}
        at = [place[k] for k in committed(name, table)]
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


@pytest.fixture
def docked(tmp_path):
    "A small library in MolPAL's form: a row twice, molecules without a score, many ties"
    pytest.importorskip("rdkit")
    smiles = [a*k + b for a in ("C", "CO", "CN", "CS") for k in range(1, 11)
              for b in ("C", "N", "O", "F", "Cl", "C#N", "c1ccccc1")]
    rows = pd.DataFrame(dict(smiles=[*smiles, smiles[0]]))
    rows.to_csv(tmp_path/"library.csv.gz", index=False)
    rows["score"] = -rows["smiles"].str.len().astype(float)
    rows = rows.drop(index=[5, 277]).sort_values("score", kind="stable")
    rows.to_csv(tmp_path/"scores.csv.gz", index=False)
    return tmp_path


def counted(folder, smiles):
    "What was found, from the files: the best hundred rows, and how many are above each score"
    scores = pd.read_csv(folder/"scores.csv.gz").drop_duplicates()
    best, cut = scores[:100], scores["score"].iloc[99]
    mine = scores[scores["smiles"].isin(smiles)]["score"]
    tied = min((mine == cut).sum(), (best["score"] == cut).sum())
    return best["smiles"].isin(smiles).sum(), (mine < cut).sum() + tied


def test_the_protocol_of_molpal_counts_by_identity_and_by_score(docked):
    options = tables.Options(folder=docked)
    library = molecule_tables.enamine(docked)
    assert len(library.smiles) == len(library.domain) == np.isfinite(library.scores).sum() + 2
    first = set()
    for method, player in molecule_tables.MOLPAL.items():
        rows = list(molecule_tables.molpal([(3, method)], options))
        starts = np.random.default_rng([3, 8]).choice(len(library.smiles), 3, replace=False)
        arms, batches = [], player(library, starts.tolist(), 3)
        for row, (new, _) in zip(rows, batches):
            arms += new
            known = [library.smiles[a] for a in arms]
            assert len(set(arms)) == len(arms) == row["measured"] == 3*(row["round"] + 1)
            assert (row["identity"], row["score"]) == counted(docked, known), (method, row)
        batches.close()
        first.add(tuple(arms[:3]))
        assert len(rows) == 6 and rows[-1]["score"] >= rows[-1]["identity"]
    assert len(first) == 1                                      # the same starts for all


def test_found_scores_count_as_often_as_they_are_there():
    library = molecule_tables.Library(None, list("abcdef"), np.array([-9, -8, -8, np.nan, -8, -7.]),
                                      [0, 1, 2])
    for arms, identity, score in [([0], 1, 1), ([4], 0, 1), ([1, 4], 1, 2), ([1, 2, 4], 2, 2),
                                  ([3, 5], 0, 0), (range(6), 3, 3)]:
        assert molecule_tables.hits(library, arms) == dict(identity=identity, score=score)


def test_the_exact_gp_has_the_largest_likelihood():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    K = np.exp(-((X[:, None] - X)**2).sum(-1)/2)
    arms = rng.permutation(40)[:30].tolist()
    y = rng.multivariate_normal(np.zeros(40), 4*K + 0.2*np.eye(40))[arms] # signal: an inner optimum
    mean, std = molecule_tables.exact_gp(K[:, arms], arms, y)
    part, z = K[np.ix_(arms, arms)], y - y.mean()
    best = lambda p: -multivariate_normal.logpdf(
        z, cov=np.exp(p[0])*(part + np.exp(p[1])*np.eye(30)))
    at = min((minimize(best, (a, b), method="Nelder-Mead", options=dict(xatol=1e-8, fatol=1e-10))
              for a in (0., 2.) for b in (-3., 0.)), key=lambda r: r.fun).x
    C, cross = part + np.exp(at[1])*np.eye(30), K[:, arms]
    np.testing.assert_allclose(mean, y.mean() + cross @ np.linalg.solve(C, z), rtol=1e-3, atol=1e-3)
    var = np.exp(at[0])*(1 - (cross*np.linalg.solve(C, cross.T).T).sum(1))
    np.testing.assert_allclose(std, np.sqrt(var), rtol=1e-3, atol=1e-3)


def test_data_and_peers_that_are_missing_are_named_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="library.csv.gz.*got None"):
        list(molecule_tables.molpal([(0, "random")], tables.Options()))
    with pytest.raises(SystemExit, match="library.csv.gz"):
        list(molecule_tables.molpal([(0, "random")], tables.Options(folder=tmp_path)))
    with pytest.raises(SystemExit, match="environment with baybe, got None"):
        molecule_tables.ask_baybe(None)
    failing = tmp_path/"python"
    failing.write_text("#!/bin/sh\necho 'No module named baybe' >&2\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(SystemExit, match="failed: No module named baybe"):
        molecule_tables.ask_baybe(failing, seed=0)


def test_baybe_and_a_campaign_have_the_same_starts_and_noise(tmp_path, monkeypatch):
    "A peer that takes the largest values it is told, in place of BayBE"
    pytest.importorskip("rdkit")
    smiles = [a*k + b for a in ("C", "CO", "CN") for k in range(1, 8) for b in ("C", "N", "F")]
    rows = pd.DataFrame(dict(smiles=smiles, gap=[float(len(s)) for s in smiles]))
    monkeypatch.setattr(molecule_tables, "all_qm9", lambda: rows)
    monkeypatch.setattr(molecule_tables, "drawn_pool",
                        lambda rows, *_: molecule_tables.Pool(rows, len(rows)))
    monkeypatch.setattr(molecule_tables, "SHORT", 14)
    asked = []
    def stub(python, targets, starts, measurements, **what):
        asked.append((targets[0], starts))
        arms = starts + [i for i in np.argsort(targets[0])[::-1].tolist() if i not in starts]
        run = dict(arms=arms[:measurements], ask=[3., 1., 2., 3.], setup=1.)
        return dict(version="0", columns=7, campaigns=[run])
    monkeypatch.setattr(molecule_tables, "ask_baybe", stub)
    peer, = molecule_tables.baybe([("gap", 1, "BayBE ECFP")], tables.Options())
    seen = []
    def watched(domain, values, starts, measurements):
        seen.append((values.tolist(), starts))
        return original(domain, values, starts, measurements)
    original = molecule_tables.ask_campaign
    monkeypatch.setattr(molecule_tables, "ask_campaign", watched)
    ours, = molecule_tables.baybe([("gap", 1, "campaign")], tables.Options())
    assert seen == asked and list(ours) == list(peer)
    assert ours["measured"] == peer["measured"] == 14 and (peer["first"], peer["ask"]) == (3., 2.)
    assert min(ours["ask"], ours["first"]) > 0 and ours["version"] == ""


# Graphs that are not molecules

def test_pickles_are_read_without_running_anything():
    import io, os, pickle
    read = lambda data: graph_tables.PlainUnpickler(io.BytesIO(data)).load()
    plain = {3: {"valid_perf": 0.5, "names": ["a", None]}}
    assert read(pickle.dumps(plain, 3)) == plain
    scalar = pickle.dumps({"para": np.float64(1.25)}, 3).replace(b"numpy._core", b"numpy.core")
    assert read(scalar) == {"para": 1.25}
    class Trap:
        def __reduce__(self): return os.getcwd, ()
    with pytest.raises(ValueError, match="expected containers and numbers, got posix.getcwd"):
        read(pickle.dumps([Trap()]))
    with pytest.raises(ValueError, match="numbers of 8 bytes"):
        read(scalar.replace(b"f8", b"f4"))


def test_an_architecture_is_a_directed_graph_with_one_way_in_and_out():
    import networkx as nx
    code = 4*10**4 + 8765                                # links 0, 0, 1, 3
    g = graph_tables.architecture(code)
    assert [g.nodes[i]["op"] for i in range(6)] == ["input", "skip", "fc", "graph", "arma",
                                                   "output"]
    assert nx.is_directed_acyclic_graph(g) and nx.is_weakly_connected(g)
    assert sorted(g.edges) == [(0, 1), (0, 2), (1, 3), (2, 5), (3, 4), (4, 5)]
    assert [v for v in g if not g.in_degree(v)] == [0] and not g.out_degree(5)
    assert g.nodes[4] == dict(op="arma", step=3., fan_in=1., fan_out=1.)


def test_the_trefoil_has_two_triangles_and_three_bigons():
    import networkx as nx
    g = graph_tables.knot("[[1,5,2,4],[3,1,4,6],[5,3,6,2]]")
    assert sorted(nx.get_node_attributes(g, "op").values()) == [
        *["crossing"]*3, *["face 2"]*3, *["face 3"]*2]
    assert nx.is_bipartite(g) and nx.check_planarity(g)[0] and len(g.edges) == 12
    for v in range(3):                                   # types alternate around a crossing
        assert sorted(k for *_, k in g.edges(v, data="turn")) == ["a", "a", "b", "b"]
    for face in range(3, 8):                             # and agree around a face: it alternates
        assert len({k for *_, k in g.edges(face, data="turn")}) == 1


def test_the_plain_model_is_textbook_regression():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 3))
    gp, y = graph_tables.PlainGP.__new__(graph_tables.PlainGP), rng.standard_normal(6)
    K, arms = A @ A.T + np.eye(12), [3, 1, 7, 0, 9, 5]
    kernel = Matrix(K).fitted(None)
    gp.kernels, gp.ranks, z = [(kernel, kernel.code(None))], False, (y - y.mean())/y.std()
    gp.learn(arms, y)
    C = K[np.ix_(arms, arms)] + gp.noise*np.eye(6)
    np.testing.assert_allclose(gp.mean, K[:, arms] @ np.linalg.solve(C, z))
    evidence = lambda noise, scale: multivariate_normal.logpdf(
        z, np.zeros(6), scale*(K[np.ix_(arms, arms)] + noise*np.eye(6)))
    best = max(evidence(n, s) for n in gp.noises for s in np.geomspace(0.01, 10, 400))
    assert evidence(gp.noise, gp.scale) > best - 1e-3
    picks, told = gp.ask(3, np.ones(12, bool)), list(arms)
    for pick in picks:                                   # each is the best, given those before it
        C = K[np.ix_(told, told)] + gp.noise*np.eye(len(told))
        var = np.diag(K) - (K[:, told]*np.linalg.solve(C, K[told]).T).sum(1)
        score = gp.mean + 2*np.sqrt(gp.scale*var)
        score[[p for p in picks if p in told]] = -np.inf
        assert pick == score.argmax()
        told.append(pick)


@pytest.mark.parametrize("case, right", [("private 0.3", True), ("bounds, replicates", True),
                                         ("chosen by UCB", True),
                                         ("noise 1, taken for 0.5", False)])
def test_true_values_are_exchangeable_with_draws_of_a_right_posterior_only(case, right):
    "A part of the table `calibration`: a χ² test of 100 ranks in ten bins"
    rng, world = np.random.default_rng(8), model_tables.WORLDS[case]
    domain = GraphDomain.erdos_renyi(60, 6, 0.3, 4, rng)
    K, found = Prior.gntk(domain).standard.K, []
    for _ in range(100):
        f, data, latent = model_tables.simulated(K, domain, rng, **world)
        some = dict(leader=first_best(latent.mean), new=next(
            a for a in range(60) if a not in data.distinct))
        row = model_tables.ranks(f, latent, some, world.get("private", 0.), rng)
        found.append([row["leader"], row["new"]])
    p = [chisquare(np.bincount(np.array(v)//10, minlength=10)).pvalue for v in zip(*found)]
    assert min(p) > 1e-3/8 if right else p[0] < 1e-6
