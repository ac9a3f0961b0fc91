"The plan of the experiments: settings selected by hand, runs in cells, switches that switch one."
import dataclasses, itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gnn_bandits.paper.population import (ABLATION_RUNS, BETAS, DOMAINS, EDGES, FRESH_SEED, GRID,
                                          LAMS, LEARNERS, NO_SETTINGS, PAPER_SCHEDULE, PULLS,
                                          RIVALS, TEST_SEED, TUNING_SEED, ablation_cells,
                                          ablation_switches, chosen_players, chunks, edge_cells,
                                          fresh_cells, mixture_interval, paper_cells,
                                          picked_pairs, population_cells, resampled_picks, select,
                                          selected, selected_advantage, selection_cells,
                                          selection_picks, setting_grid, setting_means, standing,
                                          tuning_cells)

OTHERS = {"best-observed": {k: (0.5, 2., 10) for k in NO_SETTINGS}}


def test_select_by_hand():
    rows, best = [], {}
    for a in LEARNERS:
        for lam, beta, pulls in itertools.product((0.1, 1.), (0., 2.), (0, 40)):
            for run in range(3):
                cost = abs(lam - 1.) + 3*abs(beta - 2*a.startswith("GNN")) + pulls/40*(run - 0.9)
                rows.append(dict(algorithm=a, lam=lam, beta=beta, random_pulls=pulls, run=run,
                                 regret=cost, best_observed_regret=-cost))
        best[a] = (1., 2. if a.startswith("GNN") else 0., 0)
    table = pd.DataFrame(rows).sample(frac=1, random_state=0)
    found = select(table)
    assert {k: found[k] for k in best} == best
    assert found["GNN-greedy"] == found["NN-greedy"] == (1., 0., 0)
    assert select(table, "best_observed_regret")["GNN-PE"] == (0.1, 0., 40)
    means = setting_means(table).set_index(["algorithm", "lam", "beta", "random_pulls"])
    assert means.loc[("GNN-PE", 1., 2., 40)].tolist() == pytest.approx([0.1, 1/3**0.5, 3])
    assert all(type(v) is t for s in found.values() for v, t in zip(s, (float, float, int)))


@pytest.mark.parametrize("total,size,start",
                         [(10, 3, 0), (6, 6, 0), (1, 10, 0), (0, 4, 0), (4, 3, 5)])
def test_chunks(total, size, start):
    parts = chunks(total, size, start)
    assert sum(parts, ()) == tuple(range(start, start + total))
    assert all(0 < len(p) <= size for p in parts)


def test_grid_is_the_plan():
    assert len(LAMS) == 6 and len(BETAS) == 13 and PULLS == (0, 10, 40) and len(DOMAINS) == 9
    players = setting_grid()
    assert len(set(players)) == len(players) == 6*6*13*3
    tuned = tuning_cells()
    assert len(tuned) == 45 and {c.seed for c in tuned} == {TUNING_SEED} != {TEST_SEED}
    assert all(set(c.players) == set(players) for c in tuned)


def test_edges_are_the_tuning_beyond_its_grid():
    cells = edge_cells()
    assert EDGES[0] < LAMS[0] and EDGES[1] > LAMS[-1]
    by = {c.protocol: c for c in cells}
    assert len(by["population"].players) == 6*2*13*3 and len(by["one reward"].players) == 6*2*13
    assert all({p.lam for p in c.players} == set(EDGES) for c in cells)
    tuned = [dataclasses.replace(c, players=()) for c in tuning_cells()]
    assert [dataclasses.replace(c, study="tuning", players=()) for c in cells[:45]] == tuned


def test_comparisons_are_the_plan():
    settings = dict.fromkeys(("cumulative", "best-observed", "paper"), NO_SETTINGS)
    cells = population_cells(settings)
    runs = {d: [] for d in DOMAINS}
    for c in cells: runs[c.N, c.p] += c.runs
    assert all(sorted(r) == list(range(200)) for r in runs.values())
    players = cells[0].players
    assert len(players) == 3*8 + 1 and players[0].algorithm == "Random"
    for p in players:
        schedule = {k: getattr(p, k) for k in PAPER_SCHEDULE}
        assert (schedule == PAPER_SCHEDULE) == (p.settings == "paper")
    cells = paper_cells(NO_SETTINGS)
    panels = {(c.protocol, c.N, c.p, c.arms, c.T) for c in cells}
    assert len(panels) == 2*(9 + 2)
    assert sum(len(c.runs) for c in cells) == 2*(10*60 + 18)
    assert {sum(len(c.runs) for c in cells if c.arms == n) for n in (500, 1000)} == {120, 36}
    assert all(c.reward.evidence == "outside" for c in cells if c.protocol == "many rewards")


