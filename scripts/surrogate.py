"""What the surrogate's choices are worth: nbs/results/surrogate.csv.

Pools: 12 random domains of 300 graphs (a draw from the graph kernel of some depth, and the
exponential of it), and 4 samples of 1,000 molecules of QM9 (gap, dipole, U0). Ten random values,
then more at random or by UCB (two standard deviations, with and without the private variance),
noise a tenth of the pool's deviation, nothing measured twice. After 10, 30 and 100 values: how far
predictions miss, how often 90 % intervals contain the true value of candidates that were not
measured, and what was found.

    python scripts/surrogate.py random nbs/results/surrogate_random.csv
    python scripts/surrogate.py qm9 nbs/results/surrogate_qm9.csv
"""
import math, sys
from functools import cache

import numpy as np
import pandas as pd
import torch

from gnn_bandits.core import write_table
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import qm9, read_smiles
from gnn_bandits.rewards import RewardOptions, sample_reward
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import POWERS, Record, Spectra, candidate_priors, unbend, unit_of

TIMES, NOISE, SHARES = (10, 30, 100), 0.1, (0., 0.75, 1.)


def random_pool(i):
    "A random domain and two rewards on it."
    rng = np.random.default_rng([5, i])
    N, p, L = int(rng.choice([6, 10, 20])), float(rng.choice([.1, .2, .4])), int(rng.integers(1, 4))
    adjacency = [np.triu(rng.random((N, N)) < p, 1) for _ in range(300)]
    domain = GraphDomain.from_arrays([(a | a.T).astype(float) for a in adjacency],
                                     list(rng.standard_normal((300, N, 6))))
    hops = int(rng.choice([0, 1, 2]))
    f = np.asarray(sample_reward(domain.with_hops(hops), rng=rng, options=RewardOptions(L=L)))
    return domain, {"draw": f, "exp": np.exp(1.5*(f - f.mean())/f.std())}


@cache
def all_molecules():
    "QM9 as a table."
    return qm9()


def qm9_pool(i):
    "A thousand molecules and three properties."
    table = all_molecules()
    rows = np.random.default_rng([15, i]).choice(len(table), 1000, replace=False)
    read = read_smiles(table.smiles.iloc[rows].tolist(), invalid="skip")
    some = table.iloc[rows].iloc[read.rows]
    return read.domain, {t: some[t].to_numpy().copy() for t in ("gap", "dipole", "U0")}


def fit(K, arms, y, powers=(1.,)):
    "Density, record, unexplained variance and scale of each power, best first."
    S = torch.tensor(arms)
    records = [Record(arms, y, np.full(len(y), np.nan), *unit_of(y), p) for p in powers]
    found = Spectra(K[S][:, S], records).best()
    each = [(v[2] - 2*(r.power - 1)**2, r, math.exp(v[0]), math.exp(v[1]))
            for r, v in zip(records, found)]
    return sorted(each, key=lambda v: -v[0])


def predict(K, arms, record, tau, a):
    "Means and variances of what the kernel explains, at all arms, in the unit of the record."
    S = torch.tensor(arms)
    C = torch.linalg.cholesky(a*K[S][:, S] + tau*torch.eye(len(S), dtype=K.dtype))
    A = torch.linalg.solve_triangular(C, a*K[S], upper=False)
    b = torch.linalg.solve_triangular(C, record.z[:, None], upper=False)[:, 0]
    return A.T @ b, (a*K.diagonal() - A.square().sum(0)).clamp(min=0)


def judge(K, arms, f, found):
    "Miss and coverage at arms that were not measured."
    _, r, tau, a = found
    mean, var = predict(K, arms, r, tau, a)
    user = lambda z: (r.shift + r.unit*unbend(r.middle[0] + r.middle[1]*z, r.power)).numpy()
    new = np.setdiff1d(np.arange(len(f)), arms)
    row = dict(power=r.power, tau=tau, rmse=np.sqrt(((user(mean) - f)[new]**2).mean())/f.std())
    for s in SHARES:
        half = 1.6449*(var + s*tau).sqrt()
        inside = (user(mean - half) <= f) & (f <= user(mean + half))
        row[f"cover_{s:g}"] = inside[new].mean()
    return row


def campaign(Ks, labels, far, f, policy, rng):
    "One campaign with the usual kernel, judged under all ways of choosing."
    n, order = len(f), rng.permutation(len(f))
    eps, top = NOISE*f.std()*rng.standard_normal(n), set(np.argsort(f)[-10:].tolist())
    arms = order[:10].tolist()
    while True:
        t, y = len(arms), (f + eps)[arms]
        if t <= 50 or t % 5 == 0: usual = fit(Ks[0], arms, y)[0]
        if t in TIMES:
            all_of = [fit(K, arms, y, POWERS) for K in Ks]
            plain = [next(v for v in found if v[1].power == 1) for found in all_of]
            best = lambda of: int(np.argmax([v[0] - d for v, d in zip(of, far)]))
            k, both = best(plain), best([found[0] for found in all_of])
            for name, i, found in (("fixed", 0, plain[0]), ("kernel", k, plain[k]),
                                   ("power", 0, all_of[0][0]), ("both", both, all_of[both][0])):
                yield dict(t=t, choice=name, prior=labels[i], found=len(top & set(arms)),
                           gap=(f.max() - f[arms].max())/f.std(), **judge(Ks[i], arms, f, found))
            if t == max(TIMES): return
        if policy == "random": arms.append(int(order[t])); continue
        _, r, tau, a = usual
        now = Record(arms, y, np.full(t, np.nan), r.shift, r.unit)
        mean, var = predict(Ks[0], arms, now, tau, a)
        score = mean + 2*(var + (tau if policy == "ucb, private" else 0)).sqrt()
        score[arms] = -math.inf
        arms.append(int(score.argmax()))


def main(kind, out):
    torch.set_num_threads(1)
    make, pools = {"random": (random_pool, 12), "qm9": (qm9_pool, 4)}[kind]
    rows = []
    for i in range(pools):
        domain, targets = make(i)
        priors = candidate_priors(domain, (1, 2, 3), (0, 1, 2))
        Ks = [Prior(p.kernel, domain, "matrix", "anchors").K for p in priors]
        for name, f in targets.items():
            for policy in ("random", "ucb", "ucb, private"):
                rng = np.random.default_rng([6, i, len(name)])
                rows += [dict(pool=i, target=name, policy=policy) | row for row in
                         campaign(Ks, [p.label for p in priors], [p.nats for p in priors], f,
                                  policy, rng)]
        write_table(out, pd.DataFrame(rows), 4)
        print(kind, i, flush=True)


if __name__ == "__main__": main(*sys.argv[1:])
