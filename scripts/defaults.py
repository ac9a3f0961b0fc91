"""The default options against the paper's practice, on fresh random domains and pools of molecules.

    python scripts/defaults.py nbs/results/defaults.csv --jobs 2

One row for each run; runs that are in the table are not repeated. The molecules need the extras
`molecules` (rdkit) and `qm9` (qm9pack); --pools 0 leaves them out. Read by nbs/12_bandits.ipynb.
"""
import argparse, ast, importlib.metadata
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from gnn_bandits.bandits import Prior, make_algorithm, run_bandit
from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.rewards import Environment, sample_reward

RECIPES = [("default", "GNN-UCB"), ("default", "GNN-PE"), ("default", "GNN-TS"),
           ("default", "GNN-EI"), ("paper", "GNN-UCB"), ("paper", "GNN-PE"), ("default", "Random")]
KEY = ["population", "target", "noise", "seed", "preset", "algorithm"]
SETTINGS = [(N, p) for N in (5, 20, 100) for p in (0.05, 0.2, 0.95)]
TARGETS = ("gap", "dipole", "U0")
COLUMNS = {"SMILES": "smiles", "Stoichiometry": "atoms", "Dipole_debye": "dipole",
           "HOMO_LUMO_gap_au": "gap", "InternalEnergy_0K_au": "energy"}


def play(prior, f, noise_std, T, seed, preset, name):
    "One run; regrets in units of the mean gap, what was found in deviations of the rewards."
    env = Environment(prior.domain, f, noise_std, rng=np.random.default_rng([seed, 2]))
    alg = make_algorithm(name, prior=prior, rng=np.random.default_rng([seed, 3]), preset=preset)
    h, gaps, spread = run_bandit(alg, env, T), env.gaps.numpy(), float(env.f.std(correction=0))
    top = set(np.argsort(gaps, kind="stable")[:10].tolist())
    half = T//2
    return dict(regret=h.regret.sum()/gaps.mean(), half_regret=h.regret[:half].sum()/gaps.mean(),
                inference_regret=h.inference_regret.sum()/gaps.mean(),
                best_observed_regret=h.best_observed_regret.sum()/gaps.mean(),
                found=gaps[h.arms].min()/spread, believed=gaps[int(alg.mean.argmax())]/spread,
                top_ten=len(top & set(h.arms.tolist())), distinct=len(set(h.arms.tolist())))


def random_domain(population, seed, done):
    "All runs on one random domain, with a reward of its own, that are not done."
    torch.set_num_threads(1)
    N, p = SETTINGS[seed % 9] if population == "all nine" else (20, 0.2)
    keys = [(population, "gntk", noise, seed, *r) for noise in ("0.01", "0.1 sd") for r in RECIPES]
    if not (todo := [k for k in keys if k not in done]): return []
    graphs, reward = (np.random.default_rng([seed, N, round(1000*p), k]) for k in (0, 1))
    domain = GraphDomain.erdos_renyi(200, N, p, 10, graphs)
    f, prior = sample_reward(domain, reward), Prior.gntk(domain)
    level = {"0.01": 0.01, "0.1 sd": 0.1*float(f.std(correction=0))}
    return [dict(zip(KEY, k)) | play(prior, f, level[k[2]], 200, *k[3:]) for k in todo]


def qm9():
    "SMILES and targets; U0 is minus what a linear fit on the composition leaves of the energy."
    try: files = {p.name: p.locate() for p in importlib.metadata.files("qm9pack") or []}
    except importlib.metadata.PackageNotFoundError as e:
        raise SystemExit("this needs qm9pack and rdkit: "
                         "pip install 'gnn_bandits[molecules,qm9]'") from e
    parts = [pd.read_csv(files[f"qm9_part{i}.csv"], usecols=list(COLUMNS)) for i in (1, 2, 3)]
    table = pd.concat(parts, ignore_index=True).rename(columns=COLUMNS)
    composition = np.array([[*ast.literal_eval(s), 1] for s in table["atoms"]], float)
    energy = table["energy"].to_numpy()
    table["U0"] = composition @ np.linalg.lstsq(composition, energy, rcond=None)[0] - energy
    return table


def molecule(smiles):
    "Adjacency and atom features, or nothing if the SMILES cannot be read."
    from rdkit import Chem
    m = Chem.MolFromSmiles(smiles)
    if m is None: return None
    x = [[*(a.GetAtomicNum() == e for e in (6, 7, 8, 9)), a.GetDegree(), a.GetTotalNumHs(),
          a.GetFormalCharge(), a.GetIsAromatic(), a.IsInRing(),
          *(str(a.GetHybridization()) == h for h in ("SP", "SP2", "SP3")), 1] for a in m.GetAtoms()]
    return Chem.GetAdjacencyMatrix(m), np.array(x, float)


def pool(rows, seed, done, n=1000):
    "All runs on one pool of molecules not done yet; atom features are divided by their spread."
    torch.set_num_threads(1)
    keys = [("qm9", target, "0.1 sd", seed, *r) for target in TARGETS for r in RECIPES]
    if not (todo := [k for k in keys if k not in done]): return []
    readable = [(i, g) for i, s in enumerate(rows["smiles"]) if (g := molecule(s)) is not None][:n]
    spread = np.concatenate([x for _, (_, x) in readable]).std(0)
    spread[spread < 1e-12] = 1
    domain = GraphDomain.from_arrays([a for _, (a, _) in readable],
                                     [x/spread for _, (_, x) in readable])
    table, prior, out = rows.iloc[[i for i, _ in readable]], Prior.gntk(domain), []
    for k in todo:
        f = torch.from_numpy(table[k[1]].to_numpy(float).copy())
        out.append(dict(zip(KEY, k)) | play(prior, f, 0.1*float(f.std(correction=0)), 100, *k[3:]))
    return out


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write, or to go on with")
    cli.add_argument("--domains", type=int, default=20, help="random domains of each population")
    cli.add_argument("--pools", type=int, default=5, help="pools of 1,000 molecules; 0: none")
    cli.add_argument("--first", type=int, default=5000,
                     help="first seed; the defaults were chosen on others")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    o = cli.parse_args()
    table = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=KEY)
    done = set(table[KEY].itertuples(index=False, name=None))
    seeds = range(o.first, o.first + max(o.domains, o.pools))
    tasks = [delayed(random_domain)(name, s, done) for name in ("N = 20, p = 0.2", "all nine")
             for s in seeds[:o.domains]]
    if o.pools:
        rows = qm9()
        some = lambda s: np.random.default_rng([99, s]).choice(len(rows), 1050, replace=False)
        tasks += [delayed(pool)(rows.iloc[some(s)], s, done) for s in seeds[:o.pools]]
    results = Parallel(o.jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for new in progress_bar(results, "domains", len(tasks)):
        if not new: continue
        new = pd.DataFrame(new)
        table = pd.concat([table, new], ignore_index=True) if len(table) else new
        write_table(o.path, table.sort_values(KEY), 6)


if __name__ == "__main__": main()
