"""Write nbs/results/width_limit.csv: how far tangent kernels of finite networks are from the limit.

Ten Erdős–Rényi graphs of five nodes, six widths, one to three hidden layers with the symmetric
start and two with the plain one, 40 networks each. Takes a few minutes; nbs/04_networks.ipynb reads
the table and checks a few of its rows.
"""
from pathlib import Path

import numpy as np

from gnn_bandits.core import write_table
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN

WIDTHS, SEEDS, SERIES = (64, 128, 256, 512, 1024, 2048), 40, ((1, 1), (2, 1), (3, 1), (2, 0))
TABLE = Path(__file__).parent.parent/"nbs"/"results"/"width_limit.csv"

def distance(X, L, symmetric, m, seed):
    "Frobenius distance between the tangent kernel of one network and the limit"
    rng = np.random.default_rng([L, m, seed, symmetric])
    net = LazyGNN(X.d, m, L, rng=rng, symmetric=bool(symmetric))
    return float((net.tangent_kernel(X) - (L + 1)*gntk(X, L=L)).norm())

if __name__ == "__main__":
    X = GraphDomain.erdos_renyi(10, 5, 0.2, 10, np.random.default_rng(7))
    rows = [dict(L=L, symmetric=s, m=m, seed=seed, distance=distance(X, L, s, m, seed))
            for L, s in SERIES for m in WIDTHS for seed in range(SEEDS)]
    write_table(TABLE, rows, digits=6)
