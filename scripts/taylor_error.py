"Table of how far trained networks are from their linearisation: python scripts/taylor_error.py"
import csv, math
from pathlib import Path

import numpy as np
import torch

from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN, forward
from gnn_bandits.training import Descent, gradient_descent, linearized_fit

WIDTHS, SEEDS, OUT = (64, 128, 256, 512, 1024, 2048), 8, Path(__file__).parent.parent/"nbs"/"results"/"taylor_error.csv"


def row(m, seed):
    X = GraphDomain.erdos_renyi(30, 5, 0.2, 10, np.random.default_rng(0))
    arms, y = np.arange(12), np.random.default_rng(1).standard_normal(12)
    net, options = LazyGNN(10, m=m, rng=np.random.default_rng([m, seed]), dtype=torch.float64), Descent(lam=0.01, J=100)
    done = gradient_descent(net, X, arms, y, options)
    shift = tuple(a - b for a, b in zip(done.net.weights, net.weights))
    x, counts = net.embed(X)
    first_order = torch.func.jvp(lambda *w: forward(list(w), x, counts), tuple(net.weights), shift)[1]
    linear = linearized_fit(net.tangent_kernel(X), arms, y, options)
    rms = lambda v: float(v.square().mean().sqrt())
    return dict(m=m, seed=seed, movement=math.sqrt(sum(float(s.square().sum()) for s in shift)),
                remainder=rms(done(X) - first_order), distance=rms(done(X) - linear.mean))


if __name__ == "__main__":
    rows = [row(m, seed) for m in WIDTHS for seed in range(SEEDS)]
    with OUT.open("w", newline="") as f:
        writer = csv.DictWriter(f, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: v if isinstance(v, int) else f"{v:.9g}" for k, v in r.items()} for r in rows)
