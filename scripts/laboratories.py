"""Simulated laboratories: campaigns with untouched defaults against random picking and rivals.

    python scripts/laboratories.py nbs/results/laboratories.csv --jobs 2

One row for each campaign; campaigns that are in the table are not repeated, so the script can be
stopped and started again. The molecules need the extras `molecules` and `qm9`; --pools 0 leaves
them out. Read by the notebook of the campaigns.
"""
import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from gnn_bandits.bandits import Prior, make_algorithm, run_bandit
from gnn_bandits.campaigns import virtual
from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import qm9, read_smiles, tanimoto
from gnn_bandits.rewards import Environment, sample_reward
from gnn_bandits.surrogate import candidate_priors

KEY = ["population", "target", "noise", "seed", "recipe", "batch"]
SETTINGS = [(N, p) for N in (5, 20) for p in (0.05, 0.2, 0.95)]
TARGETS = ("gap", "dipole", "U0")
STEPS = (10, 20, 30, 50, 75, 100)
BUDGET = 100
RECIPES = [("ucb", 1), ("ucb", 5), ("ucb", 20), ("ei", 1), ("random", 1), ("paper GNN-UCB", 1),
           ("paper GNN-PE", 1)]
MOLECULES = [r for r in RECIPES if r[0] != "ei"] + [("tanimoto ucb", 1)]


def row(arms, values):
    "What a campaign found: distance to the best value in deviations of the pool, and the top ten."
    gaps = (values.max() - values)/values.std()
    best, top = np.minimum.accumulate(gaps[arms]), set(np.argsort(gaps, kind="stable")[:10])
    found = {f"gap_{s}": best[min(s, len(best)) - 1] for s in STEPS}
    reached = np.flatnonzero(best <= 1e-12)
    return found | dict(mean_gap=best.mean(), top_ten=len(top & set(arms)),
                        found_at=reached[0] + 1 if len(reached) else np.nan)


def practice(prior, values, noise, seed, name):
    "The arms that the paper's practice pulls."
    env = Environment(prior.domain, torch.tensor(values), noise, rng=np.random.default_rng(
        [seed, 2]))
    alg = make_algorithm(name, prior=prior, rng=np.random.default_rng([seed, 3]), preset="paper")
    return run_bandit(alg, env, BUDGET).arms


def play(todo, priors, domain, values, noise, rival=None):
    "One row for each campaign on one pool and target."
    paper, out = None, []
    for key in todo:
        seed, recipe, batch = key[3:]
        if recipe.startswith("paper"):
            paper = paper or Prior.gntk(domain)
            arms = practice(paper, values, noise, seed, recipe.split()[1])
        else:
            known = rival() if recipe.startswith("tanimoto") else priors
            policy, rng = recipe.split()[-1], np.random.default_rng([seed, 4])
            arms = virtual(known, values, BUDGET, policy, batch=batch, noise_std=noise,
                           rng=rng)["arm"].to_numpy()
        out.append(dict(zip(KEY, key)) | row(arms, values))
    return out


def random_domain(seed, done):
    "All campaigns on one random domain with a reward of its own."
    torch.set_num_threads(1)
    N, p = SETTINGS[seed % 6]
    keys = [("random graphs", f"N={N}, p={p}", "0.1 sd", seed, *r) for r in RECIPES]
    if not (todo := [k for k in keys if k not in done]): return []
    graphs, reward = (np.random.default_rng([seed, N, round(1000*p), k]) for k in (0, 1))
    domain = GraphDomain.erdos_renyi(200, N, p, 10, graphs)
    values = sample_reward(domain, reward).numpy()
    return play(todo, candidate_priors(domain), domain, values, 0.1*values.std())


def pool(rows, seed, done, n=1000):
    "All campaigns on one pool of molecules."
    torch.set_num_threads(1)
    keys = [("qm9", t, "0.1 sd", seed, *r) for t in TARGETS for r in MOLECULES]
    if not (todo := [k for k in keys if k not in done]): return []
    read = read_smiles(rows["smiles"].tolist(), invalid="skip")
    kept = np.asarray(read.rows)[:n]
    domain, rows, out = read.domain[:n], rows.iloc[kept], []
    priors, fingerprints = candidate_priors(domain), []
    def rival():
        if not fingerprints:
            fingerprints.append(Prior.kernel(tanimoto(rows["smiles"].tolist())).standard)
        return fingerprints[0]
    for target in TARGETS:
        values = rows[target].to_numpy(float)
        mine = [k for k in todo if k[1] == target]
        out += play(mine, priors, domain, values, 0.1*values.std(), rival)
    return out


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write, or to go on with")
    cli.add_argument("--domains", type=int, default=20, help="random domains")
    cli.add_argument("--pools", type=int, default=10, help="pools of 1,000 molecules; 0: none")
    cli.add_argument("--first", type=int, default=7000,
                     help="first seed; the defaults were chosen on others")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    o = cli.parse_args()
    table = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=KEY)
    done = set(table[KEY].itertuples(index=False, name=None))
    tasks = [delayed(random_domain)(s, done) for s in range(o.first, o.first + o.domains)]
    if o.pools:
        rows = qm9(TARGETS)
        some = lambda s: np.random.default_rng([98, s]).choice(len(rows), 1050, replace=False)
        tasks += [delayed(pool)(rows.iloc[some(s)], s, done)
                  for s in range(o.first, o.first + o.pools)]
    results = Parallel(o.jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for new in progress_bar(results, "pools", len(tasks)):
        if not new: continue
        new = pd.DataFrame(new)
        table = pd.concat([table, new], ignore_index=True) if len(table) else new
        write_table(o.path, table.sort_values(KEY), 6)


if __name__ == "__main__": main()
