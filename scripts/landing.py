"""The runs of which the landing page shows the typical one.

    python scripts/landing.py nbs/results/landing.csv

One row for each seed with the cumulative regret of both algorithms of `gnn_bandits.watch.duel`.
Seeds that are in the table are not played again. Read by the pages `index` and `watch`.
"""
import argparse
from pathlib import Path

import torch

from gnn_bandits.core import progress_bar, read_table, write_table
from gnn_bandits.watch import duel


def row(seed):
    "Cumulative regret of both algorithms in one run."
    players, env = duel(seed)
    return dict(seed=seed) | {a.name: float(env.gaps[a.arms].sum()) for a in players}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=51)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = read_table(args.out).to_dict("records") if args.out.exists() else []
    known = {int(r["seed"]) for r in done}
    for seed in progress_bar([s for s in range(args.runs) if s not in known], desc="runs"):
        done.append(row(seed))
        write_table(args.out, done)


if __name__ == "__main__": main()
