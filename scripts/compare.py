"""Do results agree with the committed tables?

    python scripts/compare.py NEW COMMITTED            table by table: NEW comes from `gnn_bandits
                                                       reproduce --out NEW`, COMMITTED is
                                                       nbs/results, or nbs/results/quick
    python scripts/compare.py --runs 48 --jobs 2       a random sample of the committed runs, across
                                                       all tables, played again in every digit

The second is a quick answer to "did a change of the code change a result?"; `make reproduce-full`
takes hours. With --quick it looks at the small tables of `make reproduce`. Single rows of other
tables are played again by `scripts/tables.py NAME --again`. Exits with 1 if something differs.
"""
import argparse, sys, tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.figures import FIGURES, Plan, run_table, trained_specs
from gnn_bandits.paper.sweep import sweep

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"
STUDIES = ("tuning_d10", "tuning_d100", "paper_tuning", "population_d10", "population_d100",
           "paper", "ablation") # Stages, each after those that it needs
# Relative, one unit of the last digit or more: sums round differently on other machines
TOLERANCE = {".csv": 1e-5, ".gz": 1.1e-4} # Seven digits; five


# Whole tables

def distance(a, b):
    "Relative difference of two entries; infinite if they are different words"
    if a == b: return 0.
    try: x, y = float(a), float(b)
    except ValueError: return float("inf")
    return abs(x - y)/max(abs(x), abs(y), 1e-12)


def compare_table(new, old):
    "What is to be said of one table, and whether it is good"
    if not new.exists(): return "not there", False
    a, b = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (new, old))
    if len(a) != len(b) or list(a) != list(b):
        return f"{len(a)} rows and committed {len(b)}, or other columns", False
    apart = [max(map(distance, x, y)) for x, y in zip(a.values, b.values)]
    off, most = sum(d > TOLERANCE[old.suffix] for d in apart), max(apart, default=0)
    size = f"largest relative difference {most:.1e}" if most else "every digit equal"
    return f"{len(b)} rows, {off} differ, {size}", not off


def folders(new, old):
    "Print what is to be said of all tables; the exit code"
    tables = dict.fromkeys([*(n.partition("_d")[0] for n in STUDIES), "paper_curves"])
    names = [*(f"{n}.csv" for n in FIGURES), *(f"{n}.csv.gz" for n in tables)]
    found = {n: compare_table(new/n, old/n) for n in names if (old/n).exists()}
    for name, (said, _) in found.items(): print(f"{name:20} {said}")
    if all(good for _, good in found.values()): return 0
    print("another processor or another version of torch rounds differently, and one changed "
          "choice of an arm changes all that follow; constraints.txt has the versions used")
    return 1


# A sample of runs

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


def compare_rows(name, new, old, digits, folder):
    "How many rows equal committed ones in every digit, and of how many."
    new = read_table(write_table(Path(folder)/"new.csv", new, digits))
    words = [c for c in new if pd.api.types.is_numeric_dtype(new[c])
             and not pd.api.types.is_numeric_dtype(old[c])]        # words elsewhere in the column
    old = old.assign(**{c: pd.to_numeric(old[c], errors="coerce") for c in words})
    found = pd.merge(new, old[list(new)].drop_duplicates(), how="left", indicator="side")
    same = int((found["side"] == "both").sum())                    # merged on every column
    print(f"{name:44} {same} of {len(new)} runs equal the committed ones in every digit")
    return same, len(new)


def replay(runs, jobs, seed, quick):
    "Play some runs again; the exit code"
    results = RESULTS/"quick" if quick else RESULTS
    rng, counts, rest = np.random.default_rng(seed), [], max(0, runs - 4)
    linear = trained_specs(quick, panels=["linearised"])
    specs = [linear[i] for i in rng.choice(len(linear), min(4, runs), replace=False)]
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder)/"store", quick)
        found = studies(plan, results)
        order = rng.permutation(len(found))[:rest] if rest < len(found) else np.arange(len(found))
        shares = np.bincount(np.resize(order, rest), minlength=len(found))
        for (name, (old, cells)), share in zip(found.items(), shares):
            narrow = [c for c in cells if c.m < 512]               # wide networks are slow
            if not (some := [one_run(narrow, rng) for _ in range(share)]): continue
            print(sweep(some, plan.store, jobs))
            stage = plan.stage(name)
            new = stage.table(plan, some, *(None for _ in stage.needs))
            counts.append(compare_rows(name, new, old, 5, folder))
        print(sweep(specs, plan.store, jobs))
        new = run_table(plan.store, specs, "linearised", ("lam", "beta", "fit", "random_pulls"))
        counts.append(compare_rows("linearised networks", new, read_table(results/"trained.csv"), 7,
                                   folder))
    same, played = map(sum, zip(*counts))
    print(f"{same} of {played} runs equal")
    return int(same < played)


def main(argv=None):
    "The exit code"
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("folders", nargs="*", type=Path, help="NEW COMMITTED; none: play runs again")
    cli.add_argument("--runs", type=int, default=48,
                     help="instances to play on again, spread over all studies, three players each")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    cli.add_argument("--seed", type=int, default=0, help="of the sample")
    cli.add_argument("--quick", action="store_true", help="the small tables")
    o = cli.parse_args(argv)
    if not o.folders: return replay(o.runs, o.jobs, o.seed, o.quick)
    if len(o.folders) != 2 or not all(f.is_dir() for f in o.folders):
        cli.error("expected two folders of tables, NEW and COMMITTED")
    return folders(*o.folders)


if __name__ == "__main__": sys.exit(main())
