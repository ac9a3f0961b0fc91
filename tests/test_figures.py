"Figures made of runs: which runs they ask for, what their tables say, how tables compare."
import gzip, math, sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.experiments import grid, spec_fields
from gnn_bandits.paper.store import REGRETS, Store
from gnn_bandits.paper.sweep import COMPILING, sweep, sweep_seconds
from gnn_bandits.paper.algorithms import COLORS, LINES, PAPER_ALGORITHMS
from gnn_bandits.paper.datasets import DATASETS
from gnn_bandits.paper import population
from gnn_bandits.paper.figures import (FIGURES, STAGES, TRAINED_RUNS, TRAINED_SETTINGS, Plan,
                                       Unfinished, curve_table, draw_curves, draw_density,
                                       draw_domains, draw_hyper, draw_performance, draw_size,
                                       draw_trained, final_regrets, mean_se, published_distances,
                                       run_table, trained_specs, trained_table)
from gnn_bandits.paper.population import BETAS, LAMS, LEARNERS
from gnn_bandits.paper.studies import Cell

ROOT = Path(__file__).parent.parent

@pytest.fixture
def compare(monkeypatch, capsys):
    "What scripts/compare.py says and how it ends; in this process, which is quicker"
    monkeypatch.syspath_prepend(ROOT/"scripts")
    from compare import main
    def run(*folders):
        try: code = main(list(map(str, folders)))
        except SystemExit as e: code = 1 if isinstance(e.code, str) else e.code
        return SimpleNamespace(returncode=code, stdout=capsys.readouterr().out)
    return run

@pytest.fixture(scope="module")
def small(tmp_path_factory):
    "A store with eight small runs, and their specs"
    specs = grid(data=replace(DATASETS["N5_p0.2_d10"], n=100), algorithm=["GNN-PE", "NN-PE"],
                 model="gntk", arms=20, T=16, seed=range(4), random_pulls=4)
    store = Store(tmp_path_factory.mktemp("store"))
    sweep(specs, store, progress=False)
    return store, specs

@pytest.mark.parametrize("quick", [False, True])
def test_trained_and_linearised_differ_in_nothing_else(quick):
    "Two panels with the same arms, noise, network, λ and β"
    own = lambda panel: {(s.algorithm, s.seed): spec_fields(s)
                         for s in trained_specs(quick, panels=[panel])}
    real, linear = own("trained"), own("linearised")
    assert set(real) == set(linear) and {a for a, _ in real} == set(PAPER_ALGORITHMS)
    for key, fields in real.items():
        other = linear[key]
        assert {k for k in fields if fields[k] != other[k]} == {"model", "train_from"}
        assert (fields["lam"], fields["beta"]) == TRAINED_SETTINGS[key[0]]
        assert (fields["fit"], fields["uncertainty"]) == ("limit", "exact")

def items(name, *tables, **asked):
    "What a stage plays"
    plan = Plan("nowhere", **asked)
    stage = plan.stage(name)
    return stage.items(plan, *(tables or [None]*len(stage.needs)))

def test_seeds_that_are_asked_for_are_given():
    seeds = lambda specs: {s.seed for s in specs}
    assert seeds(trained_specs()) == set(range(TRAINED_RUNS))
    for n in (3, 10):
        assert seeds(trained_specs(seeds=n)) == set(range(n))
        assert seeds(items("performance", seeds=n, model="gntk")) == set(range(n))

def test_a_model_turns_studies_into_runs():
    "Without one, figures of the paper's protocol have no runs of their own; with one, they do"
    for name in FIGURES:
        assert (len(items(name)) > 0) == (name == "trained")
        with_model = items(name, quick=True, model="gntk")
        assert (len(with_model) > 0) == (name == "trained" or STAGES[name].runs is not None)
        if STAGES[name].runs: assert {s.model for s in with_model} == {"gntk"}
    keys = lambda name: {s.key for s in items(name, model="gntk")}
    assert keys("size") == keys("benchmark") == keys("density")

def test_stages_come_after_what_they_need():
    names = list(STAGES)
    for name, stage in STAGES.items():
        assert all(names.index(n) < names.index(name) for n in stage.needs), name
        assert stage.draw or not stage.runs, name

