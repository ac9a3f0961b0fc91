"""Write nbs/results/released_first.csv and released_published.csv: which published curves begin
with the random pulls that the released code draws from its own seeds.

Usage: python scripts/released_first.py FOLDER    (the digitised curves, one file a figure)
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.paper.released import random_regret, released_data, released_game

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"
MAIN = "regret_0.2p_10d_20N_labeled"
PANELS = [(N, p, d, 200) for d in (10, 100) for N in (5, 20, 100) for p in (0.05, 0.2, 0.95)]
PANELS += [(20, 0.2, 10, 500), (20, 0.2, 10, 1000)]


def published(folder, N, p, d, arms):
    "The published points of one panel: a column for each algorithm."
    name = MAIN if arms > 200 else f"benchmark_all_{d}d"
    v = pd.read_csv(Path(folder)/f"{name}.csv")
    v = v[v.panel == f"N={N} p={p:g} A={arms} d={d}"]
    return v.pivot(index="t", columns="algorithm", values="mean") if len(v) else None


def row(folder, N, p, d, arms, most=25):
    "The first points of a panel beside what the seeds give, for the best size and run count."
    v = published(folder, N, p, d, arms)
    if v is None or 0 not in v.index: return None
    (_, second), (a, b) = v.index[:2], v.iloc[:2].median(axis=1)  # of the algorithms, mostly equal
    data, found = released_data(N=N, p=p, d=d), []
    for n in (5_000, 10_000):
        part = type(data)(data.domain[:n], data.f[:n], data.seed)
        c = np.array([random_regret(released_game(part, r, arms=arms, T=41)) for r in range(most)])
        means = c.cumsum(0)/np.arange(1, most + 1)[:, None]
        found += [(abs(m[0]/a - 1) + abs(m[second]/b - 1), n, k + 1, m[0], m[second])
                  for k, m in enumerate(means) if k >= 4]
    _, n, runs, first, later = min(found)
    return dict(N=N, p=p, d=d, arms=arms, graphs=n, runs=runs, t=int(second), first=first,
                published_first=a, second=later, published_second=b)


def main(folder):
    "Both tables."
    torch.set_num_threads(1)
    v = pd.read_csv(Path(folder)/f"{MAIN}.csv")
    v = v[v.panel == "N=20 p=0.2 A=200 d=10"].sort_values(["algorithm", "t"])
    v[["algorithm", "t", "mean", "lower", "upper"]].to_csv(RESULTS/"released_published.csv",
                                                           index=False)
    rows = []
    for panel in PANELS:
        if (r := row(folder, *panel)) is not None:
            rows.append(r)
            print(r, flush=True)
            pd.DataFrame(rows).round(6).to_csv(RESULTS/"released_first.csv", index=False)


if __name__ == "__main__": main(sys.argv[1])
