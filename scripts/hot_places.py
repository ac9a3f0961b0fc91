"""Where the processor time of the reproduction goes, and what bounds each place.

    python scripts/hot_places.py [OUT]

Plays one run of every kind of cell in one process on one thread, with few players of each kind,
takes processor time (others may use the machine), and multiplies by the number of runs and players
of the plan. Writes nbs/results/hot_places.csv: study, kind, place, seconds of the whole plan, and
the seconds that multiply-adds or bytes alone would take at rates measured in the same process.
The arms of the paper's protocol are drawn fresh here: its data sets of 10,000 graphs, made once,
are left out. So are real networks.
"""
import sys, time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import replay
from gnn_bandits.core import one_thread, write_table
from gnn_bandits.paper.figures import Plan
from gnn_bandits.paper.studies import Instance, arms_of, fresh_reward, kernels_of, play

FEW = 2 # Players of each kind that are played


def seconds_of(f, *args):
    "What a call returns, and its processor time."
    began = time.process_time()
    found = f(*args)
    return found, time.process_time() - began


def rates():
    "Multiply-adds a second in single and double precision, bytes a second from memory and cache."
    best = lambda f, k=5: min(seconds_of(f)[1] for _ in range(k))
    n, big, small = 1024, torch.ones(2**25), torch.ones(2**15)
    a = torch.ones(n, n)
    b = a.double()
    copied = torch.empty_like(small)
    return dict(single=n**3/best(lambda: a @ a), double=n**3/best(lambda: b @ b),
                memory=4*2**25/best(lambda: big.sum()),
                cache=8*2**15*200/best(lambda: [copied.copy_(small) for _ in range(200)]))


def kind_of(player):
    "Players of one kind take the same time, roughly."
    if player.uncertainty == "diagonal": return "plays with the diagonal"
    return "plays of Thompson sampling" if player.policy == "TS" else "other plays"


def kernel_floor(c, r):
    "Seconds that the multiply-adds of both kernels take at the rate of a matrix product."
    vector = c.arms**2/2*c.N*c.d/r["double"]
    if c.m: return 2*c.arms*c.N*c.m**2/r["single"] + kernel_floor(replace(c, m=0), r)
    return (c.arms*c.N)**2/2*(c.d + 24)/r["double"] + vector      # 24 terms of a polynomial


def play_floor(instance, player, path, r):
    "Seconds that the bytes of one run take: columns of distinct arms, or all squares."
    n, T = len(instance), instance.T
    if player.uncertainty == "diagonal":
        squares = instance.networks[player.inputs].diagonal(player.lam).squares
        return T*squares.numel()*squares.itemsize/r["memory"]
    seen = set()
    touched = sum(len(seen) for a in path[0] if not seen.add(int(a)))
    drawn = touched/2 + T if player.policy == "TS" else 0.        # columns are read once more
    return 16*n*(touched + drawn)/r["cache"]


def sample(c, r):
    "Place -> seconds of one run of the cell with all its players, and their floor."
    c, out = replace(c, protocol="population"), defaultdict(lambda: np.zeros(2))
    (domain, _), made = seconds_of(arms_of, c, c.runs[0])
    rng = np.random.default_rng(0)
    (K, nets), took = seconds_of(kernels_of, domain, c.m, rng.spawn(1)[0])
    out["kernels"] += took, kernel_floor(c, r)
    f, drawn = seconds_of(fresh_reward, domain, K["graph"], c.origin(c.runs[0]))
    out["graphs and rewards"] += made + drawn, 0.
    instance, players = Instance(K, f, rng, c.noise_std, c.T, nets), defaultdict(list)
    for p in c.players: players[kind_of(p)].append(p)
    if "plays of Thompson sampling" in players:
        took = seconds_of(lambda: instance.prior_draws)[1]
        n = len(instance)
        out["plays of Thompson sampling"] += took, 2*(c.T*n*n + n**3/3)/r["double"]
    for kind, some in players.items():
        picked = [some[i] for i in np.linspace(0, len(some) - 1, min(FEW, len(some))).astype(int)]
        for p in picked:
            path, took = seconds_of(play, instance, p)
            floor = play_floor(instance, p, path, r)
            out[kind] += np.array([took, floor])*len(some)/len(picked)
    return out


def plan():
    "Study and cells of the whole reproduction, with the settings of the committed tables."
    for name, (_, cells) in replay.studies(Plan("."), replay.RESULTS).items():
        yield name.removesuffix("_d10"), cells


def main(out):
    torch.set_num_threads(1)
    r, rows = rates(), []
    for study, cells in plan():
        name = lambda c: (c.N, c.d, c.m, c.arms, c.T, len(c.players))
        runs, one = Counter(), {}
        for c in cells:
            runs[name(c)] += len(c.runs)
            one.setdefault(name(c), c)
        if not rows: sample(next(iter(one.values())), r)          # compiles
        for key, c in one.items():
            for place, (took, floor) in sample(c, r).items():
                rows.append(dict(study=study, N=c.N, d=c.d, m=c.m, arms=c.arms, runs=runs[key],
                                 players=len(c.players), place=place,
                                 seconds=took*runs[key], floor=floor*runs[key]))
            print(study, key, flush=True)
    write_table(out, pd.DataFrame(rows), 4)
    print(pd.DataFrame(rows).groupby("place")[["seconds", "floor"]].sum().round(0))


if __name__ == "__main__":
    with one_thread(): main(Path(sys.argv[1]) if sys.argv[1:] else replay.RESULTS/"hot_places.csv")
