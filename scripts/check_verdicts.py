"""Recompute five verdicts of the ledger from the raw tables, with pandas and scipy only.

Usage: python scripts/check_verdicts.py [--results FOLDER]     (default: nbs/results)

The claims are `gnn-beats-nn` (universal, paired), `density-gap` (a difference of two independent
samples), `nn-may-fail` (existential), `density-gnn-ucb` (censored times, by log-rank scores summed
pull by pull) and `out-of-the-box` (a threshold, on the tuning runs). Nothing of gnn_bandits is
imported. The rules are those of nbs/50_ledger.ipynb, written down a second time. The script prints
both verdicts and leaves with 1 if one of them, in any panel, is not that of claims.csv and
claims_panels.csv. Where the selection of settings is part of the uncertainty (the protocol
"population"), the first two are recomputed from tuning.csv.gz, with resamples of its own, and from
selection.csv.gz if the folder has it; else the rules are applied to the comparisons of
selection_claims.csv. Two errata are recomputed as well, and compared with errata.csv if the folder
has it.
"""
import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import interpolate, special, stats

REGRETS = {"regret": "cumulative regret", "inference_regret": "inference regret",
           "best_observed_regret": "best-observed regret", "found_at": "steps to the optimum"}
DOMAINS = list(product((5, 20, 100), (0.05, 0.2, 0.95)))
ALPHA, MARGIN = 0.05, 0.1


def rows(table, algorithm, N, p, arms=200):
    "The runs of one algorithm in one cell"
    fits = (table.algorithm == algorithm) & (table.N == N) & (table.p == p)
    return table[fits & (table.d == 10) & (table.arms == arms)]


def means(table, column, clustered):
    "A column by run, or averaged over the runs that share a reward"
    if not clustered: return table.set_index("run")[column].sort_index()
    return table.groupby("reward")[column].mean()


def one_verdict(p, low, margin, gross, order):
    "Of one comparison; p is adjusted. An order is contradicted by its opposite only"
    if p <= ALPHA: return "holds"
    if low > (0 if order else gross): return "contradicted"
    return "depends" if not order and low > margin else "inconclusive"


def judge(samples, existential=False, margin=MARGIN, gross=1., order=True):
    """Samples: for each comparison a list of one or two independent arrays, in units of the rival.
    `order`: a mean below zero is claimed; otherwise one below the margin"""
    k, found, zero = len(samples), [], 0. if order else margin
    for parts in samples:
        if len(parts) == 1:
            test = stats.ttest_1samp(parts[0], zero, alternative="less")
            center, df = parts[0].mean(), len(parts[0]) - 1
            error = parts[0].std(ddof=1)/len(parts[0])**0.5
        else:
            test = stats.ttest_ind(*parts, equal_var=False, alternative="less")
            center, df = parts[0].mean() - parts[1].mean(), test.df
            error = np.sqrt(sum(v.var(ddof=1)/len(v) for v in parts))
        p = test.pvalue if error > 0 else float(center >= zero)
        reach = stats.t.ppf(1 - ALPHA/k/2, df)*error if error > 0 else 0.
        found.append((p, center - reach))
    adjusted = holm([p for p, _ in found])
    said = [one_verdict(adjusted[i], found[i][1], margin, gross, order) for i in range(k)]
    return settle(said, existential)


def gnn_beats_nn(table, measure, clustered):
    samples = []
    for policy, (N, p) in product(("PE", "UCB"), DOMAINS):
        gnn, nn = (means(rows(table, f"{net}-{policy}", N, p), measure, clustered)
                   for net in ("GNN", "NN"))
        samples.append([((gnn - nn).dropna()/nn.mean()).to_numpy()])
    return judge(samples)


def density_gap(table, measure, clustered):
    advantage, scale = {}, None
    for p in (0.05, 0.95):
        gnn, nn = (means(rows(table, f"{net}-UCB", 20, p), measure, clustered)
                   for net in ("GNN", "NN"))
        advantage[p] = (nn - gnn).dropna()
        if p == 0.05: scale = nn.mean()
    return judge([[(advantage[p]/scale).to_numpy() for p in (0.95, 0.05)]])


