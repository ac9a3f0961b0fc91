"The claims of the paper: verdicts in both directions on made-up tables, corrections, the registry."
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper import claims
from gnn_bandits.paper.claims import CLAIMS, CoverageSettings, EliminationSettings, paper_ledger
from gnn_bandits.paper.ledger import HOW_TO_MAKE, VARIANT, VERDICTS, ledger, load_runs, shares

ROOT = Path(__file__).parent.parent
RESULTS = ROOT/"nbs"/"results"
ALGORITHMS = ("GNN-PE", "GNN-UCB", "NN-PE", "NN-UCB")
NODES, DENSITIES, SIZES = (5, 20, 100), (0.05, 0.2, 0.95), (200, 500, 1000)
EXPERIMENTS = [c for c in CLAIMS if c.kind == "experiment"]
SWAP = {"GNN-PE": "NN-PE", "GNN-UCB": "NN-UCB", "NN-PE": "GNN-PE", "NN-UCB": "GNN-UCB"}


def share(algorithm, N, p):
    "A world in which every claim about the domains is true"
    step = DENSITIES.index(p)
    if algorithm.startswith("GNN"):
        if (N, p) == (5, 0.05): return 0.40
        return 0.20 if algorithm == "GNN-PE" else (0.15, 0.18, 0.24)[step]
    base = {5: 0.60, 20: 0.70, 100: 0.85}[N]
    if algorithm == "NN-PE": return base - (0, 0.05, 0.10)[step]
    return base + 0.05 - (0, 0.12, 0.25)[step]


def make(folder, true=True, seeds=12, noise=0.01):
    "Write regret.csv and hyper.csv of a world in which all claims are true, or all false"
    rng, rows, hyper = np.random.default_rng(0), [], []
    def row(panel, N, p, arms, T, algorithm, seed, value, second, **variant):
        "`value`: share of random pulling; `second`: that of the second half"
        value, second = value + noise*rng.standard_normal(), second + noise*rng.standard_normal()
        g = 1 + 0.1*rng.random()
        whole, half = T*g*value, T*g*(value - second/2)
        regrets = dict.fromkeys(("regret", "inference_regret", "best_observed_regret"), whole)
        halves = dict.fromkeys(("half_regret", "half_inference", "half_best"), half)
        rows.append(dict(panel=panel, N=N, p=p, d=10, arms=arms, T=T, algorithm=algorithm,
                         **VARIANT | variant, seed=seed, mean_gap=g, **regrets, **halves))
    for a, seed in itertools.product(ALGORITHMS, range(seeds)):
        who = a if true else SWAP[a]
        good = who.startswith("GNN")
        for N, p in itertools.product(NODES, DENSITIES):
            v = share(who, N, p) + (0 if true else 0.6)
            row("domains", N, p, 200, 500, a, seed, v, 0.01 if good else 0.9*v if true else 1.2*v)
        for A in SIZES:
            if good: v = (0.055 if A == 1000 else 0.10) + 0.12*(who == "GNN-UCB")
            else: v = 0.5 + (0 if true else 0.3*SIZES.index(A))
            T = 1000 if A == 1000 else 500
            row("performance", 20, 0.2, A, T, a, seed, v, 0.01 if good else 0.9*v)
            if A == 200:
                row("trained", 20, 0.2, A, 500, a, seed, v, 0.01, model="trained",
                    uncertainty="diagonal")
        for i, (lam, beta) in enumerate(itertools.product((0.01, 0.1, 1), (0.1, 1))):
            v = (0.2 + 0.005*i if good else 0.3 + 0.2*i) + noise*rng.standard_normal()
            hyper.append(dict(algorithm=a, lam=lam, beta=beta, seed=seed, T=400,
                              inference_regret=400*2*v, mean_gap=2))
    write_table(folder/"regret.csv", rows, digits=None)
    write_table(folder/"hyper.csv", hyper, digits=None)


def experiments(folder):
    "The experimental claims alone, by key"
    return ledger(EXPERIMENTS, folder).set_index("key")


def rewrite(path, change):
    "A table with some of it changed"
    write_table(path, change(read_table(path)), digits=None)


def test_true_world(tmp_path):
    make(tmp_path)
    assert (experiments(tmp_path)["verdict"] == "holds").all()


