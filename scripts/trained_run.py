"""Time one bandit run with a real network of width 2048; writes nbs/results/trained_run.json.

Beside it stands the straightforward route: materialised gradients, a diagonal uncertainty arm by
arm, one graph a step with autograd and stock Adam. It is measured on a few of its steps in the same
process, and extrapolated to as many pulls and trainings as ours. nbs/39_bench.ipynb reads the file.

Usage: python scripts/trained_run.py [--algorithm NAME]     (two minutes on two cores)
"""
import argparse, json, time
from pathlib import Path

import torch

from gnn_bandits.project.bench import machine
from gnn_bandits.core import write_atomically
from gnn_bandits.paper.experiments import RunSpec, Start
from gnn_bandits.networks import LazyGNN, forward
from gnn_bandits.paper.datasets import dataset

MOST_STEPS = 1000 # Of one training, in the authors' code
REPORT = Path(__file__).parent.parent/"nbs"/"results"/"trained_run.json"

def timed(thunk, repeats):
    "Mean seconds of a call"
    thunk()
    began = time.perf_counter()
    for _ in range(repeats): thunk()
    return (time.perf_counter() - began)/repeats

def straightforward(X, net, f):
    "Seconds for one gradient, one uncertainty and one step, each as one would first write it"
    x, counts = net.embed(X)
    weights = [W.clone().requires_grad_() for W in net.weights]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    def gradient(i=0):
        out = forward(weights, x[i:i + 1], counts[i:i + 1])
        return torch.cat([g.flatten() for g in torch.autograd.grad(out.sum(), weights)])
    g, U = gradient(), torch.full((net.p,), 0.01)
    def step():
        optimizer.zero_grad()
        (forward(weights, x[:1], counts[:1]) - f[0]).square().sum().backward()
        optimizer.step()
    def uncertainty(): return torch.sqrt(torch.sum(0.01*g*g/U/net.m)).item()
    return dict(gradient=timed(gradient, 5), uncertainty=timed(uncertainty, 20),
                step=timed(step, 30))

def main(algorithm):
    spec = RunSpec("N20_p0.2_d10", algorithm, "trained", options=dict(train_from=40))
    start, o = Start(*spec.action_set(dataset(spec.data))), spec.settings
    X, f = start.domain, start.f
    net = LazyGNN.for_domain(X, o.m, o.L, rng=spec.generator("network"))
    before = straightforward(X, net, f)
    began = time.perf_counter()
    history = spec.play(start, progress=True).history
    ours = time.perf_counter() - began
    after = straightforward(X, net, f)
    parts = {k: (before[k] + after[k])/2 for k in before}
    trainings = int((history.steps > 0).sum())        # as many as ours
    theirs = (len(X)*parts["gradient"] + trainings*MOST_STEPS*parts["step"]
              + (spec.T - o.random_pulls)*len(X)*parts["uncertainty"])
    plain = dict(parts=parts, before=before, after=after, trainings=trainings, seconds=theirs)
    report = dict(spec=json.loads(spec.to_json()), seconds=ours,
                  trainings=trainings, steps=int(history.steps.sum()),
                  regret=float(history.regret.sum()), straightforward=plain, ratio=theirs/ours,
                  machine=machine())
    write_atomically(REPORT, json.dumps(report, indent=1) + "\n")
    print(f"ours {ours:.0f} s, straightforward {theirs:.0f} s, {theirs/ours:.1f} times; {parts}")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default="GNN-PE")
    main(parser.parse_args().algorithm)