def nn_may_fail(table, measure, clustered):
    cells = {(20, 0.2, arms) for arms in (200, 500, 1000)} | {(N, p, 200) for N, p in DOMAINS}
    samples = []
    for algorithm, cell in product(("NN-PE", "NN-UCB"), sorted(cells)):
        here = rows(table, algorithm, *cell)
        if here.empty: continue
        lost = means(here.assign(lost=(here.found_at > here["T"]).astype(float)), "lost", clustered)
        samples.append([(MARGIN - lost).to_numpy()])
    return judge(samples, existential=True)


def density_gnn_ucb(table, measure, clustered):
    groups = [rows(table, "GNN-UCB", 20, p) for p in (0.05, 0.95)]
    T, steps = int(groups[0]["T"].iloc[0]), [g.found_at.to_numpy() for g in groups]
    scores, variance = [(v <= T).astype(float) for v in steps], 0.
    for t in range(1, T + 1):                              # events, and what one rate would expect
        at_risk = [int((v >= t).sum()) for v in steps]
        d, n = sum(int((v == t).sum()) for v in steps), sum(at_risk)
        if not d: continue
        for score, v in zip(scores, steps): score[v >= t] -= d/n
        if n > 1: variance += at_risk[0]*at_risk[1]*d*(n - d)/(n**2*(n - 1))
    factor = len(steps[0])*len(steps[1])/(len(steps[0]) + len(steps[1]))/variance
    parts = [means(g.assign(score=-factor*score), "score", clustered).to_numpy()
             for g, score in zip(groups, scores)]
    return judge([parts])


SELECTED = {"GNN-PE": (0.01, 2.), "GNN-UCB": (1e-5, 3.), "NN-PE": (1., 0.3), "NN-UCB": (1e-5, 2.)}


def out_of_the_box(table, measure, clustered):
    samples, table = [], table[(table.d == 10) & (table.random_pulls == 40)]
    for algorithm, pair in SELECTED.items():
        here, cost, best = table[table.algorithm == algorithm], [], []
        for run in here.run.unique():
            others = here[here.run != run].groupby(["lam", "beta"])[measure].mean()
            own = here[here.run == run].set_index(["lam", "beta"])
            first = others[others <= others.min()*(1 + 1e-12)].index[0]
            values = [own.loc[[k]].sort_values(["N", "p"])[measure].to_numpy()
                      for k in (pair, first)]
            cost.append(values[0] - values[1]), best.append(values[1])
        samples.append([np.concatenate(cost)/np.concatenate(best).mean()])
    return judge(samples, order=False)


CLAIMS = {"gnn-beats-nn": (gnn_beats_nn, list(REGRETS)[:3]),
          "density-gap": (density_gap, list(REGRETS)[:3]),
          "nn-may-fail": (nn_may_fail, ["found_at"]),
          "density-gnn-ucb": (density_gnn_ucb, ["found_at"]),
          "out-of-the-box": (out_of_the_box, [list(REGRETS)[i] for i in (2, 0, 1)])}


def settle(said, existential=False):
    "The verdict on a claim from those of its comparisons"
    some, every = (any, all) if existential else (all, any)
    if some(v == "holds" for v in said): return "holds", len(said)
    for words in (("contradicted",), ("contradicted", "depends")):
        if every(v in words for v in said): return words[-1], len(said)
    return "inconclusive", len(said)


def holm(ps):
    worst, adjusted = 0., {}
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = adjusted[i] = max(worst, min(1., (len(ps) - rank)*ps[i]))
    return [adjusted[i] for i in range(len(ps))]


def resampled_pairs(tuning, measure, pair, resamples=4000, draws=4):
    "Settings of two algorithms that resampled tuning runs select, and how often"
    rng, chosen = np.random.default_rng(1), []
    tuning = tuning[tuning.d == 10]
    wide = tuning.pivot(index=["N", "p", "run"], columns=["algorithm", "lam", "beta",
                                                          "random_pulls"], values=measure)
    blocks = wide.groupby(level=["N", "p"]).indices.values()
    weights = np.zeros((resamples, len(wide)))
    for at in blocks:
        drawn = rng.integers(len(at), size=(resamples, draws))
        for k in range(draws): weights[np.arange(resamples), at[drawn[:, k]]] += len(at)/draws
    for name in pair:
        grid = sorted(wide[name].columns)
        chosen.append((weights @ wide[name][grid].to_numpy()).argmin(1))
    return pd.Series(list(zip(*chosen))).value_counts(normalize=True)