def test_false_world(tmp_path):
    make(tmp_path, true=False)
    assert (experiments(tmp_path)["verdict"] == "does not reproduce").all()


def test_noisy_world_decides_nothing_wrongly(tmp_path):
    make(tmp_path, noise=3., seeds=4)
    verdicts = set(experiments(tmp_path)["verdict"])
    assert "not testable here" in verdicts and "holds with a correction" not in verdicts


def test_corrections(tmp_path):
    "GNN-UCB as good as GNN-PE at 500 arms"
    make(tmp_path)
    def level(table):
        here = (table["panel"] == "performance") & (table["arms"] == 500)
        ucb, pe = (table.index[here & (table["algorithm"] == a)] for a in ("GNN-UCB", "GNN-PE"))
        assert (table.loc[ucb, "seed"].to_numpy() == table.loc[pe, "seed"].to_numpy()).all()
        columns = ["inference_regret", "half_inference", "mean_gap"]
        table.loc[ucb, columns] = table.loc[pe, columns].to_numpy()
        return table
    rewrite(tmp_path/"regret.csv", level)
    found = experiments(tmp_path).loc["best-everywhere"]
    assert found["verdict"] == "holds with a correction" and "NN methods" in found["reason"]


def test_reward_units_matter(tmp_path):
    "A regret that only grows in units of reward is a correction of the density claim"
    make(tmp_path)
    def scaled(table):
        here = (table["algorithm"] == "GNN-UCB") & (table["panel"] == "domains")
        scale = np.where(table["p"] == 0.95, 3., 1.)[here]
        table.loc[here, "mean_gap"] = scale
        table.loc[here, "inference_regret"] = 0.2*table.loc[here, "T"]*scale
        table.loc[here, "half_inference"] = 0.9*table.loc[here, "inference_regret"]
        return table
    rewrite(tmp_path/"regret.csv", scaled)
    assert experiments(tmp_path).loc["density-gnn-ucb", "verdict"] == "holds with a correction"


