"Figures made of runs: which runs they ask for, what their tables say, how tables compare."
import math, subprocess, sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.experiments import grid, spec_fields
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.sweep import sweep
from gnn_bandits.paper import figures
from gnn_bandits.paper.algorithms import COLORS, LINES, PAPER_ALGORITHMS
from gnn_bandits.paper.datasets import DATASETS
from gnn_bandits.paper.figures import (TRAINED_RUNS, ablation_specs,
                                       ablation_switches, ablation_table, advantages,
                                       best_settings, cost_table, curve_table, draw_ablation,
                                       draw_curves, draw_density, draw_domains, draw_performance,
                                       draw_size, draw_trained, figure_specs, final_regrets,
                                       mean_se, run_table, trained_specs)

ROOT = Path(__file__).parent.parent

def compare(*folders):
    "What scripts/compare_tables.py says"
    command = [sys.executable, str(ROOT/"scripts/compare_tables.py"), *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True)

@pytest.fixture(scope="module")
def small(tmp_path_factory):
    "A store with eight small runs, and their specs"
    specs = grid(data=replace(DATASETS["N5_p0.2_d10"], n=100), algorithm=["GNN-PE", "NN-PE"],
                 model="gntk", arms=20, T=16, seed=range(4), random_pulls=4)
    store = Store(tmp_path_factory.mktemp("store"))
    sweep(specs, store, progress=False)
    return store, specs

CHANGES = {"main": set(), "kernel: infinite width": {"model"}, "training: to the limit": {"fit"},
           "training: real networks": {"model", "fit", "train_from"},
           "uncertainty: diagonal": {"uncertainty"},
           "real, diagonal, the code's β": {"model", "fit", "train_from", "uncertainty", "beta"},
           "exploration: none": {"random_pulls"}, "reward: posterior mean": {"reward_kind"},
           "settings: swapped": {"lam"}, "settings: GNN-UCB's for all": {"lam"}}

@pytest.mark.parametrize("quick", [False, True])
def test_one_switch_at_a_time(quick):
    "A switch changes what its name says and nothing else, in every run"
    assert set(ablation_switches()) == set(CHANGES) | {"reward and noise: the code's"}
    main = {(s.algorithm, s.seed): spec_fields(s) for s in ablation_specs(quick, switch="main")}
    for name, expected in CHANGES.items():
        found = set()
        for s in ablation_specs(quick, switch=name):
            other = main[s.algorithm, s.seed]
            found |= {k for k, v in spec_fields(s).items() if v != other[k]} - {"data"}
        assert found == expected, name
    code = {k for s in ablation_specs(quick, switch="reward and noise: the code's")
            for k, v in spec_fields(s).items() if v != main[s.algorithm, s.seed][k]}
    assert "noise_std" in code
    assert all(k == "data" or k.startswith(("reward_", "noise_std")) for k in code)

def test_runs_are_shared():
    "The ablation has the real networks of the trained panel and the main runs of performance"
    keys = lambda specs: {s.key for s in specs}
    assert keys(trained_specs()) <= keys(ablation_specs())
    assert len(trained_specs()) == 2*4*TRAINED_RUNS
    assert keys(ablation_specs(switch="main")) <= keys(figure_specs("performance"))
    both = {(a, w) for a in PAPER_ALGORITHMS for w in ("exact", "diagonal")}
    assert {(s.algorithm, s.settings.uncertainty) for s in trained_specs()} == both

def test_seeds_that_are_asked_for_are_given():
    "The slow switches have fewer runs only if no number is asked for"
    seeds = lambda specs: {s.seed for s in specs}
    assert seeds(ablation_specs(switch="training: real networks")) == set(range(TRAINED_RUNS))
    assert seeds(ablation_specs(switch="main")) == set(range(20))
    for n in (3, 10):
        main = ablation_specs(seeds=n, switch="main")
        assert seeds(trained_specs(seeds=n)) == seeds(main) == set(range(n))

@pytest.mark.parametrize("seeds", [None, 3, 10])
def test_ablation_table_has_the_runs_that_were_made(seeds, monkeypatch):
    def run_table(store, specs, panel, more):
        return pd.DataFrame([dict(panel=panel, key=s.key) for s in specs])
    monkeypatch.setattr(figures, "run_table", run_table)
    specs = ablation_specs(seeds=seeds)
    table = ablation_table(None, specs)
    assert table["key"].tolist() == [s.key for s in specs]
    assert set(table["panel"]) == set(ablation_switches())

