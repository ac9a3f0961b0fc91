"""Write nbs/results/reward_remainder.csv: what explicit features miss between different graphs.

Usage: python scripts/reward_table.py     (a few minutes; see nbs/27_datasets.ipynb)
"""
from pathlib import Path

import pandas as pd

from gnn_bandits.core import write_table
from gnn_bandits.paper.datasets import DATASETS, remainder_rows

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"reward_remainder.csv"
DEGREES = {10: (3, 4, 5, 6), 100: (2, 3)}
DIGITS = dict(variance=".4f", gap=".3e", gap_max=".3e", rms=".3e", largest=".3e", closest=".3e")

def table(specs):
    "The rows of some data sets, numbers as text"
    rows = pd.DataFrame([row for spec in specs for row in remainder_rows(spec, DEGREES[spec.d])])
    return rows.assign(**{k: rows[k].map(f"{{:{digits}}}".format) for k, digits in DIGITS.items()})

if __name__ == "__main__":
    write_table(TABLE, table(sorted(DATASETS.values(), key=lambda s: (s.d, s.N, s.p))))