def test_missing_tables_stop_the_ledger(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it with: python scripts/"):
        paper_ledger(tmp_path, experiments=False)
    for c in CLAIMS:
        if c.files:
            with pytest.raises(FileNotFoundError, match="make it with"): c.test(tmp_path)
            with pytest.raises(FileNotFoundError, match="nbs/results of the source"): c.test("none")
    for name in {f for c in CLAIMS for f in c.files}: (tmp_path/name).write_text("a,b\n")
    for c in CLAIMS:
        if c.files:
            with pytest.raises(ValueError, match="empty table"): c.test(tmp_path)


def test_incomplete_tables_are_refused(tmp_path):
    make(tmp_path, seeds=2)
    with pytest.raises(ValueError, match="three"): claims.claim_size_gnn_pe(tmp_path)
    make(tmp_path)
    runs = load_runs(tmp_path)
    with pytest.raises(ValueError, match="sweep complete"): shares(runs, "GNN-TS", panel="domains")
    with pytest.raises(ValueError, match="got two"): shares(runs, "GNN-PE")
    with pytest.raises(ValueError, match="got only"): load_runs(tmp_path, {"model": "other"})
    rewrite(tmp_path/"hyper.csv", lambda t: t[(t["lam"] == 1) & (t["beta"] == 1)])
    with pytest.raises(ValueError, match="share configurations"): claims.claim_insensitive(tmp_path)
    with pytest.raises(ValueError, match="got none"): claims.good_fraction(tmp_path, "GNN-TS")


def test_shares_by_hand(tmp_path):
    make(tmp_path)
    runs = load_runs(tmp_path)
    r = runs[(runs["panel"] == "domains") & (runs["algorithm"] == "NN-PE")].iloc[0]
    where, unit = dict(panel="domains", N=r["N"], p=r["p"]), r["T"]*r["mean_gap"]
    parts = ("whole", "first half", "second half")
    whole, first, second = (shares(runs, "NN-PE", part=p, **where)[r["seed"]] for p in parts)
    assert np.isclose(whole, r["inference_regret"]/unit) and np.isclose((first + second)/2, whole)
    assert np.isclose(first, 2*r["half_inference"]/unit)


def test_registry():
    keys = [c.key for c in CLAIMS]
    assert len(keys) == len(set(keys)) >= 30
    assert {c.kind for c in CLAIMS} == {"theory", "published", "experiment"}
    for c in CLAIMS: assert getattr(claims, c.test.__name__) is c.test and c.statement.endswith(".")
    pages = {p.name for p in RESULTS.parent.glob("*.ipynb")}
    assert {c.evidence for c in CLAIMS} <= pages, {c.evidence for c in CLAIMS} - pages
    assert {f for c in CLAIMS for f in c.files} == set(HOW_TO_MAKE)


def test_committed_ledger_is_what_the_code_says(tmp_path):
    "One row for each claim it covers, verdicts of the right kind, functions that exist"
    table = pd.read_csv(RESULTS/"claims.csv", dtype=str, keep_default_na=False)
    assert len(table) >= 30 and table["verdict"].isin(VERDICTS).all()
    modules, names = zip(*(name.rsplit(".", 1) for name in table["function"]))
    assert set(modules) == {"gnn_bandits.paper.claims"} and all(hasattr(claims, n) for n in names)
    covered = set(table["key"])
    assert list(table["key"]) == [c.key for c in CLAIMS if c.key in covered]
    assert {c.statement for c in CLAIMS if c.key in covered} == set(table["statement"])
    again = write_table(tmp_path/"again.csv", table)
    assert again.read_bytes() == (RESULTS/"claims.csv").read_bytes()


def test_published_verdicts_follow_the_table(tmp_path):
    "Were GNN-PE lowest in every panel, the claim would hold"
    table = read_table(RESULTS/"published.csv")
    table.loc[(table["algorithm"] == "GNN-PE") & (table["figure"] != "hyper"), "final"] = 1e-3
    write_table(tmp_path/"published.csv", table)
    assert claims.claim_published_best(tmp_path).verdict == "holds"
    assert claims.claim_published_best(RESULTS).verdict == "does not reproduce"


@pytest.mark.parametrize("name,change,key", [
    ("coverage.csv", dict(covered=2000, trials=4000, low=0.48, high=0.52), "coverage-kernel"),
    ("width_limit.csv", dict(distance="m"), "width-limit"),
    ("width_limit.csv", dict(distance=1000.), "gram-concentration"),
    ("taylor_error.csv", dict(remainder="m"), "taylor"),
    ("taylor_error.csv", dict(distance="m"), "linearisation"),
    ("taylor_error.csv", dict(movement="m"), "lazy"),
    ("elimination.csv", dict(survived=0), "keeps-optimum"),
    ("elimination.csv", dict(R511=1e5), "regret-bound")])
def test_theory_verdicts_follow_the_tables(tmp_path, name, change, key):
    "A table that contradicts the claim turns the verdict; `m`: a column that grows with the width"
    test = next(c.test for c in CLAIMS if c.key == key)
    assert test(RESULTS).verdict == "holds"
    table = read_table(RESULTS/name)
    for column, value in change.items():
        if isinstance(value, str): value = table[value]*(1 + np.arange(len(table)) % 3/10)
        table[column] = value
    write_table(tmp_path/name, table)
    assert test(tmp_path).verdict == "does not reproduce"


def test_coverage_does_not_depend_on_the_number_of_processes():
    small = CoverageSettings(arms=10, nodes=3, m=16, pulls=6, trials=20, networks=2)
    one, two = (claims.coverage_table(trained=3, jobs=jobs, s=small) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert list(one) == list(read_table(RESULTS/"coverage.csv")) and len(one) == 27
    with pytest.raises(ValueError, match="trained"): claims.coverage_table(trained=0)


def test_elimination_reproduces_committed_runs(tmp_path):
    "The script writes what the function returns, rows of the committed table to the digit"
    out = tmp_path/"elimination.csv"
    subprocess.run([sys.executable, ROOT/"scripts"/"elimination.py", "--runs", "1", "--out", out],
                   check=True, capture_output=True)
    committed = (RESULTS/"elimination.csv").read_text().splitlines()
    assert out.read_text().splitlines() == committed[:1] + committed[1::500]
    assert EliminationSettings().horizon == 2**9 - 1
