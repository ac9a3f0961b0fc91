"""Time one sweep with processes against threads, then all twenty seeds.

Adds a pass to nbs/results/sweep_times.csv.

Passes are added, never replaced: on a shared machine they differ, and the table should show it.

    python scripts/sweep_times.py [SEEDS_OF_THE_COMPARISON] [SEEDS_OF_THE_LAST_ROW]
"""
import contextlib, os, sys, tempfile, time
from pathlib import Path

import pandas as pd
import torch

import gnn_bandits.paper.sweep as sweeping
from gnn_bandits.core import peak_mb, write_table
from gnn_bandits.paper.experiments import grid
from gnn_bandits.paper.store import Store

PAPER = ["GNN-PE", "GNN-UCB", "NN-PE", "NN-UCB"]


def timed(seeds, processes, threads):
    "One row: the sweep with so many processes, each with so many threads."
    specs = grid(data="N20_p0.2_d10", algorithm=PAPER, model=["gntk", "linearized"],
                 seed=range(seeds))
    with tempfile.TemporaryDirectory() as d:
        store = Store(d)
        store.dataset(specs[0].data)
        honest = sweeping.one_thread
        if threads > 1:                                    # the sweep would insist on one thread
            torch.set_num_threads(threads)
            sweeping.one_thread = contextlib.nullcontext
        began = time.perf_counter()
        try: summary = sweeping.sweep(specs, store, jobs=processes)
        finally: sweeping.one_thread = honest
        seconds = time.perf_counter() - began
        assert summary.done == len(specs)
        worker, driver = store.table()["peak_mb"].max(), peak_mb()
    peak = driver + processes*worker if processes > 1 else driver
    return dict(processes=processes, threads_each=threads, runs=len(specs), seconds=round(seconds),
                peak_mb=round(peak), load=round(os.getloadavg()[0], 1))


if __name__ == "__main__":
    few, many = (int(a) for a in (sys.argv[1:] + ["5", "20"][len(sys.argv) - 1:]))
    rows = [timed(few, 2, 1), timed(few, 1, 1), timed(few, 1, 2), timed(many, 2, 1)]
    path = Path(__file__).parent.parent/"nbs/results/sweep_times.csv"
    old = pd.read_csv(path, dtype=str, keep_default_na=False)      # old rows stay as they are
    new = pd.DataFrame(rows).assign(**{"pass": old["pass"].astype(int).max() + 1})[list(old)]
    write_table(path, pd.concat([old, new.astype(str)], ignore_index=True))
    print(new.to_string(index=False))