def shares_around_zero(parts):
    "Of a mixture: how much of it lies below zero; parts are (weight, mean, error, df)"
    w, mean, error, df = np.array(parts).T
    return float(w @ stats.t.cdf(-mean/error, df))


def with_selection(results, key, measure):
    "Verdict and number of comparisons of one of the first two claims, from pairs of settings"
    table, tuning = (pd.read_csv(results/f"{n}.csv.gz") for n in ("selection", "tuning"))
    value, error, parts = measure, f"{measure}_se", {}
    for policy in ("PE", "UCB") if key == "gnn-beats-nn" else ("UCB",):
        pair = f"NN-{policy}", f"GNN-{policy}"
        here = table[(table.rival == pair[0]) & (table.algorithm == pair[1])]
        here = here.set_index(["N", "p", "rival_setting", "setting"])
        for (i, j), w in resampled_pairs(tuning, measure, pair).items():
            if (20, 0.95, i, j) not in here.index: continue          # not in the plan's resamples
            at = {cell: here.loc[(*cell, i, j)] for cell in DOMAINS}
            if key == "density-gap":
                dense, sparse = at[20, 0.95], at[20, 0.05]
                v = [r[error]**2 for r in (dense, sparse)]
                df = sum(v)**2/sum(x**2/(r.runs - 1) for x, r in zip(v, (dense, sparse)))
                parts.setdefault(key, []).append((w, dense[value] - sparse[value], sum(v)**0.5, df))
            else:
                for cell, r in at.items():
                    parts.setdefault((policy, cell), []).append(
                        (w, -r[value], r[error], r.runs - 1))
    scaled = [[(w/sum(q[0] for q in some), *rest) for w, *rest in some] for some in parts.values()]
    below = [shares_around_zero(some) for some in scaled]
    adjusted = holm([1 - b for b in below])
    return settle(["holds" if p <= ALPHA else "contradicted" if b < ALPHA/2/len(below) else
                   "inconclusive" for p, b in zip(adjusted, below)])


def kept_selection(results, key, measure):
    "The rules applied to the stored comparisons; p is adjusted"
    table = pd.read_csv(results/"selection_claims.csv")
    table = table[(table.key == key) & (table.measure == measure) & (table.part == "all")]
    return settle([one_verdict(r.p, r.low, r.margin, 1., r.form == "below")
                   for r in table.itertuples()], key == "nn-may-fail")


def renewed(results, selected, table):
    "With fresh runs in the place of older ones"
    fresh = pd.read_csv(results/"fresh_dense.csv.gz")
    fresh = fresh[fresh.settings == selected]
    cell = ["algorithm", "N", "p", "d", "arms"]
    old = table.set_index(cell).index.isin(fresh.set_index(cell).index)
    return pd.concat([table[~old], fresh])


def all_panels(results, key, claim, measures):
    "Protocol, regret -> verdict and number of comparisons"
    if claim is out_of_the_box:
        tuning = pd.read_csv(results/"tuning.csv.gz")
        return {("population", REGRETS[m]): claim(tuning, m, False) for m in measures}
    population = pd.read_csv(results/"population.csv.gz")
    paper, found = pd.read_csv(results/"paper.csv.gz"), {}
    for measure in measures:
        selected = "best-observed" if measure == "best_observed_regret" else "cumulative"
        tables = {"settings as given": population[population.settings == selected]}
        if key == "gnn-beats-nn":
            tables = {k: renewed(results, selected, v) for k, v in tables.items()}
        whole = key in ("gnn-beats-nn", "density-gap") and measure != "inference_regret"
        how = with_selection if whole and (results/"selection.csv.gz").exists() else kept_selection
        found["population", REGRETS[measure]] = how(results, key, measure)
        for name in ("one reward", "many rewards"): tables[name] = paper[paper.protocol == name]
        for name, table in tables.items():
            found[name, REGRETS[measure]] = claim(table, measure, name == "many rewards")
    return found


def join(found, measures):
    "The verdict of all panels"
    primary = [found[panel][0] for panel in (("population", REGRETS[measures[0]]),
                                             ("many rewards", REGRETS[measures[-1]]))
               if panel in found]
    against = any(said == "contradicted" for said, _ in found.values())
    if set(primary) == {"holds"} and not against: return "holds"
    if "depends" in primary or {"holds", "contradicted"} <= set(primary): return "depends"
    if "holds" in primary: return "holds with a correction"
    return "contradicted" if "contradicted" in primary else "inconclusive"