def test_more_is_expected_to_take_longer():
    plans = [Plan("nowhere", quick=True), Plan("nowhere", seeds=5), Plan("nowhere")]
    items = [p.missing(STAGES) for p in plans]
    seconds = list(map(sweep_seconds, items))
    assert seconds == sorted(seconds) and seconds[0] < seconds[-1]
    two = sweep_seconds(items[0], 2)
    assert two - COMPILING == pytest.approx((seconds[0] - COMPILING)/2)
    assert plans[0].missing(["ntk", "domains"]) == []

@pytest.fixture
def tiny(monkeypatch):
    "A grid of two settings"
    for k, v in dict(LAMS=(0.1,), BETAS=(0., 1.)).items(): monkeypatch.setattr(population, k, v)

def test_stages_are_played_once(tmp_path, tiny):
    "The comparisons wait for the tuning; another plan finds everything on disk"
    told, names = [], ("advantage", "surfaces", "hyper")
    plan = Plan(tmp_path, quick=True, seeds=1, progress=False, tell=told.append)
    tables = [plan.table(name) for name in names]
    assert [line.split(",")[0] for line in told] == ["2 cells done"]*3
    assert plan.table("surfaces") is plan.table("tuning_d10") and len(told) == 3
    again = Plan(tmp_path, quick=True, seeds=1, progress=False, tell=told.append)
    assert not again.missing(names) and len(again.missing(["switches"])) == 6
    for name, table in zip(names, tables): assert again.table(name).equals(table)
    chosen = population.selected(again.table("tuning_d10"), again.table("paper_tuning"))
    assert set(chosen) == {"cumulative", "best-observed", "paper"} and len(told) == 3
    assert all(chosen["cumulative"][f"{net}-greedy"][1] == 0 for net in ("GNN", "NN"))

def test_a_failure_stops_only_what_needs_it(tmp_path, tiny, monkeypatch, capfd):
    honest, calls = Cell.play, []
    def play(cell, start):
        calls.append(cell.study)
        return honest(cell, start) if cell.study == "paper_tuning" else 1//0
    monkeypatch.setattr(Cell, "play", play)
    plan = Plan(tmp_path, quick=True, seeds=1, progress=False)
    for name in ("surfaces", "advantage", "switches", "surfaces"):
        with pytest.raises(Unfinished, match="show .*tuning-.* tells why"): plan.table(name)
    assert len(plan.table("hyper")) and calls == ["tuning"]*2 + ["paper_tuning"]*2

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
    mine = curves.query("regret == 'regret' and algorithm == 'NN-PE'")
    assert set(curves["protocol"]) == {"one reward"} and set(curves["regret"]) == set(REGRETS)
    assert mine["t"].tolist() == [1, 4, 8, 12, 16]
    for r in mine.to_dict("records"):
        v = np.array([run.history.regret[:r["t"]].sum()/run.mean_gap for run in runs])
        expected = v.mean(), v.std(ddof=1)/2, 4
        assert (r["mean"], r["se"], r["units"]) == pytest.approx(expected, rel=1e-5)

def test_final_regrets_are_paired():
    rows = [dict(panel=panel, algorithm="GNN-PE", seed=seed, regret=2.*(10 + seed + more),
                 mean_gap=2.) for panel, more in (("main", 0), ("other", 5)) for seed in range(6)]
    table = pd.DataFrame(rows)
    at = final_regrets(table)
    gap = at["other", "GNN-PE"] - at["main", "GNN-PE"]
    assert mean_se(gap) == pytest.approx((5., 0.), abs=1e-12)
    fewer = table[(table["panel"] == "main") | (table["seed"] < 4)]
    at = final_regrets(fewer)
    gap = at["other", "GNN-PE"] - at["main", "GNN-PE"]
    assert gap.count() == 4 and mean_se(gap) == pytest.approx((5., 0.), abs=1e-12)
    with pytest.raises(ValueError, match="duplicate"): final_regrets(pd.concat([fewer, fewer]))
    assert mean_se([1., 2., 3.]) == pytest.approx((2., 1/math.sqrt(3)))
    assert math.isnan(mean_se([1.])[1])

