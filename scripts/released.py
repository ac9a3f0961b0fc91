"""Play runs of the released recipe, or of one that differs from it in some ingredients.

One finished run is one small file, which appears complete or not at all; a long run writes a
checkpoint every minute. So the program can be stopped at any time and continues where it was:

    python scripts/released.py --runs 20 --m 512 --out runs
    python scripts/released.py --runs 20 --m 512 --out runs --recipe training training+values
    python scripts/released.py --runs 3 --m 2048 --out runs --algorithms GNN-UCB NN-UCB
    python scripts/released.py --table --out runs       # only writes the tables

The games that say most about the plotted regret come first in this order:

    --which 16 7 9 19 14 10 12 5 3 18 17 13 8 2 6 11 0 1 4 15
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.core import write_atomically, write_table
from gnn_bandits.paper.algorithms import PAPER_ALGORITHMS
from gnn_bandits.paper.released import (REGRETS, recipe_from, released_data, released_game,
                                        released_run, run_record)

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"
THIN = 20  # steps between two points of a committed curve


def path_of(out, recipe, m, algorithm, run):
    "The file of one run."
    return out/f"{recipe}_m{m}_{algorithm}_{run:03}.json"


def play(out, recipe, m, algorithm, run, data):
    "One run, from its checkpoint if there is one, and its file."
    path, chosen = path_of(out, recipe, m, algorithm, run), recipe_from(recipe)
    if chosen.reward == "redrawn": data = released_data(seed=10_000 + run)
    game = released_game(data, run, chosen)
    checkpoint = path.with_suffix(".part")
    done = released_run(game, algorithm, chosen, m, checkpoint)
    row, curves = run_record(game, done)
    row = dict(recipe=recipe, m=m, algorithm=algorithm, run=run) | row
    write_atomically(path, json.dumps(dict(row=row, curves=np.round(curves, 6).tolist())))
    checkpoint.unlink(missing_ok=True)
    return row


def tables(out, results=RESULTS):
    "One row a run, and the mean curves of each recipe, width and algorithm."
    runs = [json.loads(p.read_text()) for p in sorted(out.glob("*.json"))]
    if not runs: raise SystemExit(f"expected finished runs in {out}, found none")
    keys = ["recipe", "m", "algorithm"]
    rows = pd.DataFrame([r["row"] for r in runs]).sort_values([*keys, "run"])
    write_table(results/"released.csv", rows)
    curves = {}
    for r in runs: curves.setdefault(tuple(r["row"][k] for k in keys), []).append(r["curves"])
    at, table = [0, 8, *range(THIN - 1, len(runs[0]["curves"][0]), THIN)], []
    for key, values in sorted(curves.items()):
        v = np.array(values)[:, :, at]
        se = v.std(0, ddof=1)/np.sqrt(len(v)) if len(v) > 1 else np.full(v.shape[1:], np.nan)
        table += [dict(zip(keys, key)) | dict(value=name, t=t + 1, mean=v.mean(0)[i, j],
                                              se=se[i, j], runs=len(v))
                  for i, name in enumerate(REGRETS) for j, t in enumerate(at)]
    write_table(results/"released_curves.csv", table, digits=5)
    print(f"{len(rows)} runs in {results/'released.csv'}")


def main():
    "Play what is missing."
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=["released"],
                        help="ingredients that are ours, joined by +, such as training+values")
    parser.add_argument("--m", type=int, default=2048, help="width")
    parser.add_argument("--runs", type=int, default=20, help="number of runs")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--which", type=int, nargs="+", help="numbers of the runs, in this order")
    parser.add_argument("--algorithms", nargs="+", default=list(PAPER_ALGORITHMS))
    parser.add_argument("--out", type=Path, required=True, help="folder for the finished runs")
    parser.add_argument("--until", default="", help="begin no run after this time, such as 20:05")
    parser.add_argument("--table", action="store_true", help="only write the tables")
    args = parser.parse_args()
    if args.table: return tables(args.out)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # decayed moments of Adam: tiny numbers would only be slow
    args.out.mkdir(parents=True, exist_ok=True)
    which = args.which or range(args.first, args.first + args.runs)
    jobs = [(recipe_from(r).name, args.m, a, run) for r in args.recipe for run in which
            for a in args.algorithms]
    jobs = [j for j in jobs if not path_of(args.out, *j).exists()]
    data, began = released_data(), time.time()
    for i, job in enumerate(jobs):
        if args.until and time.strftime("%H:%M") >= args.until: break
        row = play(args.out, *job, data)
        left = (time.time() - began)/(i + 1)*(len(jobs) - i - 1)
        print(f"{i + 1}/{len(jobs)} {job[0]} m={job[1]} {job[2]} run {job[3]}: best observed "
              f"{row['best_observed_regret']:.1f}, regret {row['regret']:.1f}, "
              f"{row['steps']} steps, {row['seconds']:.0f} s; about {left/60:.0f} min left",
              flush=True)


if __name__ == "__main__":
    main()