def main(results):
    "Number of disagreements"
    ledger = pd.read_csv(results/"claims.csv").set_index("key")
    panels = pd.read_csv(results/"claims_panels.csv").set_index(["key", "protocol", "regret"])
    wrong = 0
    for key, (claim, measures) in CLAIMS.items():
        found = all_panels(results, key, claim, measures)
        if set(found) != set(panels.loc[key].index):
            print(f"{key}: panels differ")
            wrong += 1
            continue
        for panel, (said, k) in found.items():
            row = panels.loc[(key, *panel)]
            agree = said == row.verdict and k == row.comparisons
            wrong += not agree
            print(f"{key:15} {panel[0]:17} {panel[1]:21} {said:13} of {k:2} comparisons: "
                  f"{'as in the ledger' if agree else f'the ledger has {row.verdict}'}")
        said, kept = join(found, measures), ledger.loc[key, "verdict"]
        wrong += said != kept
        print(f"{key:15} in all: {said}; the ledger has: {kept}")
    return wrong


def recomputed_errata(results):
    """Recompute two errata by numpy and scipy alone, and return the number of disagreements.

    `not-nested`: rates at which the weights of one node's harmonics fall, N = 2, d = 3. Both come
    from Gauss-Legendre sums with numpy's Legendre polynomials; the average over the second node
    is done in closed form, by the antiderivative of the kernel. `ridge-above-two`: functions
    k(., G)/sqrt(k(G, G)) that lie outside the printed set before the first pull, for a graph
    kernel that is computed from random graphs, with the printed formulas.
    """
    def kernel(u):
        "The tangent kernel of two hidden layers, divided by its value at 1"
        u = np.clip(u, -1, 1)
        relu = lambda c: (c*(np.pi - np.arccos(c)) + np.sqrt(1 - c*c))/np.pi
        step = lambda c: (np.pi - np.arccos(c))/np.pi
        one = np.clip(relu(u), -1, 1)
        return ((u*step(u) + one)*step(one) + relu(one))/3

    table = pd.read_csv(results/"errata.csv").set_index("key")["decides"]
    x, w = np.polynomial.legendre.leggauss(800)
    u, w = np.cos(np.pi*(x + 1)/2), w*np.sin(np.pi*(x + 1)/2)*np.pi/4
    fine = np.cos(np.linspace(0, np.pi, 100_001))[::-1]            # cosines, dense at both ends
    area = interpolate.CubicSpline(fine, kernel(fine)).antiderivative()
    mean = area((u + 1)/2) - area((u - 1)/2)                        # over a uniform second cosine
    even, slopes = np.arange(10, 41, 2), []
    for values in (mean, kernel(u)):
        weights = [w*values @ special.eval_legendre(r, u) for r in even]
        slopes.append(stats.linregress(np.log(even), np.log(weights)).slope)
    said = f"$r^{{{slopes[0]:.1f}}}$ (rival) and $r^{{{slopes[1]:.1f}}}$"
    wrong = said not in table["not-nested"]
    print(f"not-nested: weights fall like {said}; the table has: {table['not-nested']}")

    rng, own = np.random.default_rng(0), []
    for _ in range(60):                                             # fresh graphs of five nodes
        edges = np.triu(rng.random((5, 5)) < 0.2, 1)
        h = (edges + edges.T + np.eye(5)) @ rng.standard_normal((5, 10))
        h /= np.linalg.norm(h, axis=1, keepdims=True)
        own.append(kernel(h @ h.T).mean())                          # k(G, G)
    own, missed = np.array(own), []
    for lam in (1.44, 6.7):
        multiplier = np.sqrt(2) + 0.01/np.sqrt(lam)*np.sqrt(2*np.log(2*60/0.1))
        missed.append(int((np.sqrt(own) > multiplier*np.sqrt(own/lam)).sum()))
    words = (f"misses {missed[0]} of 60", f"and {missed[1]} at")
    wrong += not all(part in table["ridge-above-two"] for part in words)
    print(f"ridge-above-two: {' '.join(words)} 6.7; the table has: {table['ridge-above-two']}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path,
                        default=Path(__file__).parents[1]/"nbs/results")
    given = parser.parse_args()
    wrong = main(given.results)
    if (given.results/"errata.csv").exists(): wrong += recomputed_errata(given.results)
    if wrong: sys.exit(f"{wrong} disagreements")
