"""Write nbs/results/reward_remainder.csv: what explicit features miss between different graphs.

For each of the paper's domains, degrees 3 to 6 where d = 10 and 2 to 3 where d = 100: the covariance between different graphs that
the features leave out, relative to the mean prior variance after the common mean of the domain is taken away. Over all
pairs of 200 graphs (rms, largest), and over the 200 closest pairs of 10,000 graphs (closest). `gap` and `gap_max` are
the mean and the largest of what is left out of the variances of all these graphs. No features are formed: by the addition
theorem their products are Legendre polynomials of the cosines between nodes. Takes a few minutes."""
import csv
from pathlib import Path

import numpy as np
import torch

from gnn_bandits.core import in_threads
from gnn_bandits.gntk import GNTKFeatures, gntk, harmonic_count, legendre_stack
from gnn_bandits.ntk import ntk
from gnn_bandits.rewards import DATASETS

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"reward_remainder.csv"
DEGREES = {10: (3, 4, 5, 6), 100: (2, 3)}


def closest_pairs(X, k):
    "The k pairs of graphs whose mean node features are closest, by the cosine of these means"
    z = torch.nn.functional.normalize(X.h.mean(1), dim=1).float()
    best = []
    for i in range(0, len(z), 1000):
        c = (z[i:i + 1000] @ z.T).masked_fill_(torch.arange(len(z)) <= torch.arange(i, min(i + 1000, len(z)))[:, None], -1)
        top = c.flatten().topk(k)
        best += zip(top.values.tolist(), (i + top.indices//len(z)).tolist(), (top.indices % len(z)).tolist())
    return np.array([(a, b) for _, a, b in sorted(best, reverse=True)[:k]]).T


def products(left, right, d, D):
    "Products of the features of degree 0 to D between two lists of graphs of one size, a row for each degree of truncation"
    lam = GNTKFeatures(d, 2, D).eigenvalues
    terms = torch.tensor([lam[r]*harmonic_count(d, r) for r in range(D + 1)])
    each = lambda x: torch.stack([p.view(len(x), len(right), -1).mean((0, 2)) for p in legendre_stack(d, D, x @ right.flatten(0, 1).T)])
    return (terms[:, None, None]*torch.stack(list(in_threads(each, left)), 1)).cumsum(0)


def rows(spec, graphs=200, pairs=200):
    "The rows of one domain"
    X = spec.graphs()
    few, (a, b) = X[:graphs], closest_pairs(X, pairs)
    K, off, D = gntk(few), ~torch.eye(graphs, dtype=bool), max(DEGREES[spec.d])
    variance = float((K.diagonal() - K.mean(1)).mean())
    left_out = K - products(few.h, few.h, spec.d, D)
    near = torch.stack([ntk((X.h[i] @ X.h[j].T).clamp(-1, 1), 2).mean() - products(X.h[[i]], X.h[[j]], spec.d, D)[:, 0, 0] for i, j in zip(a, b)], 1)
    gaps = {D: torch.cat([GNTKFeatures(spec.d, 2, D).gap(G) for G in (few, X[a], X[b])]) for D in DEGREES[spec.d]}
    for D, gap in gaps.items():
        r = left_out[D][off]
        values = dict(gap=gap[:graphs].mean(), gap_max=gap.max(), rms=r.pow(2).mean().sqrt(), largest=r.abs().max(), closest=near[D].abs().max())
        yield dict(N=spec.N, p=spec.p, d=spec.d, degree=D, features=len(GNTKFeatures(spec.d, 2, D)), variance=f"{variance:.4f}",
                   **{k: f"{float(v)/variance:.3e}" for k, v in values.items()})


if __name__ == "__main__":
    specs = sorted(DATASETS.values(), key=lambda s: (s.d, s.N, s.p))
    table = [r for spec in specs for r in rows(spec)]
    with TABLE.open("w", newline="") as f:
        out = csv.DictWriter(f, list(table[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(table)
