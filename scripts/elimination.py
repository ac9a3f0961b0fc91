"""Does phased elimination keep the optimum? Writes nbs/results/elimination.csv, which nbs/12_bandits.ipynb reads.

Usage: python scripts/elimination.py [--runs K]     (a quarter of an hour on one core with the default)
"""
import argparse, csv, io
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from gnn_bandits.bandits import Start, make_algorithm, run_bandit
from gnn_bandits.confidence import rkhs_sphere
from gnn_bandits.core import split_rng, write_atomically
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.rewards import Environment

ARMS, NODES, FEATURES, WIDTH = 40, 5, 4, 256
B, SIGMA, LAM, DELTA, HORIZON = 5., 0.05, 0.0025, 0.1, 511
CASES = ("gntk", 1.), ("linearized", 1.), ("gntk", 0.1) # model, share of the theorem's beta

def domain():
    "The arms of all runs"
    return GraphDomain.erdos_renyi(ARMS, NODES, 0.3, FEATURES, np.random.default_rng(0))

def play(X, K, model, share, seed):
    "One run of the theorem's algorithm on a reward of norm B"
    reward, noise, own = split_rng(np.random.default_rng([9, seed]), 3)
    env = Environment(X, rkhs_sphere(K, B, 1, reward)[:, 0], SIGMA, rng=noise)
    start = Start(X, "graph", model, WIDTH, rng=own)
    given = dict(B=B, sigma=SIGMA, lam=LAM, delta=DELTA, horizon=HORIZON, m=WIDTH, preset="theory")
    alg = make_algorithm("GNN-PE", X, model, rng=own, start=start, **given)
    alg.policy.beta *= share
    return alg, env, run_bandit(alg, env, HORIZON)

def row(X, K, model, share, seed):
    "One line of the table"
    alg, env, history = play(X, K, model, share, seed)
    ends = [2**e - 1 for e in range(1, alg.episode + 1)]
    R = history.regret.cumsum()
    line = dict(model=model, share=share, seed=seed, beta=alg.policy.beta, survived=int(alg.active[env.best]), left=int(alg.active.sum()),
                mean_gap=float(env.gaps.mean())) | {f"R{T}": float(R[T - 1]) for T in ends}
    return {k: float(f"{v:.7g}") if isinstance(v, float) else v for k, v in line.items()}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    X = domain()
    K = gntk(X)
    rows = [row(X, K, model, share, seed) for model, share in CASES for seed in tqdm(range(runs), f"{model} {share:g}")]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader(), writer.writerows(rows)
    write_atomically(Path(__file__).parents[1]/"nbs/results/elimination.csv", out.getvalue())
