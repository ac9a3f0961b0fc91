"""Does a reproduction agree with the committed tables? Says so table by table.

Usage: python scripts/compare_tables.py NEW COMMITTED     (`gnn_bandits reproduce --out NEW` and nbs/results, or with --quick nbs/results/quick)
"""
import csv, sys
from pathlib import Path

TOLERANCE = 1e-5 # Relative; tables have seven digits, and sums round differently on other machines

def rows(path):
    "A table as a list of dictionaries"
    with open(path, newline="") as f: return list(csv.DictReader(f))

def distance(a, b):
    "Relative difference of two entries; infinite if they are different words"
    if a == b: return 0.
    try: x, y = float(a), float(b)
    except ValueError: return float("inf")
    return abs(x - y)/max(abs(x), abs(y), 1e-12)

def compare(new, old):
    "What is to be said of one table, and whether it is good"
    if not new.exists(): return "not there", False
    a, b = rows(new), rows(old)
    if len(a) != len(b) or (a and list(a[0]) != list(b[0])): return f"{len(a)} rows and committed {len(b)}, or other columns", False
    apart = [max(distance(x[k], y[k]) for k in y) for x, y in zip(a, b)]
    off = sum(d > TOLERANCE for d in apart)
    return f"{len(b)} rows, {off} differ" + (f", largest relative difference {max(apart):.1e}" if max(apart, default=0) else ", every digit equal"), not off

if __name__ == "__main__":
    if len(sys.argv) != 3 or not all(Path(f).is_dir() for f in sys.argv[1:]): sys.exit(__doc__)
    from gnn_bandits.figures import FIGURES
    new, old = map(Path, sys.argv[1:])
    found = {n: compare(new/n, old/n) for n in (*(f"{n}.csv" for n in FIGURES), "regret.csv") if (old/n).exists()}
    for name, (said, _) in found.items(): print(f"{name:20} {said}")
    if not all(good for _, good in found.values()):
        print("another processor or another version of torch rounds differently, and one changed choice of an arm changes all that follow; constraints.txt has the versions used")
        sys.exit(1)
