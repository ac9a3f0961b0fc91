"""How many runs of a reproduction equal the committed ones in every digit, study by study.

    python scripts/compare_cells.py STORE [OUT]

STORE is the folder `store` of `gnn_bandits reproduce --out …`, which need not be finished: cells
that are on disk are compared. Writes nbs/results/regenerated.csv: study, cells finished, cells of
the plan, runs compared, runs that are equal in all digits of the table, and the largest change of
an algorithm's mean regret over these runs, in its standard errors.
"""
import sys, tempfile
from pathlib import Path

import pandas as pd

import replay
from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.studies import REGRET_NAMES, cell_file, study_table

WHO = ("protocol", "N", "p", "d", "arms", "T", "run", "settings", "algorithm", "lam", "beta",
       "random_pulls") # What tells the rows of a table apart


def compare(new, old):
    "Runs, equal ones, and the largest change of a mean in standard errors."
    keys = [k for k in WHO if k in new]
    both = new.merge(old.drop_duplicates(keys), how="left", on=keys, suffixes=("", " before"))
    pairs = [(both[k], both[f"{k} before"]) for k in REGRET_NAMES]
    equal = pd.concat([a == b for a, b in pairs], axis=1).all(axis=1)
    names = [k for k in ("protocol", "settings", "algorithm", "lam", "beta",
                         "random_pulls") if k in new]
    change = [((g["regret"] - g["regret before"]).mean(), g["regret"].sem())
              for _, g in both.groupby(names, dropna=False) if len(g) > 1]
    return len(both), int(equal.sum()), max((abs(c)/s for c, s in change if s > 0), default=0.)


def main(store, out):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for study, file, columns, cells in replay.studies(replay.RESULTS, False):
            done = [c for c in cells if cell_file(store, c).exists()]
            found = (0, 0, 0.)
            if done:
                old = read_table(replay.RESULTS/f"{file}.csv.gz")
                if study == "ablation":
                    old["settings"] = old.pop("switch") + ": " + old.pop("level")
                new = write_table(Path(folder)/"new.csv", study_table(store, done, columns), 5)
                found = compare(read_table(new), old)
            rows.append((study, len(done), len(cells), *found))
            print(*rows[-1])
    names = ["study", "cells", "planned", "runs", "equal", "change"]
    write_table(out, pd.DataFrame(rows, columns=names), 3)


if __name__ == "__main__":
    if len(sys.argv) < 2: sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else replay.RESULTS/"regenerated.csv")
