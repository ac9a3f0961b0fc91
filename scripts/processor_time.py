"""Processor time and page faults of a few calls, which a busy machine changes less than the clock.

    python scripts/processor_time.py LABEL [OUT]

Adds rows to nbs/results/processor_time.csv under a label, such as the version of the code. Each
call is made several times; the row is the one with the least processor time.
"""
import resource, sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.core import write_table
from gnn_bandits.gntk import gntk, kernel_sums, node_table, some_nodes, vector_kernel
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.posterior import Posterior

N = 4000 # Vectors; their kernel matrix has 128 MB in double precision


def used(f):
    "User and system milliseconds and page faults of a call."
    before = resource.getrusage(resource.RUSAGE_SELF)
    f()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (1e3*(after.ru_utime - before.ru_utime), 1e3*(after.ru_stime - before.ru_stime),
            after.ru_minflt - before.ru_minflt)


def calls():
    "Name -> call."
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((N, 10)))
    X = GraphDomain.erdos_renyi(200, 20, 0.2, 10, rng)
    old = np.ones((N, N))
    def filled(a): a[:] = 1.
    edges, x20 = [np.ones((20, 20)) - np.eye(20)]*200, [*rng.standard_normal((200, 20, 10))]
    many = torch.from_numpy(rng.standard_normal((10**6, 10)))
    pool = node_table(many, torch.full((50_000,), 20))
    one, post = some_nodes(pool, [17]), Posterior(torch.eye(1000), 0.01)
    return {"kernel of 4000 vectors, float64": lambda: vector_kernel(x),
            "kernel of 4000 vectors, float32": lambda: vector_kernel(x.float()),
            "GNTK of 200 graphs of 20 nodes, float64": lambda: gntk(X),
            "fill 128 MB that were used before": lambda: filled(old),
            "fill 128 MB of a new numpy array": lambda: filled(np.empty((N, N))),
            "fill 128 MB of a new torch tensor":
                lambda: filled(torch.empty(N, N, dtype=torch.float64).numpy()),
            "a kernel row of 50000 graphs of 20 nodes": lambda: kernel_sums(one, pool, 2),
            "a domain from 200 matrices": lambda: GraphDomain.from_arrays(edges, x20),
            "100 times the uncertainty of 1000 arms": lambda: [post.std for _ in range(100)]}


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]/"nbs"/"results"/"processor_time.csv"
    label, path = sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else root
    rows = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for what, f in calls().items():
            f()                                       # compiles, and touches memory
            best = min((used(f) for _ in range(5)), key=lambda u: u[0] + u[1])
            rows.append((label, what, threads, *best))
            print(*rows[-1], flush=True)
    names = ["code", "what", "threads", "user_ms", "system_ms", "faults"]
    table = pd.DataFrame(rows, columns=names)
    if path.exists(): table = pd.concat([pd.read_csv(path), table], ignore_index=True)
    write_table(path, table, 4)