def test_run_table_by_hand(small):
    store, specs = small
    table = run_table(store, specs, "x", ("lam",))
    assert len(table) == len(specs)
    for row, spec in zip(table.to_dict("records"), specs):
        h = store.read(spec).history
        found = tuple(row[k] for k in ("panel", "algorithm", "seed", "lam"))
        assert found == ("x", spec.algorithm, spec.seed, spec.settings.lam)
        for column in ("regret", "inference_regret", "best_observed_regret"):
            values = getattr(h, column)
            assert row[column] == pytest.approx(values.sum(), rel=1e-6)
            assert row[f"half_{column.split('_')[0]}"] == pytest.approx(values[:8].sum(), rel=1e-6)

def test_curve_table_by_hand(small):
    store, specs = small
    curves = curve_table(store, specs, points=4)
    runs = [store.read(s) for s in specs if s.algorithm == "NN-PE"]
    mine = curves.query("value == 'regret' and algorithm == 'NN-PE'")
    assert mine["t"].tolist() == [1, 4, 8, 12, 16]
    for r in mine.to_dict("records"):
        v = np.array([run.history.regret[:r["t"]].sum()/run.mean_gap for run in runs])
        expected = v.mean(), v.std(ddof=1)/2, 4
        assert (r["mean"], r["se"], r["runs"]) == pytest.approx(expected, rel=1e-5)

def test_costs_count_once(small):
    store, specs = small
    table = cost_table(store, {"a": specs[:5], "b": specs, "c": specs[:1]})
    assert table["runs"].tolist() == [5, 3, 0] and table["core_seconds"][2] == 0
    assert table["peak_mb"][0] > 0

def ablation(advantage=5.):
    "A made-up table with a known advantage"
    rng, rows = np.random.default_rng(0), []
    for panel in ("main", "other"):
        for seed in range(6):
            base = rng.random()
            for a in PAPER_ALGORITHMS:
                value = (10 + base + advantage*a.startswith("NN"))*2.
                rows.append(dict(panel=panel, algorithm=a, seed=seed, regret=value,
                                 best_observed_regret=value, inference_regret=value, mean_gap=2.))
    return pd.DataFrame(rows)

def test_advantages_are_paired():
    found = advantages(ablation())
    assert list(found) == [(p, q) for p in ("main", "other") for q in ("PE", "UCB")]
    for column in found: assert mean_se(found[column]) == pytest.approx((5., 0.), abs=1e-12)
    fewer = ablation().query("not (panel == 'other' and seed > 3)")
    found = advantages(fewer)
    assert found["other", "PE"].count() == 4 and found["main", "PE"].count() == 6
    assert mean_se(found["other", "PE"] - found["main", "PE"]) == pytest.approx((0., 0.), abs=1e-12)
    with pytest.raises(ValueError, match="duplicate"): final_regrets(pd.concat([fewer, fewer]))
    assert mean_se([1., 2., 3.]) == pytest.approx((2., 1/math.sqrt(3)))
    assert math.isnan(mean_se([1.])[1])

def test_drawings_show_every_row():
    from matplotlib.figure import Figure
    fig = Figure()
    draw_ablation(fig, ablation())
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["main", "other"]
    rows = [dict(uncertainty=w, algorithm=a, mean=t, t=t)
            for w in ("exact", "diagonal") for a in PAPER_ALGORITHMS for t in (1, 10)]
    theirs = pd.DataFrame(dict(algorithm=PAPER_ALGORITHMS, T=10, final=5., first=1., se=1.))
    fig = Figure()
    draw_trained(fig, curves(rows), published=theirs)
    assert [len(ax.containers) for ax in fig.axes] == [0, 4]     # beside the diagonal ones only
    assert [ax.get_title() for ax in fig.axes] == ["exact uncertainty", "diagonal uncertainty"]

def curves(rows):
    "Made-up rows as a table of curves"
    fixed = dict(value="best_observed_regret", T=10, se=1., N=20, p=0.2, arms=200,
                 uncertainty="exact")
    return pd.DataFrame([fixed | r for r in rows])

def test_every_algorithm_has_a_colour():
    "Seen before: KeyError for NN-TS"
    from matplotlib.figure import Figure
    from gnn_bandits.bandits import ALGORITHMS
    assert set(COLORS) == set(LINES) == set(ALGORITHMS) and len(set(COLORS.values())) == len(COLORS)
    table = curves([dict(algorithm=a, mean=t, t=t) for a in ALGORITHMS for t in (1, 10)])
    fig = Figure()
    draw_curves(fig.subplots(), table, "best_observed_regret")
    assert [line.get_label() for line in fig.axes[0].lines] == list(ALGORITHMS)
    draw_performance(Figure(), table)

