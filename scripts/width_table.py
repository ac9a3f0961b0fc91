"""Write nbs/results/width_limit.csv: how far the tangent kernels of finite networks are from their limit.

Ten Erdős–Rényi graphs of five nodes, six widths, one to three hidden layers with the symmetric start and two with
the plain one, 40 networks each. Takes a few minutes; 03_networks reads the table and checks a few of its rows."""
from pathlib import Path

import numpy as np

from gnn_bandits.core import write_atomically
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN
from gnn_bandits.ntk import ntk

WIDTHS, SEEDS, SERIES = (64, 128, 256, 512, 1024, 2048), 40, ((1, 1), (2, 1), (3, 1), (2, 0))
TABLE = Path(__file__).parent.parent/"nbs"/"results"/"width_limit.csv"


def distance(X, L, symmetric, m, seed):
    "Frobenius distance between the tangent kernel of one network and the limit"
    h = X.h.flatten(0, 1)
    K = ntk(h @ h.T, L, normalize=False).view(len(X), X.N, len(X), X.N).mean((1, 3))
    net = LazyGNN(X.d, m, L, rng=np.random.default_rng([L, m, seed, symmetric]), symmetric=bool(symmetric))
    return float((net.tangent_kernel(X) - K).norm())


if __name__ == "__main__":
    X = GraphDomain.erdos_renyi(10, 5, 0.2, 10, np.random.default_rng(7))
    rows = [(L, s, m, seed) for L, s in SERIES for m in WIDTHS for seed in range(SEEDS)]
    lines = [",".join(map(str, r)) + f",{distance(X, *r):.6g}" for r in rows]
    write_atomically(TABLE, "\n".join(["L,symmetric,m,seed,distance", *lines]) + "\n")
