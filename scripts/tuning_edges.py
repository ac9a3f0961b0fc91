"""Tuning runs with λ a decade beyond both edges of the grid. Writes nbs/results/tuning_edges.csv,
which nbs/33_population.ipynb reads.

Usage: python scripts/tuning_edges.py FOLDER [--jobs J]     (some minutes; FOLDER keeps what is
finished, and the same command goes on from there)
"""
import argparse
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.paper.figures import Plan

TABLE = Path(__file__).resolve().parents[1]/"nbs"/"results"/"tuning_edges.csv"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    write_table(TABLE, Plan(given.folder, jobs=given.jobs).table("tuning_edges"), digits=5)