def test_trained_table_and_its_drawing(tmp_path):
    from matplotlib.figure import Figure
    specs = [s for s in trained_specs(True, 1) if s.algorithm == "NN-UCB"]
    store = Store(tmp_path)
    sweep(specs, store, progress=False)
    table = trained_table(store, specs[::-1])
    assert table["panel"].tolist() == ["trained", "linearised"]
    assert table["model"].tolist() == ["trained", "linearized"]
    rows = [table.assign(algorithm=name, seed=seed, regret=table["regret"] + seed)
            for name in PAPER_ALGORITHMS for seed in range(3)]
    fig = Figure()
    draw_trained(fig, pd.concat(rows))
    for ax in fig.axes: assert [len(line.get_xdata()) for line in ax.lines] == [3]*4 + [2]
    first = fig.axes[0].lines[0]
    gap = table["mean_gap"].iloc[0]
    np.testing.assert_allclose(first.get_ydata(), (table["regret"][0] + np.arange(3))/gap)
    np.testing.assert_allclose(first.get_xdata(), (table["regret"][1] + np.arange(3))/gap)

def test_two_protocols_have_a_part_each():
    from matplotlib.figure import Figure
    rows = [dict(protocol=which, algorithm=a, mean=t, t=t, arms=arms) for t in (1, 10)
            for which in ("one reward", "many rewards")
            for a in (*PAPER_ALGORITHMS, "GNN-greedy") for arms in (200, 500)]
    for draw, panels in (draw_performance, 2), (draw_domains, 1), (draw_size, 4), (draw_density, 4):
        fig = Figure()
        draw(fig, curves(rows))
        assert [len(part.axes) for part in fig.subfigs] == [panels, panels]
        titles = [part.get_suptitle() for part in fig.subfigs]
        assert titles == ["one reward", "many rewards"]
        names = {line.get_label() for ax in fig.axes for line in ax.lines}
        assert "GNN-greedy" not in names

def test_the_star_of_the_tuning_is_the_minimum():
    from matplotlib.figure import Figure
    rng = np.random.default_rng(0)
    means = pd.DataFrame([dict(algorithm=a, lam=lam, beta=beta, random_pulls=40,
                               mean=10 + 50*rng.random(), se=1., runs=20)
                          for a in LEARNERS for lam in LAMS for beta in BETAS])
    fig = Figure()
    draw_hyper(fig, means)
    for ax, name in zip(fig.axes, LEARNERS):
        best = min((r for r in means.to_dict("records") if r["algorithm"] == name),
                   key=lambda r: r["mean"])
        (x,), (y,) = ax.lines[0].get_data()
        assert (ax.get_title(), LAMS[x], BETAS[y]) == (name, best["lam"], best["beta"])
        assert ax.images[0].get_array()[y, x] == ax.images[0].get_array().min()

def test_published_distances_by_hand():
    theirs = pd.DataFrame([dict(figure=f, N=20, p=0.2, arms=200, T=10, algorithm=a, first=2.,
                                final=20., se=8.)
                           for f in ("performance", "size") for a in PAPER_ALGORITHMS])
    ours = curves([dict(protocol=which, algorithm=a, t=t, mean=mean + (t < 10), se=3.)
                   for which, mean in (("one reward", 15.), ("many rewards", 5.))
                   for a in PAPER_ALGORITHMS for t in (5, 10)])
    found = published_distances(ours, theirs)
    assert len(found) == 8 and set(found["figure"]) == {"performance"}
    assert found.groupby("protocol")["distance"].agg(list).to_dict() == {
        "one reward": [1.]*4, "many rewards": [-1.]*4}
    with pytest.raises(ValueError, match="not complete"):
        published_distances(ours[ours["algorithm"] != "NN-PE"], theirs)

def curves(rows):
    "Made-up rows as a table of curves"
    fixed = dict(regret="best_observed_regret", T=10, se=1., N=20, p=0.2, arms=200,
                 protocol="one reward")
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

