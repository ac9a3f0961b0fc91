"""What the stopping rule does to the regret and to the training. Writes nbs/results/stopping.csv,
which nbs/37_claims.ipynb reads.

Usage: python scripts/stopping.py [--runs K] [--out FILE]     (about a minute on one core with the
default). The experiment itself is in nbs/37_claims.ipynb.
"""
import argparse
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.paper.claims import stopping_table

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--out", type=Path,
                        default=Path(__file__).parents[1]/"nbs/results/stopping.csv")
    given = parser.parse_args()
    write_table(given.out, stopping_table(given.runs))
