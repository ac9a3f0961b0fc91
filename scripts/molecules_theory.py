"""What the theory says on molecules: information gain, confidence sets, the vector kernel.

    python scripts/molecules_theory.py nbs/results/molecules_theory.csv --folder FOLDER

FOLDER has the file Lipophilicity.csv of the package gauche, for larger molecules; without it they
are looked for in the installed package, and `--sets qm9 random` leaves them out. A domain has 200
molecules with N heavy atoms (one more or less in lipophilicity), or 200 random graphs of N nodes
with p = 0.2 and ten normal features, as in the paper. One row for each domain and kernel ("graph":
the GNTK, mean over nodes; "vector": all nodes one after another in the order of the file). Columns:
gain is the information gain of 100 greedy steps, dimension the effective dimension of the domain,
both for a noise variance of 0.01; beta the multiplier of the theorem for a norm of one, cover_beta
how many of 50 functions on the sphere of that norm lie in the set at every graph after 50 pulls,
worst the mean of the smallest multipliers that would have covered; cover_2 how many graphs lie
within two deviations for draws from the kernel itself; regret that of 100 pulls by UCB in units of
random pulls, when the reward is drawn from the centred graph kernel; rmse_... the error of
predictions from 100 molecules in deviations.
"""
import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.priors import LIMITS, Prior
from gnn_bandits.confidence import beta, rkhs_sphere
from gnn_bandits.core import progress_bar, write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.infogain import max_information_gain
from gnn_bandits.molecules import load_molecules, qm9, read_smiles
from gnn_bandits.posterior import Posterior
from gnn_bandits.surrogate import Surrogate

SIZES = {"qm9": (5, 6, 7, 8, 9), "lipophilicity": (15, 20, 25, 30), "random": (5, 9, 20, 30)}
TARGETS = {"qm9": ("gap", "dipole", "U0", "polarisability"), "lipophilicity": ("logD",),
           "random": ()}
KEY = ["set", "N", "seed", "inputs"]
ARMS, STEPS, LAM, DELTA, NOISE = 200, 100, 0.01, 0.1, 0.1


def molecules(name, folder):
    "All molecules of a set that may be in a domain, by their number of heavy atoms."
    table = qm9(TARGETS[name]) if name == "qm9" else load_molecules(name, folder)
    if name == "qm9":                                   # the small ones come first in the file
        more = 4000 + np.random.default_rng(7).permutation(len(table) - 4000)[:14000]
        table = table.iloc[np.r_[:4000, more]]
    read = read_smiles(table["smiles"].tolist(), invalid="skip")
    table, wide = table.iloc[read.rows].reset_index(drop=True), name == "lipophilicity"
    near = lambda N: np.flatnonzero(abs(read.domain.sizes.numpy() - N) <= wide)
    return {N: (read.domain, table, near(N)) for N in SIZES[name]}


def domains(name, groups, seed):
    "A fresh domain of every size, with the properties of its graphs."
    for N in SIZES[name]:
        rng = np.random.default_rng([43, N, seed])
        if name == "random": yield N, GraphDomain.erdos_renyi(ARMS, N, 0.2, 10, rng), None
        else:
            domain, table, some = groups[N]
            if len(some) < ARMS: continue
            some = rng.choice(some, ARMS, replace=False)
            yield N, domain[some.tolist()], table.iloc[some]


def covered(K, rng):
    "The multiplier of the theorem, how often it covers, what would have, and two deviations."
    arms, post = rng.integers(len(K), size=STEPS//2), Posterior(K, LAM)
    post.observe(arms.tolist(), [0.]*len(arms))
    counts = torch.bincount(torch.from_numpy(arms), minlength=len(K))[post.arms].double()
    noise = lambda k: torch.from_numpy(rng.standard_normal((len(counts), k)))*(LAM/counts).sqrt()[
        :, None]
    b = beta(1., LAM**0.5, LAM, DELTA, len(K), norm_factor=1.)
    ratio = post.worst_ratio(rkhs_sphere(K, 1., 50, rng), noise(50))
    f = Prior.kernel(K).root @ torch.from_numpy(rng.standard_normal((len(K), 50)))
    off = (f - post.mean_for(f[post.arms] + noise(50))).abs() <= 2*post.std[:, None]
    return dict(beta=b, cover_beta=float((ratio <= b).double().mean()), worst=float(ratio.mean()),
                cover_2=float(off.double().mean()))


def regret(prior, f, rng):
    "Mean gap of the pulls of UCB, in units of the mean gap of all arms."
    post, gaps, total = Posterior(prior.K, NOISE**2), f.max() - f, 0.
    for _ in range(STEPS):
        arm = int((post.mean + 2*post.std).argmax())
        post.observe(arm, float(f[arm] + NOISE*rng.standard_normal()))
        total += float(gaps[arm])
    return total/STEPS/float(gaps.mean())


def errors(prior, table, names, seed):
    "Errors of predictions of real properties from half of the domain."
    out, order = {}, np.random.default_rng([44, seed]).permutation(ARMS)
    for t in names:
        y = table[t].to_numpy(float)
        says = Surrogate([prior]).learn(order[:ARMS//2].tolist(), y[order[:ARMS//2]].tolist()).mean
        out[f"rmse_{t}"] = np.sqrt(((says.numpy() - y)[order[ARMS//2:]]**2).mean())/y.std()
    return out


def rows(name, N, seed, domain, table):
    "One row for each kernel."
    kernels = {k: LIMITS[k]().gram(domain) for k in ("graph", "vector")}
    priors = {k: Prior.kernel(K).standard for k, K in kernels.items()}
    f = priors["graph"].root @ torch.from_numpy(np.random.default_rng([45, N, seed])
                                                .standard_normal(ARMS))
    for inputs, K in kernels.items():
        rng, e = np.random.default_rng([46, N, seed]), torch.linalg.eigvalsh(K).clamp(min=0)
        yield dict(set=name, N=N, seed=seed, inputs=inputs, graphs=ARMS,
                   gain=max_information_gain(K, STEPS, LAM), dimension=float((e/(e + LAM)).sum()),
                   regret=regret(priors[inputs], f, rng), **covered(K, rng),
                   **errors(priors[inputs], table, TARGETS[name], seed))


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write")
    cli.add_argument("--folder", type=Path, help="where Lipophilicity.csv is")
    cli.add_argument("--sets", nargs="+", default=list(SIZES), choices=SIZES)
    cli.add_argument("--domains", type=int, default=20, help="fresh domains of every size")
    o = cli.parse_args()
    torch.set_num_threads(1)
    found = []
    for name in o.sets:
        groups = {} if name == "random" else molecules(name, o.folder)
        for seed in progress_bar(range(o.domains), name):
            for N, domain, table in domains(name, groups, seed):
                found += rows(name, N, seed, domain, table)
    write_table(o.path, pd.DataFrame(found).sort_values(KEY), 5)


if __name__ == "__main__": main()
