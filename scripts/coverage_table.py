"""Do the confidence sets cover? Writes nbs/results/coverage.csv, which nbs/09_confidence.ipynb
reads.

Usage: python scripts/coverage_table.py [--trained K] [--jobs J] [--out FILE]     (K trials for each
kind of noise with a trained network, about 0.2 CPU seconds each, in J processes; the table does not
depend on J). The experiment itself is in nbs/37_claims.ipynb.
"""
import argparse
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.paper.claims import coverage_table

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=int, default=340)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path,
                        default=Path(__file__).parents[1]/"nbs/results/coverage.csv")
    given = parser.parse_args()
    table = coverage_table(given.trained, given.jobs)
    write_table(given.out, table)
    print(table.to_string(index=False))
