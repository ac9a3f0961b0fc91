"""Figures made of runs: which runs they ask for, what their tables say, and the script that compares tables."""
import math, subprocess, sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnn_bandits import figures
from gnn_bandits.paper.experiments import grid, spec_fields
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.sweep import sweep
from gnn_bandits.figures import (FEW, PAPER_ALGORITHMS, ablation_specs, ablation_switches, ablation_table, best_settings, cost_table, curve_table,
                                 draw_ablation, draw_density, draw_domains, draw_size, draw_trained, figure_specs, gaps_of, mean_se, read_table, run_table, trained_specs, write_csv)
from gnn_bandits.rewards import DATASETS

ROOT = Path(__file__).parent.parent
COMPARE = [sys.executable, str(ROOT/"scripts/compare_tables.py")]

@pytest.fixture(scope="module")
def small(tmp_path_factory):
    "A store with eight small runs, and their specs"
    specs = grid(data=replace(DATASETS["N5_p0.2_d10"], n=100), algorithm=["GNN-PE", "NN-PE"], model="gntk", arms=20, T=16, seed=range(4), explore=4)
    store = Store(tmp_path_factory.mktemp("store"))
    sweep(specs, store, progress=False)
    return store, specs

CHANGES = {"main": set(), "kernel: infinite width": {"model"}, "training: to the limit": {"fit"}, "training: real networks": {"model", "fit", "begin"},
           "uncertainty: diagonal": {"width"}, "real, diagonal, the code's β": {"model", "fit", "begin", "width", "beta"}, "exploration: none": {"explore"},
           "reward: posterior mean": {"reward_kind"}, "settings: swapped": {"lam"}, "settings: GNN-UCB's for all": {"lam"}}

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
    code = {k for s in ablation_specs(quick, switch="reward and noise: the code's") for k, v in spec_fields(s).items() if v != main[s.algorithm, s.seed][k]}
    assert "noise_std" in code and all(k == "data" or k.startswith(("reward_", "noise_std")) for k in code)

def test_runs_are_shared():
    "The ablation's real networks are those of the trained panel, and its main runs those of the performance panel"
    keys = lambda specs: {s.key for s in specs}
    assert keys(trained_specs()) <= keys(ablation_specs()) and len(trained_specs()) == 2*4*FEW
    assert keys(ablation_specs(switch="main")) <= keys(figure_specs("performance"))
    assert {(s.algorithm, s.settings.width) for s in trained_specs()} == {(a, w) for a in PAPER_ALGORITHMS for w in ("exact", "diagonal")}

def test_seeds_that_are_asked_for_are_given():
    "The slow switches have fewer runs only if no number is asked for, and the table then asks for no more"
    real = "training: real networks"
    assert {s.seed for s in ablation_specs(switch=real)} == set(range(FEW)) and {s.seed for s in ablation_specs(switch="main")} == set(range(20))
    for n in (3, 10): assert {s.seed for s in trained_specs(seeds=n)} == {s.seed for s in ablation_specs(seeds=n, switch="main")} == set(range(n))

@pytest.mark.parametrize("seeds", [None, 3, 10])
def test_ablation_table_has_the_runs_that_were_made(seeds, monkeypatch):
    monkeypatch.setattr(figures, "run_table", lambda store, specs, *more: [dict(key=s.key) for s in specs])
    specs = ablation_specs(seeds=seeds)
    rows = ablation_table(None, specs)
    assert [r["key"] for r in rows] == [s.key for s in specs] and {r["panel"] for r in rows} == set(ablation_switches())

def test_run_table_by_hand(small):
    store, specs = small
    for row, spec in zip(run_table(store, specs, "x", ("lam",)), specs):
        h = store.read(spec).history
        assert (row["panel"], row["algorithm"], row["seed"], row["lam"]) == ("x", spec.algorithm, spec.seed, spec.settings.lam)
        for column, values in (("regret", h.regret), ("inference_regret", h.inference_regret), ("best_observed_regret", h.best_observed_regret)):
            assert row[column] == pytest.approx(values.sum(), rel=1e-6)
            assert row[f"half_{column.split('_')[0]}"] == pytest.approx(values[:8].sum(), rel=1e-6)

def test_curve_table_by_hand(small):
    store, specs = small
    curves = curve_table(store, specs, points=4)
    runs = [store.read(s) for s in specs if s.algorithm == "NN-PE"]
    mine = {r["t"]: r for r in curves if r["value"] == "regret" and r["algorithm"] == "NN-PE"}
    assert sorted(mine) == [1, 4, 8, 12, 16]
    for t, r in mine.items():
        v = np.array([run.history.regret[:t].sum()/run.mean_gap for run in runs])
        assert (r["mean"], r["se"], r["runs"]) == pytest.approx((v.mean(), v.std(ddof=1)/2, 4), rel=1e-5)

def test_costs_count_once(small):
    store, specs = small
    first, second, none = cost_table(store, {"a": specs[:5], "b": specs, "c": specs[:1]})
    assert (first["runs"], second["runs"], none["runs"]) == (5, 3, 0) and none["core_seconds"] == 0
    assert first["peak_mb"] > 0

def ablation(gap=5.):
    "A made-up table with a known gap"
    rng, rows = np.random.default_rng(0), []
    for panel in ("main", "other"):
        for seed in range(6):
            base = rng.random()
            for a in PAPER_ALGORITHMS:
                value = (10 + base + gap*a.startswith("NN"))*2.
                rows.append(dict(panel=panel, algorithm=a, seed=seed, regret=value, best_observed_regret=value, inference_regret=value, mean_gap=2.))
    return rows

