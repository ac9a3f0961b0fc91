"""Do the confidence sets cover? Writes nbs/results/coverage.csv, which nbs/09_confidence.ipynb reads.

Usage: python scripts/coverage.py [--trained K] [--jobs J]     (K trials for each kind of noise with a trained network, about 0.2
CPU seconds each, in J processes; the table does not depend on J)
"""
import argparse, csv, io, math, sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from gnn_bandits.confidence import NOISES, Posterior, beta, clopper_pearson, rkhs_sphere, subgaussian
from gnn_bandits.core import split_rng, write_atomically
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN, forward

ARMS, NODES, FEATURES, LAYERS, WIDTH = 100, 5, 4, 2, 256
B, SIGMA, LAM, DELTA, PULLS, TRIALS, NETWORKS = 2., 0.5, 0.25, 0.1, 40, 4000, 20

def design(K, kind, rng):
    "Pulls that do not look at rewards: arms at random, or always the most uncertain one"
    post = Posterior(K, LAM)
    if kind == "random": return post.observe(rng.integers(len(K), size=PULLS), np.zeros(PULLS))
    for _ in range(PULLS): post.observe(int(post.std.argmax()), 0.)
    return post

def functions(kind, K, post, k, rng):
    "Rewards of norm B: from the whole sphere, or the one with the largest bias at the most uncertain arm"
    if kind == "sphere": return rkhs_sphere(K, B, k, rng)
    a, x = int(post.std.argmax()), torch.zeros(len(K), dtype=K.dtype)
    x[a] = 1
    own = post.arms
    x[own] -= torch.linalg.solve(K[own][:, own] + (LAM/post.counts).diag(), K[own, a])
    return (B*K @ x/(x @ K @ x).sqrt())[:, None].expand(-1, k)

def averaged(kind, post, k, rng):
    "Mean noise of each distinct arm, from one draw for every pull"
    owner = torch.repeat_interleave(torch.arange(len(post.arms)), post.counts.long())
    out = torch.zeros(len(post.arms), k, dtype=torch.float64).index_add_(0, owner, subgaussian(kind, SIGMA, (post.t, k), rng))
    return out/post.counts[:, None]

def train(net, X, post, rewards, J=80):
    "Full-batch gradient descent with Nesterov's momentum on the paper's loss; its ridge times the number of pulls is the posterior's noise variance"
    x, counts = net.embed(X[post.arms])
    share, y = (post.counts/post.t).to(x), rewards.to(x)
    ridge = (LAYERS + 1)*LAM/post.t                   # the network's kernel is L+1 times the normalised one
    top = float(torch.linalg.eigvalsh(post.K[post.arms][:, post.arms]*(post.counts[:, None]*post.counts).sqrt())[-1])
    eta, root = 1/(2*net.m*((LAYERS + 1)*top/post.t + ridge)), math.sqrt(top/LAM + 1)
    start, old = net.weights, net.weights
    weights = [W.clone().requires_grad_() for W in start]        # where gradients are taken, ahead of the iterates
    for _ in range(J):
        loss = (share*(forward(weights, x, counts) - y)**2).sum()
        grads = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            new = [W - eta*(g + 2*net.m*ridge*(W - W0)) for W, W0, g in zip(weights, start, grads)]
            for W, a, b in zip(weights, new, old): W.copy_(a + (root - 1)/(root + 1)*(a - b))
            old = new
    with torch.no_grad(): return forward(old, *net.embed(X)).double()

def row(estimator, plan, reward, noise, ratios, width):
    "One line of the table"
    hits, n = int((ratios <= width).sum()), len(ratios)
    low, high = clopper_pearson(hits, n)
    needed = float(ratios.quantile(1 - DELTA))
    return dict(estimator=estimator, design=plan, reward=reward, noise=noise, covered=hits, trials=n, low=f"{low:.4f}", high=f"{high:.4f}",
                beta=f"{width:.4f}", needed=f"{needed:.4f}", ratio=f"{width/needed:.3f}", largest=f"{float(ratios.max()):.4f}")

def trained_ratio(X, K, noise, rng):
    "The multiplier that would just have covered all arms, for one network trained on one history"
    torch.set_num_threads(1)
    net = LazyGNN(FEATURES, WIDTH, LAYERS, rng=rng)
    post = design(net.tangent_kernel(X, normalize=True), "uncertain", rng)
    f = rkhs_sphere(K, B, 1, rng)
    y = (f[post.arms] + averaged(noise, post, 1, rng))[:, 0]
    return float(((f[:, 0] - train(net, X, post, y)).abs()/post.std).max())

def main(trained, jobs):
    torch.set_num_threads(1)
    graphs, pulls, trials, nets, training = split_rng(np.random.default_rng(6), 5)
    X = GraphDomain.erdos_renyi(ARMS, NODES, 0.4, FEATURES, rng=graphs)
    K, rows = gntk(X, L=LAYERS), []
    networks = [LazyGNN(FEATURES, WIDTH, LAYERS, rng=r) for r in split_rng(nets, NETWORKS)]
    grams = [net.tangent_kernel(X, normalize=True) for net in networks]
    kernel_beta, network_beta = (beta(B, SIGMA, LAM, DELTA, ARMS, norm_factor=c) for c in (1., math.sqrt(2)))
    for plan in ("random", "uncertain"):
        for reward in ("sphere", "worst"):
            for noise in NOISES:
                post = design(K, plan, pulls)
                f = functions(reward, K, post, TRIALS, trials)
                rows.append(row("kernel", plan, reward, noise, post.worst_ratio(f, averaged(noise, post, TRIALS, trials)), kernel_beta))
                ratios = []
                for G in grams:
                    post, k = design(G, plan, pulls), TRIALS//NETWORKS
                    f = functions(reward, K, post, k, trials)
                    ratios.append(post.worst_ratio(f, averaged(noise, post, k, trials)))
                rows.append(row("linearised", plan, reward, noise, torch.cat(ratios), network_beta))
    for noise in NOISES:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            ratios = list(pool.map(trained_ratio, repeat(X), repeat(K), repeat(noise), split_rng(training, trained), chunksize=20))
        rows.append(row("trained", "uncertain", "sphere", noise, torch.tensor(ratios, dtype=torch.float64), network_beta))
        print(f"{noise}: {trained} trained networks", file=sys.stderr)
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader(), writer.writerows(rows)
    write_atomically(Path(__file__).parents[1]/"nbs/results/coverage.csv", out.getvalue())
    for r in rows: print(*r.values(), sep="\t")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=int, default=340)
    parser.add_argument("--jobs", type=int, default=1)
    main(**vars(parser.parse_args()))
