"""Write nbs/results/reward_remainder.csv: what explicit features miss between different graphs.

For each of the paper's nine domains with d = 10 and for degrees 3 to 6: the covariance between different graphs that
the features leave out, relative to the mean prior variance after the common mean of the domain is taken away. Over all
pairs of 200 graphs (rms, largest), and over the 200 closest pairs of 10,000 graphs (closest). `gap` and `gap_max` are
the mean and the largest of what is left out of the variances of all these graphs. Takes a few minutes."""
import csv
from pathlib import Path

import numpy as np
import torch

from gnn_bandits.gntk import GNTKFeatures, gntk, gntk_diag
from gnn_bandits.ntk import ntk
from gnn_bandits.rewards import DatasetSpec

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"reward_remainder.csv"
DEGREES = (3, 4, 5, 6)


def closest_pairs(X, k):
    "The k pairs of graphs whose mean node features are closest, by the cosine of these means"
    z = torch.nn.functional.normalize(X.h.mean(1), dim=1).float()
    best = []
    for i in range(0, len(z), 1000):
        c = (z[i:i + 1000] @ z.T).masked_fill_(torch.arange(len(z)) <= torch.arange(i, min(i + 1000, len(z)))[:, None], -1)
        top = c.flatten().topk(k)
        best += zip(top.values.tolist(), (i + top.indices//len(z)).tolist(), (top.indices % len(z)).tolist())
    return np.array([(a, b) for _, a, b in sorted(best, reverse=True)[:k]]).T


def rows(N, p, graphs=200, pairs=200):
    "The rows of one domain"
    X = DatasetSpec(N, p, 10).graphs()
    few, (a, b) = X[:graphs], closest_pairs(X, pairs)
    K, off = gntk(few), ~torch.eye(graphs, dtype=bool)
    variance = float((K.diagonal() - K.mean(1)).mean())
    near = torch.stack([ntk((X.h[i] @ X.h[j].T).clamp(-1, 1), 2).mean() for i, j in zip(a, b)])
    for D in DEGREES:
        F = GNTKFeatures(10, 2, D)
        f, fa, fb = F(few), F(X[a]), F(X[b])
        r = (K - f @ f.T)[off]
        gap = torch.cat([gntk_diag(G) - (v*v).sum(1) for G, v in ((few, f), (X[a], fa), (X[b], fb))])
        closest = (near - (fa*fb).sum(1)).abs().max()
        values = dict(gap=gap[:graphs].mean(), gap_max=gap.max(), rms=r.pow(2).mean().sqrt(), largest=r.abs().max(), closest=closest)
        yield dict(N=N, p=p, degree=D, features=len(F), variance=f"{variance:.4f}", **{k: f"{float(v)/variance:.3e}" for k, v in values.items()})


if __name__ == "__main__":
    table = [r for N in (5, 20, 100) for p in (0.05, 0.2, 0.95) for r in rows(N, p)]
    with TABLE.open("w", newline="") as f:
        out = csv.DictWriter(f, list(table[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(table)
