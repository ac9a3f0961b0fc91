"""Does a reproduction agree with the committed tables? Says so table by table.

Usage: python scripts/compare_tables.py NEW COMMITTED

NEW comes from `gnn_bandits reproduce --out NEW`; COMMITTED is nbs/results, or nbs/results/quick.
"""
import sys
from pathlib import Path

import pandas as pd

# Relative, one unit of the last digit or more: sums round differently on other machines
TOLERANCE = {".csv": 1e-5, ".gz": 1.1e-4} # Seven digits; five
STUDIES = ("tuning", "paper_tuning", "population", "paper", "paper_curves", "ablation") # Tables

def distance(a, b):
    "Relative difference of two entries; infinite if they are different words"
    if a == b: return 0.
    try: x, y = float(a), float(b)
    except ValueError: return float("inf")
    return abs(x - y)/max(abs(x), abs(y), 1e-12)

def compare(new, old):
    "What is to be said of one table, and whether it is good"
    if not new.exists(): return "not there", False
    a, b = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (new, old))
    if len(a) != len(b) or list(a) != list(b):
        return f"{len(a)} rows and committed {len(b)}, or other columns", False
    apart = [max(map(distance, x, y)) for x, y in zip(a.values, b.values)]
    off, most = sum(d > TOLERANCE[old.suffix] for d in apart), max(apart, default=0)
    size = f"largest relative difference {most:.1e}" if most else "every digit equal"
    return f"{len(b)} rows, {off} differ, {size}", not off

def main(argv):
    "Print what is to be said of all tables; the exit code"
    if len(argv) != 2 or not all(Path(f).is_dir() for f in argv): sys.exit(__doc__)
    from gnn_bandits.paper.figures import FIGURES
    new, old = map(Path, argv)
    names = [*(f"{n}.csv" for n in FIGURES), *(f"{n}.csv.gz" for n in STUDIES)]
    found = {n: compare(new/n, old/n) for n in names if (old/n).exists()}
    for name, (said, _) in found.items(): print(f"{name:20} {said}")
    if all(good for _, good in found.values()): return 0
    print("another processor or another version of torch rounds differently, and one changed "
          "choice of an arm changes all that follow; constraints.txt has the versions used")
    return 1

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
