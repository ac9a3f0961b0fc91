"""Really trained networks against their linearisation, on the population of the ablation. Writes
nbs/results/trained_population.csv, which nbs/33_population.ipynb reads.

Usage: python scripts/trained_population.py [--runs K] [--out FILE]     (about half a minute a run)
"""
import argparse
from pathlib import Path

import pandas as pd
import torch

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper.population import select, trained_switch

RESULTS = Path(__file__).resolve().parents[1]/"nbs"/"results"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS/"trained_population.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tuning = read_table(RESULTS/"tuning.csv.gz")
    settings, parts = select(tuning[tuning["d"] == 10]), []
    for run in range(given.runs):
        parts.append(trained_switch(settings, (run,)))
        write_table(given.out, pd.concat(parts), digits=7)
        print(f"{run + 1} of {given.runs} runs", flush=True)
