"""Play a random sample of the committed runs again, across all tables, and compare every digit.

    python scripts/replay.py --runs 48 --jobs 2

A quick answer to "did a change of the code change a result?"; `make reproduce-full` takes hours.
With --quick the small tables of `make reproduce` are looked at instead.
Exits with 1 if a run came out differently.
"""
import argparse, sys, tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.figures import Plan, run_table, trained_specs
from gnn_bandits.paper.sweep import sweep

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"
STUDIES = ("tuning_d10", "tuning_d100", "paper_tuning", "population_d10", "population_d100",
           "paper", "ablation") # Stages, each after those that it needs


def studies(plan, results):
    "Stage -> its committed table and its cells, with the settings that committed tables select."
    tables, cells = {}, {}
    for name in STUDIES:
        file, _, d = name.partition("_d")
        table = read_table(results/f"{file}.csv.gz")
        tables[name] = table[table["d"] == int(d)].reset_index(drop=True) if d else table
        stage = plan.stage(name)
        cells[name] = stage.items(plan, *(tables[n] for n in stage.needs))
    return {name: (tables[name], cells[name]) for name in STUDIES}


def one_run(cells, rng):
    "A random cell with one of its runs and three of its players."
    cell = cells[rng.integers(len(cells))]
    some = rng.choice(len(cell.players), min(3, len(cell.players)), replace=False)
    run = cell.runs[rng.integers(len(cell.runs))]
    return replace(cell, runs=(run,), players=tuple(cell.players[i] for i in some))


def compare(name, new, old, digits, folder):
    "How many rows equal committed ones in every digit, and of how many."
    new = read_table(write_table(Path(folder)/"new.csv", new, digits))
    found = pd.merge(new, old[list(new)].drop_duplicates(), how="left", indicator="side")
    same = int((found["side"] == "both").sum())                    # merged on every column
    print(f"{name:44} {same} of {len(new)} runs equal the committed ones in every digit")
    return same, len(new)


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--runs", type=int, default=48,
                     help="instances to play on again, spread over all studies, three players each")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    cli.add_argument("--seed", type=int, default=0, help="of the sample")
    cli.add_argument("--quick", action="store_true", help="the small tables")
    o = cli.parse_args()
    results = RESULTS/"quick" if o.quick else RESULTS
    rng, counts, rest = np.random.default_rng(o.seed), [], max(0, o.runs - 4)
    linear = trained_specs(o.quick, panels=["linearised"])
    specs = [linear[i] for i in rng.choice(len(linear), min(4, o.runs), replace=False)]
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder)/"store", o.quick)
        found = studies(plan, results)
        order = rng.permutation(len(found))[:rest] if rest < len(found) else np.arange(len(found))
        shares = np.bincount(np.resize(order, rest), minlength=len(found))
        for (name, (old, cells)), share in zip(found.items(), shares):
            narrow = [c for c in cells if c.m < 512]               # wide networks are slow
            if not (some := [one_run(narrow, rng) for _ in range(share)]): continue
            print(sweep(some, plan.store, o.jobs))
            stage = plan.stage(name)
            new = stage.table(plan, some, *(None for _ in stage.needs))
            counts.append(compare(name, new, old, 5, folder))
        print(sweep(specs, plan.store, o.jobs))
        new = run_table(plan.store, specs, "linearised", ("lam", "beta", "fit", "random_pulls"))
        counts.append(compare("linearised networks", new, read_table(results/"trained.csv"), 7,
                              folder))
    same, played = map(sum, zip(*counts))
    print(f"{same} of {played} runs equal")
    sys.exit(same < played)


if __name__ == "__main__": main()
