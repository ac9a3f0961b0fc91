"""Training from the last weights against training from the start: steps, and where both end.

    python scripts/warm_start.py nbs/results/warm_start.csv [RUNS]

A run is a fresh domain of 200 graphs and a fresh reward. Graphs are measured at random, and after
every twentieth value the network is trained in three ways: from the start, from the start with the
graphs in another order, and from the weights of twenty values ago; each with the paper's
single-graph Adam ("text") and with a learning rate that knows the width ("scaled"). One row for
each: the steps, and the root mean square distance of its predictions to the first way and to the
truth, in standard deviations of the reward.
"""
import sys

import numpy as np
import torch

from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN
from gnn_bandits.rewards import sample_reward
from gnn_bandits.training import ADAM, adam

WIDTH, VALUES, NOISE = 512, range(20, 101, 20), 0.01


def rows(run, options):
    "All rows of one run with one kind of training."
    graphs, reward, pulls, weights, *orders = np.random.default_rng([9, run]).spawn(7)
    X = GraphDomain.erdos_renyi(200, 20, 0.2, 10, graphs)
    f = sample_reward(X, reward).numpy()
    arms = pulls.integers(200, size=VALUES[-1])
    y = f[arms] + NOISE*pulls.standard_normal(len(arms))
    net, last, out = LazyGNN(10, m=WIDTH, rng=weights), None, []
    far = lambda a, b: float(np.sqrt(np.mean((a - b)**2))/f.std())
    for t in VALUES:
        train = lambda rng, start=None: adam(net, X, arms[:t], y[:t], ADAM[options], rng=rng,
                                             start=start)
        fits = {"from the start": train(orders[0]), "another order": train(orders[1]),
                "from the last weights": train(orders[2], last)}
        last = fits["from the last weights"]
        says = {k: v(X).double().numpy() for k, v in fits.items()}
        out += [dict(options=options, run=run, t=t, way=k, steps=v.steps, reason=v.reason,
                     apart=far(says[k], says["from the start"]), error=far(says[k], f))
                for k, v in fits.items()]
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    todo = [(run, options) for options in ("scaled", "text") for run in range(runs)]
    write_table(sys.argv[1], [r for what in progress_bar(todo) for r in rows(*what)], digits=5)
