"""Does phased elimination keep the optimum? Writes nbs/results/elimination.csv, which
nbs/28_algorithms.ipynb reads.

Usage: python scripts/elimination.py [--runs K] [--out FILE]     (a quarter of an hour on one core
with the default). The experiment itself is in nbs/37_claims.ipynb.
"""
import argparse
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.paper.claims import elimination_table

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--out", type=Path,
                        default=Path(__file__).parents[1]/"nbs/results/elimination.csv")
    given = parser.parse_args()
    write_table(given.out, elimination_table(given.runs))
