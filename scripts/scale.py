"""A million graphs, all molecules of QM9, and what explicit features cost in regret.

    python scripts/scale.py nbs/results --room FOLDER              # everything
    python scripts/scale.py nbs/results --room FOLDER --only regret

    python scripts/scale.py nbs/results --room FOLDER --only million --stages steps

FOLDER takes the feature files (about 1.5 GB); they are kept, for a stage that is repeated alone.
Writes scale.json (one entry for each of machine, million, qm9, cluster) and scale_regret.csv and
scale_steps.csv. Each measurement of memory runs in a process of its own. Rows of the regret table
that are there are not repeated. Read by the notebook of the scale.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.bandits import Prior
from gnn_bandits.project.bench import machine
from gnn_bandits.core import in_threads, peak_mb, progress_bar, write_atomically, write_table
from gnn_bandits.features import GNTKFeatures
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import load_molecules
from gnn_bandits.posterior import FeaturePosterior
from gnn_bandits.scale import (AnchorFeatures, LazyPosterior, Library, RandomBlocks, SmilesBlocks,
                               choose_degree, featurize, missed_share, rank, weigh)

MILLION, STEPS, BETA, LAM = 10**6, 500, 2., 0.01


def seconds(f):
    "How long a call takes, and what it returns."
    began = time.perf_counter()
    value = f()
    return time.perf_counter() - began, value


def reading(library):
    "Gigabytes a second at which the features are read, and a product with one vector made of them."
    w = torch.ones(library.F + 1)
    plain = lambda c: float(c[1].sum())
    product = lambda c: c[1] @ w
    size = 4e-9*len(library)*(library.F + 1)
    best = lambda f: min(seconds(lambda: list(in_threads(f, library.chunks())))[0]
                         for _ in range(3))
    return dict(read=size/best(plain), product=size/best(product), gigabytes=size)


def wide(library, seed=0):
    "A reward for every graph of a library, drawn from the prior of its features."
    rng = np.random.default_rng([71, seed])
    w = torch.from_numpy(rng.standard_normal(library.F)).float()
    shared = [c[:, :-1] @ w for _, c in library.chunks()]
    own = torch.cat([c[:, -1] for _, c in library.chunks()]).double().sqrt()
    return torch.cat(shared).double() + own*torch.from_numpy(rng.standard_normal(len(library)))


# A million graphs

def million_features(room):
    "Write the features of a million graphs."
    blocks = RandomBlocks(MILLION)
    features = choose_degree(blocks[0][:400])
    shutil.rmtree(room/"million", ignore_errors=True)
    took, library = seconds(lambda: featurize(room/"million", blocks, features))
    return dict(graphs=len(library), nodes=blocks.N, d=blocks.d, degree=features.degree,
                features=library.F, missed=missed_share(features, blocks[0][:400]),
                seconds=took, peak_mb=peak_mb())


def million_steps(room):
    "Suggest and observe over a million graphs; at some steps against the plain way."
    opened, library = seconds(lambda: Library.open(room/"million"))
    f, rng = wide(library), np.random.default_rng(5)
    started, post = seconds(lambda: LazyPosterior(library, LAM))
    rows, arms, values, checks, cpu = [], [], [], [], 0.
    for step in progress_bar(range(STEPS), "steps"):
        if step % 100 == 99:
            took, (best, _) = seconds(lambda: rank(library, weigh(library, arms, values, LAM)))
            assert post.suggest() == best.tolist(), "the lazy way differs from the plain one"
            checks.append(took)
        began, busy = time.perf_counter(), time.process_time()
        (arm,) = post.suggest(beta=BETA)
        value = float(f[arm]) + LAM**0.5*rng.standard_normal()
        post.observe(arm, value)
        cpu += time.process_time() - busy
        arms.append(arm), values.append(value)
        rows.append(dict(step=step + 1, seconds=time.perf_counter() - began, passes=post.passes,
                         regret=float(f.max() - f[arm])))
    batch, chosen = seconds(lambda: post.suggest(100))
    assert len(set(chosen)) == 100
    every, took = np.array([r["seconds"] for r in rows]), dict(peak_mb=peak_mb())
    took |= dict(open_seconds=opened + started, seconds=float(every.sum()), steps=STEPS,
                 cpu_seconds=cpu,
                 per_second=STEPS/float(every.sum()), median=float(np.median(every)),
                 longest=float(every.max()), passes=post.passes, batch_100=batch,
                 plain_pass=float(np.median(checks)), checked=len(checks),
                 best_regret=float(f.max() - f[arms].max()), reading=reading(library))
    return took | dict(rows=rows)


def million_today(room):
    "Seconds of one step of `FeaturePosterior` over the same features."
    library = Library.open(room/"million")
    Phi = torch.cat([p[:, :-1] for p in library.parts])
    post = FeaturePosterior(Phi, LAM, torch.cat([p[:, -1] for p in library.parts]))
    def step():
        arm = int((post.mean + BETA*post.std).argmax())
        post.observe(arm, 0.5)
    step()
    return dict(seconds=min(seconds(step)[0] for _ in range(3)), peak_mb=peak_mb())


# All molecules of QM9

def qm9_features(room):
    "Write features from anchors for all molecules of QM9, read from their SMILES."
    texts = load_molecules("qm9")["smiles"].tolist()
    order = np.random.default_rng(3).permutation(len(texts))
    like = GraphDomain.from_smiles([texts[i] for i in order[:4000]])
    features, test = AnchorFeatures(like[:256]), like[-400:]
    shutil.rmtree(room/"qm9", ignore_errors=True)
    took, library = seconds(lambda: featurize(room/"qm9", SmilesBlocks(texts, like), features))
    harmonics = [GNTKFeatures(like.d, degree=r) for r in (1, 2)]
    return dict(molecules=len(library), features=library.F, anchors=256,
                missed=missed_share(features, test), seconds=took, peak_mb=peak_mb(),
                harmonics=[dict(degree=h.degree, features=len(h), missed=missed_share(h, test))
                           for h in harmonics])


def qm9_steps(room):
    "Look for molecules with a large gap between orbitals, with a hundred random starts."
    y = load_molecules("qm9")["gap"].to_numpy(float)
    opened, library = seconds(lambda: Library.open(room/"qm9"))
    started, post = seconds(lambda: LazyPosterior(library, LAM))
    rng = np.random.default_rng(4)
    starts = rng.choice(len(library), 100, replace=False)
    spread = float(torch.cat([p[:, :-1] for p in library.parts]).double().var(0).sum())
    z = (y - y[starts].mean())/y[starts].std()*spread**0.5
    post.observe(starts.tolist(), z[starts])
    post.suggest()                                    # the first pass
    took = []
    for _ in range(200):
        alone, (arm,) = seconds(post.suggest)
        post.observe(arm, float(z[arm]))
        took.append(alone)
    batch, _ = seconds(lambda: post.suggest(100))
    arms, busy = post.arms.tolist(), time.process_time()
    plain, (best, _) = seconds(lambda: rank(library, weigh(library, arms, z[arms], LAM)))
    cpu = time.process_time() - busy
    assert post.suggest() == best.tolist(), "the lazy way differs from the plain one"
    top = set(np.argsort(-y, kind="stable")[:100].tolist())
    return dict(open_seconds=opened + started, suggestion=float(np.median(took)),
                longest=float(max(took)), batch_100=batch, plain_pass=plain, plain_cpu=cpu,
                passes=post.passes,
                pulls=len(arms), top_100=len(top & set(arms)), peak_mb=peak_mb())


# Two workers, one of which is killed

def cluster_kill(room):
    "Featurise and score on a local cluster, kill a worker half way, and compare every bit."
    from distributed import Client, LocalCluster
    blocks, features = RandomBlocks(2**17, size=2**13), GNTKFeatures(10, degree=3)
    for name in ("cluster", "alone"): shutil.rmtree(room/name, ignore_errors=True)
    alone, library = seconds(lambda: featurize(room/"alone", blocks, features))
    weights = weigh(library, range(50), np.linspace(-1, 1, 50), LAM)
    expected, dead = rank(room/"alone", weights, 1000), []
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                      silence_logs="CRITICAL") as local:
        with Client(local.scheduler_address, set_as_default=False) as client:
            victim = next(iter(client.run(os.getpid).values()))
        def kill():
            while len(list((room/"cluster").glob("part-*"))) < len(blocks)//2: time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)
            dead.append(len(list((room/"cluster").glob("part-*"))))
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        made, library = seconds(lambda: featurize(room/"cluster", blocks, features,
                                                  local.scheduler_address))
        killer.join()
        scored, found = seconds(lambda: rank(room/"cluster", weights, 1000,
                                             scheduler=local.scheduler_address))
    same = all((room/"cluster"/p.name).read_bytes() == p.read_bytes()
               for p in (room/"alone").iterdir())
    return dict(graphs=len(library), parts=len(blocks), parts_when_killed=dead[0], files_equal=same,
                best_equal=all(map(torch.equal, found, expected)), seconds=made, alone=alone,
                scored=scored)


# What the features cost

def play(posterior, f, noise, pick):
    "Regret of each pull of an upper confidence bound rule after ten random pulls."
    regret = []
    for t, e in enumerate(noise):
        arm = int(STARTS[t] % len(f)) if t < 10 else pick(posterior)
        posterior.observe(arm, float(f[arm]) + e)
        regret.append(float(f.max() - f[arm]))
    return np.array(regret)


STARTS = np.random.default_rng(8).integers(10**9, size=10)
PULLS = 10, 20, 30, 40, 50, 75, 100, 125, 150, 175, 200


def regret_rows(seed, n=10_000, pulls=200, noise_std=0.1):
    "One fresh domain and a reward from the prior, played with the exact kernel and with features."
    rng = np.random.default_rng([97, seed])
    X = GraphDomain.erdos_renyi(n, 20, 0.2, 10, rng)
    rich, normal = GNTKFeatures(10, degree=6), lambda *k: torch.from_numpy(rng.standard_normal(k))
    f = rich.linear(X, normal(1, len(rich)))[0] + rich.gap(X).sqrt()*normal(n)
    noise, lam = noise_std*rng.standard_normal(pulls), noise_std**2
    def whole(p):
        return int((p.mean + BETA*p.std).argmax())
    lazy = lambda p: p.suggest(beta=BETA, repeats=True)[0]
    starts = {"exact kernel": (lambda: Prior.gntk(X, form="rows").start(lam), whole)}
    for degree in (1, 2, 3, 4):
        def start(features=GNTKFeatures(10, degree=degree)):
            Phi = torch.cat(list(features.blocks(X, dtype=torch.float32)))
            return LazyPosterior(Library.of(Phi, features.gap(X)), lam)
        starts[f"degree {degree}"] = start, lazy
    rows = []
    for name, (start, pick) in starts.items():
        took, regret = seconds(lambda: play(start(), f, noise, pick))
        found = [(regret[:t].sum(), regret[:t].min()) for t in PULLS]
        rows += [dict(seed=seed, model=name, pulls=t, regret=r, best=b, seconds=took,
                      random=float(f.max() - f.mean())*t)
                 for t, (r, b) in zip(PULLS, found)]
    return rows


def regrets(path, seeds):
    "Fill the table of regrets."
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["seed"])
    for seed in progress_bar([s for s in range(seeds) if s not in set(table["seed"])], "seeds"):
        new = pd.DataFrame(regret_rows(seed))
        table = pd.concat([table, new], ignore_index=True) if len(table) else new
        write_table(path, table.sort_values(["seed", "model", "pulls"]), 6)


PARTS = {"million": (million_features, million_steps, million_today),
         "qm9": (qm9_features, qm9_steps), "cluster": (cluster_kill,)}


def fresh(name, room, threads):
    "What one measurement says, made in a process of its own."
    argv = [sys.executable, __file__, "-", "--room", str(room), "--measure", name,
            "--threads", str(threads)]
    return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("results", type=Path, help="folder of the tables")
    cli.add_argument("--room", type=Path, required=True, help="folder for feature files")
    cli.add_argument("--only", choices=[*PARTS, "regret"], nargs="+", default=[*PARTS, "regret"])
    cli.add_argument("--stages", nargs="+", help="only these: features, steps, today, kill")
    cli.add_argument("--seeds", type=int, default=30)
    cli.add_argument("--threads", type=int, default=2)
    cli.add_argument("--measure", help=argparse.SUPPRESS)
    o = cli.parse_args()
    torch.set_num_threads(o.threads)
    if o.measure:
        load = os.getloadavg()[0]                     # others at work before we began
        said = globals()[o.measure](o.room) | dict(load=load)
        print(json.dumps(dict(cpu_seconds=time.process_time()) | said))
        return
    o.room.mkdir(parents=True, exist_ok=True)
    path = o.results/"scale.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    report["machine"] = machine()
    for name in (p for p in o.only if p in PARTS):
        report.setdefault(name, {})
        for f in PARTS[name]:
            if o.stages and f.__name__.split("_")[1] not in o.stages: continue
            print(f"{name}: {f.__name__}", file=sys.stderr, flush=True)
            said = fresh(f.__name__, o.room, o.threads)
            if rows := said.pop("rows", None): write_table(o.results/"scale_steps.csv", rows, 4)
            report[name][f.__name__.split("_")[1]] = said
        write_atomically(path, json.dumps(report, indent=1) + "\n")
    if "regret" in o.only: regrets(o.results/"scale_regret.csv", o.seeds)


if __name__ == "__main__": main()