CHANGES = {"base": set(), "lam": {"lam"}, "beta × pulls": {"beta", "random_pulls"},
           "reward": {"reward", "noise_std"}, "beta × reward": {"reward", "noise_std", "beta"},
           "noise": {"noise_std"}, "schedule": set(PAPER_SCHEDULE),
           "selection": {"lam", "beta", "random_pulls"}, "uncertainty": {"uncertainty", "m"},
           "width": {"m"}, "d": {"d"}, "arms": {"arms"}, "T": {"T"}}


def by_level(**more):
    "(switch, level) -> its players in every cell, with the cell and the runs"
    found = {}
    for c in ablation_cells(NO_SETTINGS, OTHERS, **more):
        for p in c.players:
            switch, level = p.settings.split(": ", 1)
            found.setdefault((switch, level), []).append((c, p))
    return found


def test_a_switch_changes_only_what_it_names():
    found = by_level()
    assert {switch for switch, _ in found} == set(CHANGES)
    base_cell = found["base", "base"][0][0]
    base = {p.algorithm: p for _, p in found["base", "base"]}
    fields = lambda x: {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    seen = {k: set() for k in CHANGES}
    for (switch, level), pairs in found.items():
        for c, p in pairs:
            old = fields(base_cell) | fields(base[p.algorithm])
            changed = {k for k, v in (fields(c) | fields(p)).items() if v != old[k]}
            changed -= {"runs", "players", "settings"}
            assert changed <= CHANGES[switch], (switch, level, changed)
            seen[switch] |= changed
    assert seen == CHANGES                                     # and each of them somewhere
    kernels = {(p.inputs, p.kernel) for _, p in found["uncertainty", "other kernel's"]}
    assert kernels == {("graph", "vector"), ("vector", "graph")}


def test_switches_have_the_runs_of_the_base():
    for (switch, level), pairs in by_level().items():
        runs = sum((c.runs for c, p in pairs if p.algorithm == "GNN-UCB"), ())
        wide = [c.m for c, _ in pairs if c.m]
        assert runs == tuple(range(len(runs))), (switch, level)
        assert len(runs) == ABLATION_RUNS or wide and len(runs) >= 20, (switch, level)
        assert {c.seed for c, _ in pairs} == {TEST_SEED}
    for pairs in by_level(runs=3).values():
        assert sum((c.runs for c, p in pairs if p.algorithm == "NN-PE"), ()) == (0, 1, 2)
    assert set(by_level()) == set(ablation_switches(NO_SETTINGS, OTHERS))
    few = by_level(only=lambda switch, level: switch == "noise")
    assert {switch for switch, _ in few} == {"noise"}


def test_names_of_settings_reach_the_players():
    players = chosen_players(OTHERS["best-observed"], "mine", final_from=8)
    assert {(p.lam, p.beta, p.random_pulls, p.settings, p.final_from) for p in players} == {
        (0.5, 2., 10, "mine", 8)}


def test_time_and_memory_grow_with_the_work():
    cell = tuning_cells()[1]
    seconds, bytes_ = (lambda c: c.seconds[1]), lambda c: sum(c.bytes.values())
    assert cell.seconds[0] == 0 and min(cell.bytes.values()) > 0
    for change in (dict(T=1000), dict(arms=400), dict(N=50), dict(runs=(0, 1)), dict(m=256)):
        more = dataclasses.replace(cell, **change)
        assert seconds(more) > seconds(cell), change
        assert (bytes_(more) > bytes_(cell)) == ("runs" not in change), change
    wide = dataclasses.replace(cell, m=256)
    slow = dataclasses.replace(wide, players=tuple(
        dataclasses.replace(p, uncertainty="diagonal") for p in cell.players))
    assert seconds(slow) > seconds(wide) and "squared gradients" in slow.bytes


def test_without_a_tuning_settings_are_made_up():
    assert select(None) is NO_SETTINGS
    assert selected(None, None) == dict.fromkeys(("cumulative", "best-observed", "paper"),
                                                 NO_SETTINGS)


@pytest.fixture(scope="module")
def two_good():
    "Tuning runs in which two settings of each algorithm are good, each in one half of the runs"
    rows = []
    for (N, p), run, (j, setting) in itertools.product(DOMAINS[:2], range(4), enumerate(GRID)):
        regret = {5: run % 2, 9: 1 - run % 2}.get(j, 2 + j/100)
        rows += [dict(zip(("lam", "beta", "random_pulls"), setting)) | dict(
            N=N, p=p, run=run, algorithm=a, regret=float(regret), best_observed_regret=regret + 1.)
            for a in LEARNERS]
    return pd.DataFrame(rows)


def test_resamples_select_either_of_two_good_settings(two_good):
    draw = lambda seed, **more: resampled_picks(two_good, rng=np.random.default_rng(seed), **more)
    picks = draw(0, resamples=2000)
    assert picks.equals(draw(0, resamples=2000)) and not picks.equals(draw(1, resamples=2000))
    assert set(picks["GNN-PE"]) == {5, 9} and picks.nunique(axis=1).eq(1).all()
    # eight draws, even ones cost the first nothing: it is selected if at least half of them are
    expected = stats.binom.sf(3, 8, 0.5)
    assert abs((picks["GNN-PE"] == 5).mean() - expected) < 5*(0.25/2000)**0.5
    assert GRID[5] == select(two_good)["GNN-PE"]
    by_domain = two_good.assign(regret=two_good["regret"].where(
        ~two_good["regret"].between(0, 1), (two_good["run"] % 2 == two_good["regret"])
        == (two_good["p"] == 0.05)).astype(float))      # each is good in one domain: always a tie
    again = resampled_picks(by_domain, resamples=200, rng=np.random.default_rng(0))
    assert (again["NN-TS"] == 5).all()


def test_the_plan_of_the_selection(two_good):
    picks = selection_picks(two_good, resamples=300)
    assert picked_pairs(picks) == sorted((b, i, a, i) for b, a in RIVALS for i in (5, 9))
    for found in picks.values(): found.loc[0, "NN-TS"] = 7             # once in 300: a rare one
    cells = selection_cells(picks)
    assert {c.seed for c in cells} == {TEST_SEED} and len(cells) == 180
    many = [c for c in cells if any(p.settings == "7" for p in c.players)]
    assert {r for c in many for r in c.runs} == set(range(50)) and len(cells[-1].players) == 12
    assert all((p.lam, p.beta, p.random_pulls) == GRID[int(p.settings)] for p in cells[0].players)
    fresh = fresh_cells(NO_SETTINGS, NO_SETTINGS)
    assert {c.seed for c in fresh} == {FRESH_SEED} and FRESH_SEED not in (TUNING_SEED, TEST_SEED, 0)
    runs = {(c.protocol, c.N, c.arms): 0 for c in fresh}
    for c in fresh: runs[c.protocol, c.N, c.arms] += len(c.runs)
    assert runs == {("population", 20, 200): 800, ("population", 100, 200): 800,
                    ("many rewards", 20, 200): 480, ("many rewards", 20, 500): 480,
                    ("many rewards", 20, 1000): 144}


def test_an_interval_carries_the_selection(two_good):
    picks = resampled_picks(two_good, resamples=1000, rng=np.random.default_rng(0))
    row = dict(rival="NN-PE", algorithm="GNN-PE", N=5, p=0.05, runs=200, regret_se=1.)
    table = pd.DataFrame([row | dict(rival_setting=i, setting=i, regret=gain)
                          for i, gain in ((5, 10.), (9, -3.))])
    found = selected_advantage(table, picks, select(two_good), rivals=RIVALS[:1])
    one, share = found.iloc[0], (picks["GNN-PE"] == 5).mean()
    assert one["given"] == 10 and one["given_low"] == pytest.approx(10 - stats.t.isf(0.025, 199))
    assert one["selected"] == pytest.approx(10*share - 3*(1 - share))
    assert one["selected_low"] < -3 < 10 < one["selected_high"] and one["selected_p"] > 0.05
    assert standing(found, found["given_p"], "given").loc["sparse"].tolist() == [1, 0, 1]
    assert standing(found, found["selected_p"]).loc["sparse"].tolist() == [0, 0, 1]


def test_a_mixture_against_draws_from_it():
    rng, w, m, s = np.random.default_rng(0), [0.2, 0.5, 0.3], [-1., 2., 9.], [0.5, 1., 3.]
    k = rng.choice(3, 100_000, p=w)
    draws = np.take(m, k) + np.take(s, k)*rng.standard_t(30, len(k))
    low, high, p = mixture_interval(w, m, s, 30)
    assert np.abs([(draws < low).mean() - 0.025, (draws > high).mean() - 0.025]).max() < 0.0025
    assert abs(p/2 - (draws < 0).mean()) < 5*(0.25/len(k))**0.5
    assert mixture_interval(w, np.negative(m), s, 30) == pytest.approx((-high, -low, p))
