"""Time one sweep with processes against threads, then all twenty seeds; adds a pass to nbs/results/sweep_times.csv.

Passes are added, never replaced: on a shared machine they differ, and the table should show it.

    python scripts/sweep_times.py [SEEDS_OF_THE_COMPARISON] [SEEDS_OF_THE_LAST_ROW]
"""
import csv, os, sys, tempfile, time
from pathlib import Path
from types import SimpleNamespace

import torch

import gnn_bandits.experiments as experiments
from gnn_bandits.experiments import Store, grid, sweep


def timed(seeds, processes, threads):
    "One row: the sweep with so many processes, each with so many threads."
    specs = grid(data="N20_p0.2_d10", algorithm=["GNN-PE", "GNN-UCB", "NN-PE", "NN-UCB"], model=["gntk", "linearized"], seed=range(seeds))
    with tempfile.TemporaryDirectory() as d:
        store = Store(d)
        store.dataset(specs[0].data)
        if threads > 1:                                    # take from the runner the means to insist on one thread
            torch.set_num_threads(threads)
            experiments.torch = SimpleNamespace(set_num_threads=lambda n: None, get_num_threads=torch.get_num_threads, __version__=torch.__version__)
        began = time.perf_counter()
        try: summary = sweep(specs, store, jobs=processes)
        finally: experiments.torch = torch
        seconds = time.perf_counter() - began
        assert summary.done == len(specs)
        worker, driver = store.table()["peak_mb"].max(), experiments.peak_mb()
    peak = driver + processes*worker if processes > 1 else driver
    return dict(processes=processes, threads_each=threads, runs=len(specs), seconds=round(seconds), peak_mb=round(peak), load=round(os.getloadavg()[0], 1))


if __name__ == "__main__":
    few, many = int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 20
    rows = [timed(few, 2, 1), timed(few, 1, 1), timed(few, 1, 2), timed(many, 2, 1)]
    path = Path(__file__).parent.parent/"nbs/results/sweep_times.csv"
    old = list(csv.DictReader(path.open())) if path.exists() else []
    number = 1 + max((int(r["pass"]) for r in old), default=0)
    rows = [{"pass": number} | r for r in rows]
    with open(path, "w") as f:
        out = csv.DictWriter(f, list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(old + rows)
    for row in rows: print(row)
