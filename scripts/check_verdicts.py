"""Recompute three verdicts of the ledger from the raw tables, with pandas and scipy only.

Usage: python scripts/check_verdicts.py [--results FOLDER]     (default: nbs/results)

The claims are `gnn-beats-nn` (universal, paired), `density-gap` (a difference of two independent
samples) and `nn-may-fail` (existential). Nothing of gnn_bandits is imported. The rules are those
of nbs/44_ledger.ipynb, written down a second time. The script prints both verdicts and leaves
with 1 if one of them, in any panel, is not that of claims.csv and claims_panels.csv.
"""
import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

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


def one_verdict(p, low, high, margin):
    "Of one comparison that claims a mean below zero; p is adjusted"
    return "holds" if p <= ALPHA else "contradicted" if low >= -margin else "inconclusive"


def judge(samples, margin, existential):
    "Samples: for each comparison a list of one or two independent arrays, in units of the rival"
    k, found = len(samples), []
    for parts in samples:
        if len(parts) == 1:
            test = stats.ttest_1samp(parts[0], 0, alternative="less")
            center, df = parts[0].mean(), len(parts[0]) - 1
            error = parts[0].std(ddof=1)/len(parts[0])**0.5
        else:
            test = stats.ttest_ind(*parts, equal_var=False, alternative="less")
            center, df = parts[0].mean() - parts[1].mean(), test.df
            error = np.sqrt(sum(v.var(ddof=1)/len(v) for v in parts))
        p = test.pvalue if error > 0 else float(center >= 0)
        reach = stats.t.ppf(1 - ALPHA/k/2, df)*error if error > 0 else 0.
        found.append((p, center - reach, center + reach))
    order, worst, adjusted = sorted(range(k), key=lambda i: found[i][0]), 0., {}
    for rank, i in enumerate(order):                                      # Holm's rule
        worst = max(worst, min(1., (k - rank)*found[i][0]))
        adjusted[i] = worst
    said = [one_verdict(adjusted[i], *found[i][1:], margin) for i in range(k)]
    some, every = (any, all) if existential else (all, any)
    if some(v == "holds" for v in said): return "holds", k
    return ("contradicted" if every(v == "contradicted" for v in said) else "inconclusive"), k


def gnn_beats_nn(table, measure, clustered):
    samples = []
    for policy, (N, p) in product(("PE", "UCB"), DOMAINS):
        gnn, nn = (means(rows(table, f"{net}-{policy}", N, p), measure, clustered)
                   for net in ("GNN", "NN"))
        samples.append([((gnn - nn).dropna()/nn.mean()).to_numpy()])
    return judge(samples, MARGIN, False)


def density_gap(table, measure, clustered):
    advantage, scale = {}, None
    for p in (0.05, 0.95):
        gnn, nn = (means(rows(table, f"{net}-UCB", 20, p), measure, clustered)
                   for net in ("GNN", "NN"))
        advantage[p] = (nn - gnn).dropna()
        if p == 0.05: scale = nn.mean()
    return judge([[(advantage[p]/scale).to_numpy() for p in (0.95, 0.05)]], MARGIN, False)


def nn_may_fail(table, measure, clustered):
    cells = {(20, 0.2, arms) for arms in (200, 500, 1000)} | {(N, p, 200) for N, p in DOMAINS}
    samples = []
    for algorithm, cell in product(("NN-PE", "NN-UCB"), sorted(cells)):
        here = rows(table, algorithm, *cell)
        if here.empty: continue
        lost = means(here.assign(lost=(here.found_at > here["T"]).astype(float)), "lost", clustered)
        samples.append([(MARGIN - lost).to_numpy()])
    return judge(samples, 0., True)


CLAIMS = {"gnn-beats-nn": (gnn_beats_nn, list(REGRETS)[:3]),
          "density-gap": (density_gap, list(REGRETS)[:3]),
          "nn-may-fail": (nn_may_fail, ["found_at"])}


def all_panels(results, claim, measures):
    "Protocol, regret -> verdict and number of comparisons"
    population = pd.read_csv(results/"population.csv.gz")
    paper, found = pd.read_csv(results/"paper.csv.gz"), {}
    for measure in measures:
        selected = "best-observed" if measure == "best_observed_regret" else "cumulative"
        tables = {"population": population[population.settings == selected]}
        for name in ("one reward", "many rewards"): tables[name] = paper[paper.protocol == name]
        for name, table in tables.items():
            found[name, REGRETS[measure]] = claim(table, measure, name == "many rewards")
    return found


def join(found, measures):
    "The verdict of all panels"
    primary = [found["population", REGRETS[measures[0]]][0],
               found["many rewards", REGRETS[measures[-1]]][0]]
    against = any(said == "contradicted" for said, _ in found.values())
    if primary == ["holds", "holds"] and not against: return "holds"
    if "holds" in primary: return "holds with a correction"
    return "contradicted" if "contradicted" in primary else "inconclusive"


def main(results):
    "Number of disagreements"
    ledger = pd.read_csv(results/"claims.csv").set_index("key")
    panels = pd.read_csv(results/"claims_panels.csv").set_index(["key", "protocol", "regret"])
    wrong = 0
    for key, (claim, measures) in CLAIMS.items():
        found = all_panels(results, claim, measures)
        if set(found) != set(panels.loc[key].index):
            print(f"{key}: panels differ")
            wrong += 1
            continue
        for panel, (said, k) in found.items():
            row = panels.loc[(key, *panel)]
            agree = said == row.verdict and k == row.comparisons
            wrong += not agree
            print(f"{key:13} {panel[0]:13} {panel[1]:21} {said:13} of {k:2} comparisons: "
                  f"{'as in the ledger' if agree else f'the ledger has {row.verdict}'}")
        said, kept = join(found, measures), ledger.loc[key, "verdict"]
        wrong += said != kept
        print(f"{key:13} in all: {said}; the ledger has: {kept}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path,
                        default=Path(__file__).parents[1]/"nbs/results")
    given = parser.parse_args()
    if wrong := main(given.results): sys.exit(f"{wrong} disagreements")