def test_gaps_are_paired():
    gaps = gaps_of(ablation())
    assert set(gaps) == {(p, q) for p in ("main", "other") for q in ("PE", "UCB")}
    for by_seed in gaps.values(): assert mean_se(by_seed.values()) == pytest.approx((5., 0.), abs=1e-12)
    assert mean_se([1., 2., 3.]) == pytest.approx((2., 1/math.sqrt(3))) and math.isnan(mean_se([1.])[1])

def test_drawings_show_every_row():
    from matplotlib.figure import Figure
    fig = Figure()
    draw_ablation(fig, ablation())
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["main", "other"]
    curve = lambda w, a: [dict(value="best_observed_regret", width=w, algorithm=a, T=10, t=t, mean=t, se=1.) for t in (1, 10)]
    fig, theirs = Figure(), [dict(algorithm=a, T=10, final=5., first=1., se=1.) for a in PAPER_ALGORITHMS]
    draw_trained(fig, [r for w in ("exact", "diagonal") for a in PAPER_ALGORITHMS for r in curve(w, a)], published=theirs)
    assert [len(ax.containers) for ax in fig.axes] == [0, 4]                     # published values beside the diagonal ones only

@pytest.mark.parametrize("draw,key,levels", [(draw_trained, "width", ("exact", "diagonal")), (draw_size, "N", (5, 20, 100)), (draw_density, "p", (0.05, 0.2, 0.95))])
def test_no_curve_leaves_its_panel(draw, key, levels):
    "Panels that share an axis are as high as the highest of them, whichever comes last"
    from matplotlib.figure import Figure
    rows = [dict(value="best_observed_regret", algorithm=a, width="exact", N=20, p=0.2, T=10, t=t, mean=t*(1 + 5*i + 3*j), se=1.) | {key: level}
            for i, a in enumerate(PAPER_ALGORITHMS) for j, level in enumerate(levels) for t in (1, 10)]
    fig = Figure()
    draw(fig, rows)
    for ax in fig.axes:
        assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] >= max(r["mean"] + r["se"] for r in rows)

def test_every_column_of_domains_has_an_axis():
    from matplotlib.figure import Figure
    rows = [dict(value="best_observed_regret", algorithm="GNN-PE", N=N, p=p, T=10, t=t, mean=t, se=1.) for N, p in ((5, 0.05), (5, 0.2), (20, 0.2)) for t in (1, 10)]
    fig = Figure()
    draw_domains(fig, rows)
    assert [ax.get_xlabel() for ax in fig.axes] == ["step $t$", "", "", "step $t$"]

def test_best_settings_by_hand():
    rows = [dict(algorithm="GNN-PE", lam=lam, beta=1., regret=r, mean_gap=1.) for lam, rs in ((0.1, (1, 9)), (1., (4, 4))) for r in rs]
    assert best_settings(rows) == {"GNN-PE": (1., 1.)}

def test_tables_on_disk(tmp_path):
    rows = [dict(a=1, b=0.5, c="x,y"), dict(a=2, b=1e-9, c="")]
    assert read_table(write_csv(tmp_path/"t.csv", rows)) == rows
    with pytest.raises(FileNotFoundError, match="gnn_bandits reproduce"): read_table(tmp_path/"no.csv")

def test_committed_tables_are_complete():
    "As many rows as the specs say, every run there once"
    regret = read_table(ROOT/"nbs/results/regret.csv")
    for panel, name in (("performance", "performance"), ("domains", "benchmark"), ("trained", "trained"), ("wide", "benchmark_d100")):
        assert sum(r["panel"] == panel for r in regret) == len(figure_specs(name)), panel
    assert len(read_table(ROOT/"nbs/results/hyper.csv")) == len(figure_specs("hyper"))
    assert len(read_table(ROOT/"nbs/results/ablation.csv")) == len(ablation_specs())
    for name in ("performance", "benchmark", "benchmark_d100", "trained"):
        ends = [r for r in read_table(ROOT/f"nbs/results/{name}.csv") if r["t"] == r["T"] and r["value"] == "regret"]
        assert sum(r["runs"] for r in ends) == len(figure_specs(name)), name

@pytest.mark.parametrize("change,said", [(None, "every digit equal"), (("0.5", "0.5000001"), "0 differ, largest"), (("0.5", "0.6"), "1 differ"),
                                         (("x", "z"), "1 differ"), (("a,b", "a,q"), "other columns"), (("2,0.25,y\n", ""), "1 rows and committed 2")])
def test_comparison_of_tables(tmp_path, change, said):
    text = "a,b,c\n1,0.5,x\n2,0.25,y\n"
    for name, t in (("old", text), ("new", text.replace(*change) if change else text)):
        (tmp_path/name).mkdir()
        (tmp_path/name/"hyper.csv").write_text(t)
    p = subprocess.run([*COMPARE, str(tmp_path/"new"), str(tmp_path/"old")], capture_output=True, text=True)
    assert said in p.stdout and p.returncode == int(not (change is None or "0 differ" in said))

def test_comparison_says_what_is_missing(tmp_path):
    for name in ("old", "new"): (tmp_path/name).mkdir()
    (tmp_path/"old/hyper.csv").write_text("a\n1\n")
    p = subprocess.run([*COMPARE, str(tmp_path/"new"), str(tmp_path/"old")], capture_output=True, text=True)
    assert p.returncode == 1 and "not there" in p.stdout
    assert subprocess.run([*COMPARE, "nowhere"], capture_output=True, text=True).returncode == 1