@pytest.mark.parametrize("draw,key,levels", [(draw_size, "N", (5, 20, 100)),
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
    assert [ax.get_xlabel() for ax in fig.axes] == ["pull $t$", "", "", "pull $t$"]

def test_tables_on_disk(tmp_path):
    "Numbers have seven digits, and committed tables are written back as they stand"
    table = pd.DataFrame(dict(a=[1, 2], b=[1/3, 1e-9], c=["x,y", "z"]))
    text = write_table(tmp_path/"t.csv", table).read_text()
    assert text == 'a,b,c\n1,0.3333333,"x,y"\n2,1e-09,z\n'
    for path in [*ROOT.glob("nbs/results/trained.csv"), *ROOT.glob("nbs/results/quick/*.csv")]:
        assert write_table(tmp_path/"t.csv", read_table(path)).read_text() == path.read_text(), path

def test_committed_tables_are_complete():
    "As many rows as the specs say, every run there once"
    for quick, folder in (False, "nbs/results"), (True, "nbs/results/quick"):
        table = read_table(ROOT/folder/"trained.csv")
        keys = [(s.algorithm, s.model, s.seed, s.settings.lam) for s in trained_specs(quick)]
        rows = zip(*(table[k] for k in ("algorithm", "model", "seed", "lam")))
        assert sorted(rows) == sorted(keys), folder

def test_replay_finds_the_committed_numbers(monkeypatch, capsys):
    "It plays what it says; whether digits agree depends on the machine, `make reproduce` tells"
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.syspath_prepend(ROOT/"scripts")
    from compare import main
    code = main(["--quick", "--runs", "6", "--jobs", "1"])
    last = capsys.readouterr().out.splitlines()[-1]
    same, rest = last.split(" of ")
    assert rest == "10 runs equal"          # 2 of the studies with 3 players each, 4 linearised
    assert code == (int(same) < 10) and int(same) >= 5

def test_published_values_of_made_up_curves(tmp_path, monkeypatch):
    "Bands that reach 0.2 to either side: the standard deviation is 2, of 20 runs"
    monkeypatch.syspath_prepend(ROOT/"scripts")
    from paper_tables import PUBLISHED, published_rows
    t = np.arange(5)
    two = [pd.DataFrame(dict(panel="N=20 p=0.2 A=200 d=10", algorithm=name, t=t, mean=mean,
                             lower=mean - 0.2, upper=mean + 0.2))
           for name, mean in (("GNN-PE", t + 1.), ("GNN-UCB", np.where(t < 3, t + 1., 9.)))]
    pd.concat(two).to_csv(tmp_path/f"{PUBLISHED['performance']}.csv", index=False)
    pe, ucb = published_rows("performance", tmp_path)
    expected = dict(N="20", arms="200", T=5, first="1", half="3", final="5")
    assert {k: pe[k] for k in expected} == expected
    assert (pe["with_GNN-PE"], ucb["with_GNN-PE"], ucb["with_NN-UCB"]) == (4, 2, "")
    assert float(pe["se"]) == pytest.approx(2/math.sqrt(20), rel=1e-3)

@pytest.mark.parametrize("change,said", [
    (None, "every digit equal"), (("0.5", "0.5000001"), "0 differ, largest"),
    (("0.5", "0.6"), "1 differ"), (("x", "z"), "1 differ"), (("a,b", "a,q"), "other columns"),
    (("2,0.25,y\n", ""), "1 rows and committed 2")])
def test_comparison_of_tables(compare, tmp_path, change, said):
    text = "a,b,c\n1,0.5,x\n2,0.25,y\n"
    for name, t in (("old", text), ("new", text.replace(*change) if change else text)):
        (tmp_path/name).mkdir()
        (tmp_path/name/"hyper.csv").write_text(t)
        (tmp_path/name/"tuning.csv.gz").write_bytes(gzip.compress(text.encode()))
    p = compare(tmp_path/"new", tmp_path/"old")
    assert "tuning.csv.gz        2 rows, 0 differ" in p.stdout
    assert said in p.stdout and p.returncode == int(not (change is None or "0 differ" in said))

def test_comparison_says_what_is_missing(compare, tmp_path):
    for name in ("old", "new"): (tmp_path/name).mkdir()
    (tmp_path/"old/hyper.csv").write_text("a\n1\n")
    p = compare(tmp_path/"new", tmp_path/"old")
    assert p.returncode == 1 and "not there" in p.stdout
    assert compare("nowhere").returncode == 2
