"""Write nbs/results/published.csv: the end points of the paper's regret figures, as cited numbers.

Usage: python scripts/published_table.py FOLDER
(FOLDER has the digitised curves: panel, algorithm, t, mean, lower, upper; see nbs/34_figures.ipynb)
"""
import math, re, sys
from pathlib import Path

import numpy as np

from gnn_bandits.core import read_table, write_table

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"published.csv"
PUBLISHED = {"performance": "regret_0.2p_10d_20N_labeled", "domains": "benchmark_all_10d",
             "size": "paper_scalability2_10d_labeled", "density": "paper_density2_all_10d_labeled",
             "hyper": "new_paper_hyperparam_400T_5N_10d_0.05p_200actions"} # Files of the curves


def last_common_step(a, b):
    "Last tabulated step up to which two curves are one, to half a percent; -1 if they start apart."
    if len(a) != len(b): return -1
    same = np.abs(a[:, 1] - b[:, 1]) <= 0.005*b[:, 1]
    if same.all(): return int(a[-1, 0])
    return int(a[same.argmin() - 1, 0]) if same[0] else -1


def published_rows(
    name:str, # A key of `PUBLISHED`
    folder:str|Path, # Of digitised curves: panel, algorithm, t, mean, lower, upper
)->list[dict]: # A row for each curve, numbers as text of five digits
    "The beginning, the middle and the end of the published curves of one figure."
    curves = read_table(Path(folder)/f"{PUBLISHED[name]}.csv", "it is not distributed")
    columns, rows = ["t", "mean", "lower", "upper"], []
    for panel, group in curves.groupby("panel", sort=False):
        of = {algorithm: c.sort_values(columns)[columns].to_numpy(float)
              for algorithm, c in group.groupby("algorithm", sort=False)}
        field = dict(re.findall(r"(\w+)=(\S+)", panel))
        runs = 5 if name == "hyper" else 20 if field["A"] == "200" else 10
        for algorithm, c in of.items():
            t, mean, low, high = c.T
            std = (high[-1] - low[-1])/2/(0.2 if name == "hyper" else 0.1)
            common = {f"with_{other}": last_common_step(c, of[other]) if other in of else ""
                      for other in ("GNN-PE", "NN-UCB")}
            rows.append(dict(
                figure=name, N=field["N"], p=field["p"], arms=field["A"], d=field["d"],
                lam=field.get("lambda", ""), beta=field.get("beta", ""), algorithm=algorithm,
                T=round(t[-1]) + 1, runs=runs, first=f"{mean[0]:.5g}",
                half=f"{np.interp(t[-1]/2, t, mean):.5g}", final=f"{mean[-1]:.5g}",
                se=f"{std/math.sqrt(runs):.4g}", **common))
    return rows


if __name__ == "__main__":
    if len(sys.argv) != 2: sys.exit(__doc__)
    write_table(TABLE, [row for name in PUBLISHED for row in published_rows(name, sys.argv[1])])
