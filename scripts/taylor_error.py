"""Write nbs/results/taylor_error.csv: how far trained networks are from their linearisation.

Usage: python scripts/taylor_error.py     (minutes; nbs/10_training.ipynb computes and reads it)
"""
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.training import taylor_error

WIDTHS, SEEDS = (64, 128, 256, 512, 1024, 2048), 8
TABLE = Path(__file__).parent.parent/"nbs"/"results"/"taylor_error.csv"

if __name__ == "__main__":
    rows = [dict(m=m, seed=seed) | taylor_error(m, seed) for m in WIDTHS for seed in range(SEEDS)]
    write_table(TABLE, rows, digits=9)
