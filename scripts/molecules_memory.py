"""Time and memory that a suggestion takes, recipe by recipe, on one pool of QM9.

    python scripts/molecules_memory.py nbs/results/molecules_memory.csv
    python scripts/molecules_memory.py nbs/results/molecules_memory.csv --size 10000 \\
        --recipes "ours ucb" "tanimoto ucb" "tanimoto + bag ucb" random

One row for each recipe and size of the pool; rows that are in the table are not repeated. Each
recipe has a process of its own on one thread, which plays a campaign of 100 measurements for the
gap. Columns: first is the processor time in seconds to read the pool and make the first model,
seconds that of a suggestion after the ten random ones, fit and update included, memory the peak of
the process in GB. Processor time hardly depends on what else the machine does.
"""
import argparse, multiprocessing, resource, time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.campaigns import CampaignPolicy, virtual
from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.molecules import qm9
from gnn_bandits.surrogate import Surrogate
from molecules import MODELS, RECIPES, SCORERS, TARGETS, Pool, play   # the script beside this one

KEY, BUDGET, SEED = ["size", "recipe"], 100, 6000
DEFAULT = [r for r in RECIPES if r.endswith(" ucb")] + ["random", "random forest",
                                                       "trained GNN ensemble"]


def measure(size, name, sent):
    "Play one campaign and send what it took."
    torch.set_num_threads(1)
    rows, recipe = qm9(TARGETS), RECIPES[name]
    some = np.random.default_rng([96, SEED]).choice(len(rows), size*21//20, replace=False)
    start, gaussian = time.process_time(), recipe.model in MODELS
    pool = Pool(rows.iloc[some], size)
    if gaussian:
        priors = MODELS[recipe.model](pool)
        Surrogate(priors).learn(list(range(10)), np.arange(10.)).latent
    else: SCORERS[recipe.model](pool)([0, 1, 2], [0., 1., 3.])
    first, rng = time.process_time() - start, np.random.default_rng([SEED, 4])
    start, values = time.process_time(), pool.values["gap"].to_numpy(float)
    if gaussian: virtual(priors, values, BUDGET, recipe.policy, noise_std=0.1*values.std(), rng=rng)
    else: play(SCORERS[recipe.model](pool), values, BUDGET, 0.1*values.std(), rng)
    each = (time.process_time() - start)/(BUDGET - CampaignPolicy().first(size))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/2**20
    sent.send(dict(size=size, recipe=name, first=first, seconds=each, memory=peak))


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write, or to go on with")
    cli.add_argument("--size", type=int, default=1000, help="molecules in the pool")
    cli.add_argument("--recipes", nargs="+", default=DEFAULT, choices=RECIPES)
    o = cli.parse_args()
    table = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=KEY)
    done = set(table[KEY].itertuples(index=False, name=None))
    spawn = multiprocessing.get_context("spawn")         # a process that has seen nothing else
    for name in progress_bar([r for r in o.recipes if (o.size, r) not in done], "recipes"):
        got, sent = spawn.Pipe(False)
        job = spawn.Process(target=measure, args=(o.size, name, sent))
        job.start(), sent.close()
        try: new = pd.DataFrame([got.recv()])
        except EOFError: raise SystemExit(f"{name} ended without a result") from None
        job.join()
        table = pd.concat([table, new], ignore_index=True) if len(table) else new
        write_table(o.path, table.sort_values(KEY), 4)


if __name__ == "__main__": main()
