"""Write nbs/results/published.csv: the end points of the paper's regret figures, as cited numbers.

Usage: python scripts/published_table.py FOLDER     (of digitised curves: figure, panel, algorithm, t, mean, lower, upper)

The curves are those of the authors' vector plots. The shaded band there is a tenth of a standard deviation on either side
(a fifth in the hyper-parameter figure), so the standard error follows from it and from the number of runs.
"""
import csv, math, re, sys
from pathlib import Path

import numpy as np

from gnn_bandits.core import write_atomically

FIGURES = {"performance": "regret_0.2p_10d_20N_labeled", "domains": "benchmark_all_10d", "size": "paper_scalability2_10d_labeled",
           "density": "paper_density2_all_10d_labeled", "hyper": "new_paper_hyperparam_400T_5N_10d_0.05p_200actions"}
OUT = Path(__file__).parent.parent/"nbs"/"results"/"published.csv"

def curves(path):
    "panel -> algorithm -> (points, 4) array of t, mean, lower, upper"
    found = {}
    with path.open() as f:
        for r in csv.DictReader(f):
            found.setdefault(r["panel"], {}).setdefault(r["algorithm"], []).append([float(r[k]) for k in ("t", "mean", "lower", "upper")])
    return {panel: {name: np.array(sorted(c)) for name, c in group.items()} for panel, group in found.items()}

def together(a, b):
    "Last tabulated step up to which two curves are one, to half a percent; -1 if they start apart"
    if len(a) != len(b): return -1
    same = np.abs(a[:, 1] - b[:, 1]) <= 0.005*b[:, 1]
    return int(a[same.argmin() - 1, 0]) if same[0] and not same.all() else int(a[-1, 0]) if same.all() else -1

def rows(name, folder):
    "One line for each curve of a figure"
    for panel, group in curves(folder/f"{FIGURES[name]}.csv").items():
        field = dict(re.findall(r"(\w+)=(\S+)", panel))
        runs = 5 if name == "hyper" else 10 if field["A"] == "1000" else 20
        for algorithm, c in group.items():
            t, mean, low, high = c.T
            std = (high[-1] - low[-1])/2/(0.2 if name == "hyper" else 0.1)
            share = {f"with_{other}": together(c, group[other]) if other in group else "" for other in ("GNN-PE", "NN-UCB")}
            yield dict(figure=name, N=field["N"], p=field["p"], arms=field["A"], d=field["d"], lam=field.get("lambda", ""),
                       beta=field.get("beta", ""), algorithm=algorithm, T=round(t[-1]) + 1, runs=runs, first=f"{mean[0]:.5g}",
                       half=f"{np.interp(t[-1]/2, t, mean):.5g}", final=f"{mean[-1]:.5g}", se=f"{std/math.sqrt(runs):.4g}", **share)

if __name__ == "__main__":
    if len(sys.argv) != 2: sys.exit(__doc__)
    table = [r for name in FIGURES for r in rows(name, Path(sys.argv[1]))]
    lines = [",".join(table[0])] + [",".join(map(str, r.values())) for r in table]
    write_atomically(OUT, "\n".join(lines) + "\n")
