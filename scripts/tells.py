"""How long a campaign takes to tell, to ask and to open after many measurements.

    python scripts/tells.py nbs/results/tells.csv --tells 10000

Every value is told on its own, as a laboratory would. At some numbers of values the next tells,
the first ask after them, one more ask, and opening the folder with an ask are timed. Read by the
notebook of the campaigns.
"""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.rewards import sample_reward

TIMES = (10, 30, 100, 300, 1000, 3000, 10_000)
TOLD = 20                                                   # tells of which the median is taken


def timed(work):
    "Milliseconds that some work takes."
    began = time.perf_counter()
    work()
    return 1000*(time.perf_counter() - began)


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write")
    cli.add_argument("--tells", type=int, default=10_000)
    cli.add_argument("--pool", type=int, default=2_000, help="graphs")
    o = cli.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    domain = GraphDomain.erdos_renyi(o.pool, 10, 0.2, 5, rng)
    values = sample_reward(domain, rng).numpy()
    rows, told = [], []
    with tempfile.TemporaryDirectory() as folder:
        c = Campaign.create(Path(folder)/"c", domain)
        for t in progress_bar(range(1, o.tells + 1), "tells"):
            arm = int(rng.integers(o.pool))
            value = float(values[arm] + 0.1*values.std()*rng.standard_normal())
            told.append(timed(lambda: c.tell(arm, value)))
            if t not in TIMES: continue
            size = sum(p.stat().st_size for p in (Path(folder)/"c").iterdir())
            rows.append(dict(values=t, distinct=len(set(c.observations["arm"])),
                             tell_ms=np.median(told[-TOLD:]), ask_ms=timed(lambda: c.suggest(1)),
                             again_ms=timed(lambda: c.suggest(1)),
                             open_ms=timed(lambda: Campaign.open(c.path).suggest(1)),
                             folder_mb=size/1e6))
            write_table(o.path, rows, 4)


if __name__ == "__main__": main()
