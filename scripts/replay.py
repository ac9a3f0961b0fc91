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
from gnn_bandits.paper.figures import run_table, trained_specs
from gnn_bandits.paper.population import (ABLATION_RUNS, TUNING_COLUMNS, Studies,
                                          ablation_cells)
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.studies import REGRET_NAMES, TABLE_COLUMNS, run_study, study_table
from gnn_bandits.paper.sweep import sweep

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"
SETTING = ["lam", "beta", "random_pulls"]
TABLES = {"tuning": "tuning", "tuning_d100": "tuning", "paper_tuning": "paper_tuning",
          "population": "population", "population_d100": "population", "paper": "paper"}


def settings_in(table):
    "Selection -> algorithm -> λ, β, random pulls, as the rows of a table say."
    rows = table.dropna(subset="settings")[["settings", "algorithm", *SETTING]].drop_duplicates()
    return {name: {r["algorithm"]: tuple(r[k] for k in SETTING[:2]) + (int(r["random_pulls"]),)
                   for r in group.to_dict("records")}
            for name, group in rows.groupby("settings", sort=False)}


def studies(results, quick):
    "Name of a study, file of its table, columns, its cells."
    plan, found = Studies(".", quick), {}
    for study, file in TABLES.items():
        if not (results/f"{file}.csv.gz").exists(): continue
        table = read_table(results/f"{file}.csv.gz")
        table = table[table["d"] == (100 if study.endswith("d100") else 10)]
        if not len(table): continue
        columns = TUNING_COLUMNS if "tuning" in study else TABLE_COLUMNS
        chosen = None if "tuning" in study else settings_in(table)
        if study == "population": found = chosen
        yield study, file, columns, plan.cells(study, chosen)
    if not found or not (results/"ablation.csv.gz").exists(): return
    others = {k: v for k, v in found.items() if k != "cumulative"}
    table = read_table(results/"ablation.csv.gz")
    known = {f"{switch}: {level}" for switch, level in zip(table["switch"], table["level"])}
    cells = ablation_cells(found["cumulative"], others, plan.count(ABLATION_RUNS), **plan.size)
    cells = [replace(c, players=tuple(p for p in c.players if p.settings in known))
             for c in cells if c.m < 512]                          # wide networks are slow
    yield "ablation", "ablation", ("settings", "algorithm", "run", *REGRET_NAMES), \
        [c for c in cells if c.players]


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
    rng, parts, counts = np.random.default_rng(o.seed), list(studies(results, o.quick)), []
    rest = max(0, o.runs - 4)
    order = rng.permutation(len(parts))[:rest] if rest < len(parts) else np.arange(len(parts))
    shares = np.bincount(np.resize(order, rest), minlength=len(parts)) if parts else []
    chosen = [[one_run(p[-1], rng) for _ in range(k)] for p, k in zip(parts, shares)]
    linear = trained_specs(o.quick, panels=["linearised"])
    specs = [linear[i] for i in rng.choice(len(linear), min(4, o.runs), replace=False)]
    with tempfile.TemporaryDirectory() as folder:
        if every := [c for cells in chosen for c in cells]: run_study(every, folder, o.jobs)
        for (study, file, columns, _), cells in zip(parts, chosen):
            if not cells: continue
            new, old = study_table(folder, cells, columns), read_table(results/f"{file}.csv.gz")
            if study == "ablation": old["settings"] = old.pop("switch") + ": " + old.pop("level")
            counts.append(compare(study, new, old, 5, folder))
        store = Store(Path(folder)/"store")
        print(sweep(specs, store, o.jobs))
        new = run_table(store, specs, "linearised", ("lam", "beta", "fit", "random_pulls"))
        counts.append(compare("linearised networks", new, read_table(results/"trained.csv"), 7,
                              folder))
    same, played = map(sum, zip(*counts))
    print(f"{same} of {played} runs equal")
    sys.exit(same < played)


if __name__ == "__main__": main()
