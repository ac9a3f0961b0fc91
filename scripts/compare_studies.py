"""What a new reproduction changes: single runs, selected settings, and who is ahead.

    gnn_bandits reproduce --out NEW
    python scripts/compare_studies.py NEW OLD OUT

It compares the tables of the studies in the folders NEW and OLD and writes three small tables to
the folder OUT, nbs/results for those that nbs/32_studies.ipynb reads: regenerated.csv (rows whose
regrets agree to the last digit of the table), regenerated_settings.csv (selections that differ, and
how far the old setting is behind the new one in the new tuning), and regenerated_advantage.csv
(comparisons of the population in which another side is clearly ahead now, or none). If OLD has the
ledger that belongs to its tables, claims.csv, it is compared with that of OUT, which the notebook
of the claims writes: regenerated_verdicts.csv.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.population import SETTING, advantage_table, select

STUDIES = ("tuning", "paper_tuning", "paper", "population", "ablation")
REGRETS = ["regret", "inference_regret", "best_observed_regret"]


def counts(new, old):
    "Rows of a study that have the same setting, and those of them with the same regrets."
    named = [c for c in SETTING if c in old]          # the ablation does not say its settings
    same = (new[named].to_numpy() == old[named].to_numpy()).all(1)
    close = np.isclose(new[REGRETS], old[REGRETS], rtol=1.1e-4, atol=1e-12).all(1)
    known = int(same.sum()) if named else 0
    return dict(runs=len(old), comparable=known, equal=int((same & close).sum()))


def behind(tuning, algorithm, old, new, value):
    "Mean and standard error over runs of what one setting loses against another."
    of = lambda setting: tuning[(tuning["algorithm"] == algorithm) & np.isclose(
        tuning[SETTING], setting).all(1)].set_index(["N", "p", "run"])[value]
    gap = of(old) - of(new)
    return gap.mean(), gap.sem()


def settings(new, old):
    "Selections that differ: by which regret, at which dimension, the old and the new setting."
    rows = []
    for d, value in ((d, v) for d in (10, 100) for v in ("regret", "best_observed_regret")):
        t = new[new["d"] == d]
        before, after = select(old[old["d"] == d], value), select(t, value)
        for k in before:
            if before[k] == after[k]: continue
            gap, se = behind(t, k, before[k], after[k], value)
            rows.append(dict(d=d, selected_by=value, algorithm=k, old=str(before[k]),
                             new=str(after[k]), gap=gap, se=se))
    return pd.DataFrame(rows)


def verdicts(new, old):
    "Comparisons of the population whose 95 % interval lies on another side of zero, or none."
    key = ["N", "p", "d", "settings", "policy", "regret"]
    both = advantage_table(old).merge(advantage_table(new), on=key, suffixes=("", "_new"))
    side = lambda end: np.sign(both["low" + end]).where(both["low" + end]*both["high" + end] > 0, 0)
    turned = both[side("") != side("_new")].assign(of=len(both))
    numbers = [f"{c}{e}" for e in ("", "_new") for c in ("advantage", "low", "high")]
    return turned[key + numbers + ["of"]]


def changed_verdicts(new, old):
    "Claims whose verdict differs."
    both = old.merge(new, on="key", suffixes=("_old", "_new"))
    names = ["key", "kind_new", "verdict_old", "verdict_new"]
    return both[both["verdict_old"] != both["verdict_new"]][names].assign(of=len(both))


def main(new, old, out):
    pair = lambda name: [read_table(folder/f"{name}.csv.gz") for folder in (new, old)]
    rows = [dict(study=name) | counts(*pair(name)) for name in STUDIES]
    write_table(out/"regenerated.csv", pd.DataFrame(rows), 6)
    write_table(out/"regenerated_settings.csv", settings(*pair("tuning")), 6)
    write_table(out/"regenerated_advantage.csv", verdicts(*pair("population")), 4)
    if not (old/"claims.csv").exists(): return
    ledgers = [read_table(folder/"claims.csv") for folder in (out, old)]
    write_table(out/"regenerated_verdicts.csv", changed_verdicts(*ledgers), 6)


if __name__ == "__main__":
    if len(sys.argv) != 4 or not all(Path(f).is_dir() for f in sys.argv[1:]): sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
