"""Play a random sample of the committed runs again, across all tables, and compare every digit.

    python scripts/replay.py --runs 48 --jobs 2

A quick answer to "did a change of the code change a result?"; `make reproduce-full` takes hours.
Exits with 1 if a run came out differently.
"""
import argparse, sys, tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.figures import (REGRET_PANELS, TRAINED_SWITCHES, ablation_specs,
                                       ablation_switches, figure_specs, hyper_table, run_table)
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.sweep import sweep

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
SETTING = ("lam", "beta", "fit", "random_pulls")


def panels():
    "Name of a table, name of a panel of it, its runs, the function that makes its rows."
    yield "hyper", "hyper", figure_specs("hyper"), hyper_table
    for panel, figure in REGRET_PANELS.items():
        if panel == "trained": continue               # minutes a run; the ablation has them
        make = lambda store, specs, p=panel: run_table(store, specs, p)
        yield "regret", panel, figure_specs(figure), make
    for switch in ablation_switches():
        if switch in TRAINED_SWITCHES: continue
        yield "ablation", switch, ablation_specs(switch=switch), \
            lambda store, specs, p=switch: run_table(store, specs, p, SETTING)


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--runs", type=int, default=48,
                     help="runs to play again, spread over all panels")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    cli.add_argument("--seed", type=int, default=0, help="of the sample")
    o = cli.parse_args()
    rng, parts = np.random.default_rng(o.seed), list(panels())
    shares = np.bincount(np.arange(o.runs) % len(parts), minlength=len(parts))
    chosen = [[specs[i] for i in rng.choice(len(specs), k, replace=False)]
              for (_, _, specs, _), k in zip(parts, shares)]
    with tempfile.TemporaryDirectory() as folder:
        store, wrong, played = Store(Path(folder)/"store"), 0, 0
        print(sweep([s for c in chosen for s in c], store, o.jobs))
        for (table, panel, _, rows), specs in zip(parts, chosen):
            if not specs: continue
            new = read_table(write_table(Path(folder)/"new.csv", rows(store, specs)))
            old = read_table(RESULTS/f"{table}.csv")
            found = pd.merge(new, old[old["panel"] == panel], how="left", indicator="side")
            # merged on every column: every digit agrees
            same = int((found["side"] == "both").sum())
            played, wrong = played + len(new), wrong + len(new) - same
            print(f"{table:9} {panel:32} {same} of {len(new)} runs equal the committed ones "
                  "in every digit")
    print(f"{played - wrong} of {played} runs equal")
    sys.exit(bool(wrong))


if __name__ == "__main__": main()