@pytest.mark.parametrize("draw,key,levels", [(draw_trained, "uncertainty", ("exact", "diagonal")),
                                             (draw_size, "N", (5, 20, 100)),
                                             (draw_density, "p", (0.05, 0.2, 0.95))])
def test_no_curve_leaves_its_panel(draw, key, levels):
    "Panels that share an axis are as high as the highest of them, whichever comes last"
    from matplotlib.figure import Figure
    table = curves([{"algorithm": a, "t": t, "mean": t*(1 + 5*i + 3*j), key: level} for t in (1, 10)
                    for i, a in enumerate(PAPER_ALGORITHMS) for j, level in enumerate(levels)])
    fig = Figure()
    draw(fig, table)
    for ax in fig.axes:
        assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] >= (table["mean"] + table["se"]).max()

def test_every_column_of_domains_has_an_axis():
    from matplotlib.figure import Figure
    rows = [dict(algorithm="GNN-PE", N=N, p=p, t=t, mean=t)
            for N, p in ((5, 0.05), (5, 0.2), (20, 0.2)) for t in (1, 10)]
    fig = Figure()
    draw_domains(fig, curves(rows))
    assert [ax.get_xlabel() for ax in fig.axes] == ["step $t$", "", "", "step $t$"]

def test_best_settings_by_hand():
    rows = [dict(algorithm="GNN-PE", lam=lam, beta=1., regret=r, mean_gap=1.)
            for lam, rs in ((0.1, (1, 9)), (1., (4, 4))) for r in rs]
    assert best_settings(pd.DataFrame(rows)) == {"GNN-PE": (1., 1.)}

def test_tables_on_disk(tmp_path):
    "Numbers have seven digits, and committed tables are written back as they stand"
    table = pd.DataFrame(dict(a=[1, 2], b=[1/3, 1e-9], c=["x,y", "z"]))
    text = write_table(tmp_path/"t.csv", table).read_text()
    assert text == 'a,b,c\n1,0.3333333,"x,y"\n2,1e-09,z\n'
    for name in ("hyper", "ablation", "performance", "regret", "cost"):
        path = ROOT/f"nbs/results/{name}.csv"
        assert write_table(tmp_path/"t.csv", read_table(path)).read_text() == path.read_text(), name

def test_committed_tables_are_complete():
    "As many rows as the specs say, every run there once"
    regret = read_table(ROOT/"nbs/results/regret.csv")
    for panel, name in figures.REGRET_PANELS.items():
        assert (regret["panel"] == panel).sum() == len(figure_specs(name)), panel
    assert len(read_table(ROOT/"nbs/results/hyper.csv")) == len(figure_specs("hyper"))
    assert len(read_table(ROOT/"nbs/results/ablation.csv")) == len(ablation_specs())
    for name in ("performance", "benchmark", "benchmark_d100", "trained"):
        ends = read_table(ROOT/f"nbs/results/{name}.csv").query("t == T and value == 'regret'")
        assert ends["runs"].sum() == len(figure_specs(name)), name

@pytest.mark.parametrize("change,said", [
    (None, "every digit equal"), (("0.5", "0.5000001"), "0 differ, largest"),
    (("0.5", "0.6"), "1 differ"), (("x", "z"), "1 differ"), (("a,b", "a,q"), "other columns"),
    (("2,0.25,y\n", ""), "1 rows and committed 2")])
def test_comparison_of_tables(tmp_path, change, said):
    text = "a,b,c\n1,0.5,x\n2,0.25,y\n"
    for name, t in (("old", text), ("new", text.replace(*change) if change else text)):
        (tmp_path/name).mkdir()
        (tmp_path/name/"hyper.csv").write_text(t)
    p = compare(tmp_path/"new", tmp_path/"old")
    assert said in p.stdout and p.returncode == int(not (change is None or "0 differ" in said))

def test_comparison_says_what_is_missing(tmp_path):
    for name in ("old", "new"): (tmp_path/name).mkdir()
    (tmp_path/"old/hyper.csv").write_text("a\n1\n")
    p = compare(tmp_path/"new", tmp_path/"old")
    assert p.returncode == 1 and "not there" in p.stdout
    assert compare("nowhere").returncode == 1
