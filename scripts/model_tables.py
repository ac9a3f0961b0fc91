"""Tables of what defaults and choices are worth, on random graphs and molecules; tables.py makes
them. The molecules need the extras `molecules` and `qm9`; --only leaves them out."""
import math
from itertools import product

import numpy as np
import torch
from molecule_tables import Pool, found, qm9_rows, standard  # the scripts beside this one
from tables import Table

from gnn_bandits.bandits import make_algorithm, run_bandit
from gnn_bandits.campaigns import virtual
from gnn_bandits.features import GNTKFeatures
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import read_smiles
from gnn_bandits.priors import Prior
from gnn_bandits.rewards import Environment, RewardOptions, sample_reward
from gnn_bandits.scale import LazyPosterior, Library
from gnn_bandits.surrogate import (POWERS, Measured, Spectra, Standardised, candidate_priors,
                                   units_of, with_power)

TARGETS = "gap", "dipole", "U0"


def drawn(N, p, seed):
    "A random domain of 200 graphs and a reward of its own."
    graphs, reward = (np.random.default_rng([seed, N, round(1000*p), k]) for k in (0, 1))
    domain = GraphDomain.erdos_renyi(200, N, p, 10, graphs)
    return domain, sample_reward(domain, reward)


def practice(prior, f, noise, T, seed, preset, name):
    "One run of a bandit: its history, the environment and the algorithm."
    env = Environment(prior.domain, f, noise, rng=np.random.default_rng([seed, 2]))
    alg = make_algorithm(name, prior=prior, rng=np.random.default_rng([seed, 3]), preset=preset)
    return run_bandit(alg, env, T), env, alg


# The default options against the paper's practice; the defaults were chosen on other seeds

BANDITS = [("default", "GNN-UCB"), ("default", "GNN-PE"), ("default", "GNN-TS"),
           ("default", "GNN-EI"), ("paper", "GNN-UCB"), ("paper", "GNN-PE"), ("default", "Random")]
NINE = [(N, p) for N in (5, 20, 100) for p in (0.05, 0.2, 0.95)]


def default_keys():
    "Twenty random domains of each population, five pools of molecules."
    random = product(("N = 20, p = 0.2", "all nine"), ["gntk"], ("0.01", "0.1 sd"),
                     range(5000, 5020), BANDITS)
    molecules = product(["qm9"], TARGETS, ["0.1 sd"], range(5000, 5005), BANDITS)
    return sorted((*k, *recipe) for *k, recipe in (*random, *molecules))


def regrets(history, env, alg, T):
    "Regrets in units of the mean gap, what was found in deviations of the rewards."
    h, gaps, spread = history, env.gaps.numpy(), float(env.f.std(correction=0))
    top = set(np.argsort(gaps, kind="stable")[:10].tolist())
    return dict(regret=h.regret.sum()/gaps.mean(), half_regret=h.regret[:T//2].sum()/gaps.mean(),
                inference_regret=h.inference_regret.sum()/gaps.mean(),
                best_observed_regret=h.best_observed_regret.sum()/gaps.mean(),
                found=gaps[h.arms].min()/spread, believed=gaps[int(alg.mean.argmax())]/spread,
                top_ten=len(top & set(h.arms.tolist())), distinct=len(set(h.arms.tolist())))


def molecule(smiles):
    "Adjacency and atom features, or nothing if the SMILES cannot be read."
    from rdkit import Chem
    m = Chem.MolFromSmiles(smiles)
    if m is None: return None
    x = [[*(a.GetAtomicNum() == e for e in (6, 7, 8, 9)), a.GetDegree(), a.GetTotalNumHs(),
          a.GetFormalCharge(), a.GetIsAromatic(), a.IsInRing(),
          *(str(a.GetHybridization()) == h for h in ("SP", "SP2", "SP3")), 1] for a in m.GetAtoms()]
    return Chem.GetAdjacencyMatrix(m), np.array(x, float)


def plain_pool(seed, n=1000):
    "A pool whose atom features are divided by their spread, and the rows of its molecules."
    rows = qm9_rows(TARGETS, [99, seed], n*21//20)
    read = [(i, g) for i, s in enumerate(rows["smiles"]) if (g := molecule(s)) is not None][:n]
    spread = np.concatenate([x for _, (_, x) in read]).std(0)
    spread[spread < 1e-12] = 1
    domain = GraphDomain.from_arrays([a for _, (a, _) in read], [x/spread for _, (_, x) in read])
    return domain, rows.iloc[[i for i, _ in read]]


def defaults(keys, o):
    "The default options against the paper's practice, on random domains and pools of molecules."
    population, _, _, seed, *_ = keys[0]
    T = 100 if population == "qm9" else 200
    if population == "qm9": domain, rows = plain_pool(seed)
    else: domain, f = drawn(*(NINE[seed % 9] if population == "all nine" else (20, 0.2)), seed)
    prior = Prior.gntk(domain)
    for k in keys:
        if population == "qm9": f = torch.from_numpy(rows[k[1]].to_numpy(float).copy())
        noise = 0.01 if k[2] == "0.01" else 0.1*float(f.std(correction=0))
        yield dict(zip(BANDIT_KEY, k)) | regrets(*practice(prior, f, noise, T, *k[3:]), T)


# Simulated laboratories: campaigns with untouched defaults; these were chosen on other seeds

SIX = [(N, p) for N in (5, 20) for p in (0.05, 0.2, 0.95)]
CAMPAIGNS = [("ucb", 1), ("ucb", 5), ("ucb", 20), ("random", 1), ("paper GNN-UCB", 1),
             ("paper GNN-PE", 1)]
GAPS = (*(f"gap_{s}" for s in (10, 20, 30, 50, 75, 100)), "mean_gap", "top_ten", "found_at")


def laboratory_keys():
    "Twenty random domains, and ten pools of molecules with three properties each."
    target = lambda seed: "N={}, p={}".format(*SIX[seed % 6])
    return sorted([*(("random graphs", target(s), "0.1 sd", s, *r) for s in range(7000, 7020)
                     for r in (*CAMPAIGNS, ("ei", 1))),
                   *(("qm9", t, "0.1 sd", s, *r) for s in range(7000, 7010) for t in TARGETS
                     for r in (*CAMPAIGNS, ("tanimoto ucb", 1)))])


def laboratories(keys, o):
    "Campaigns with untouched defaults against random picking, the paper's practice and a rival."
    population, _, _, seed, *_ = keys[0]
    pool = Pool(qm9_rows(TARGETS, [98, seed], 1050), 1000) if population == "qm9" else None
    domain, f = (pool.domain, None) if pool else drawn(*SIX[seed % 6], seed)
    priors, rival, paper = candidate_priors(domain), None, None
    for key in keys:
        _, target, _, _, recipe, batch = key
        values = pool.values[target].to_numpy(float) if pool else f.numpy()
        noise = 0.1*values.std()
        if recipe.startswith("paper"):
            paper = paper or Prior.gntk(domain)
            arms = practice(paper, torch.tensor(values), noise, 100, seed, "paper",
                            recipe.split()[1])[0].arms
        else:
            if recipe.startswith("tanimoto"): rival = rival or standard(pool.tanimoto)[0]
            arms = virtual(rival if recipe.startswith("tanimoto") else priors, values, 100,
                           recipe.split()[-1], batch=batch, noise_std=noise,
                           rng=np.random.default_rng([seed, 4]))["arm"].to_numpy()
        all_of_it = found(arms, values)
        yield dict(zip(CAMPAIGN_KEY, key)) | {k: all_of_it[k] for k in GAPS}


# What the surrogate's choices are worth

TIMES, NOISE, SHARES = (10, 30, 100), 0.1, (0., 0.75, 1.)


def random_pool(i):
    "A random domain of 300 graphs; a draw from the kernel of some depth, and its exponential."
    rng = np.random.default_rng([5, i])
    N, p, L = int(rng.choice([6, 10, 20])), float(rng.choice([.1, .2, .4])), int(rng.integers(1, 4))
    adjacency = [np.triu(rng.random((N, N)) < p, 1) for _ in range(300)]
    domain = GraphDomain.from_arrays([(a | a.T).astype(float) for a in adjacency],
                                     list(rng.standard_normal((300, N, 6))))
    hops = int(rng.choice([0, 1, 2]))
    f = np.asarray(sample_reward(domain.with_hops(hops), rng=rng, options=RewardOptions(L=L)))
    return domain, {"draw": f, "exp": np.exp(1.5*(f - f.mean())/f.std())}


def qm9_pool(i):
    "A thousand molecules and three properties."
    rows = qm9_rows(TARGETS, [15, i], 1000)
    read = read_smiles(rows["smiles"].tolist(), invalid="skip")
    some = rows.iloc[read.rows]
    return read.domain, {t: some[t].to_numpy().copy() for t in TARGETS}


def fit(K, arms, y, powers=(1.,)):
    "Density, record, unexplained variance and scale of each power, best first."
    S = torch.tensor(arms)
    data = Measured(arms, y.tolist(), [math.nan]*len(y))
    records = [Standardised(data, with_power(units_of(data), p, data)) for p in powers]
    best = Spectra(K[S][:, S], records).best()
    each = [(v.log_density - 2*(r.units.power - 1)**2, r, math.exp(v.log_tau),
             math.exp(v.log_scale))
            for r, v in zip(records, best)]
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
    user = lambda z: r.units.user(z).numpy()
    new = np.setdiff1d(np.arange(len(f)), arms)
    row = dict(power=r.units.power, tau=tau,
               rmse=np.sqrt(((user(mean) - f)[new]**2).mean())/f.std())
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
            plain = [next(v for v in fits if v[1].units.power == 1) for fits in all_of]
            best = lambda of: int(np.argmax([v[0] - d for v, d in zip(of, far)]))
            k, both = best(plain), best([fits[0] for fits in all_of])
            for name, i, found in (("fixed", 0, plain[0]), ("kernel", k, plain[k]),
                                   ("power", 0, all_of[0][0]), ("both", both, all_of[both][0])):
                yield dict(t=t, choice=name, prior=labels[i], found=len(top & set(arms)),
                           gap=(f.max() - f[arms].max())/f.std(), **judge(Ks[i], arms, f, found))
            if t == max(TIMES): return
        if policy == "random": arms.append(int(order[t])); continue
        _, r, tau, a = usual
        now = Standardised(Measured(arms, y.tolist(), [math.nan]*t), r.units)
        mean, var = predict(Ks[0], arms, now, tau, a)
        score = mean + 2*(var + (tau if policy == "ucb, private" else 0)).sqrt()
        score[arms] = -math.inf
        arms.append(int(score.argmax()))


def surrogate(keys, make):
    """Campaigns on one pool, judged after 10, 30 and 100 values.

    Ten random values, then more at random or by UCB (two standard deviations, with and without the
    private variance), noise a tenth of the pool's deviation, nothing measured twice. How far
    predictions miss, how often 90 % intervals contain the true value of candidates that were not
    measured, and what was found."""
    pool, *_ = keys[0]
    domain, targets = make(pool)
    priors = candidate_priors(domain, (1, 2, 3), (0, 1, 2))
    Ks = [Prior(p.kernel, domain, "matrix", "anchors").K for p in priors]
    for _, target, policy in keys:
        rng = np.random.default_rng([6, pool, len(target)])
        yield from (dict(pool=pool, target=target, policy=policy) | row for row in
                    campaign(Ks, [p.label for p in priors], [p.nats for p in priors],
                             targets[target], policy, rng))


def surrogate_random(keys, o):
    "What choices by evidence are worth, on random domains."
    return surrogate(keys, random_pool)


def surrogate_qm9(keys, o):
    "What choices by evidence are worth, on samples of QM9."
    return surrogate(keys, qm9_pool)


def surrogate_keys(pools, *targets):
    "Every pool, property and policy."
    return lambda: [*product(range(pools), targets, ("random", "ucb", "ucb, private"))]


# What explicit features cost in regret

BETA, PULLS = 2., (10, 20, 30, 40, 50, 75, 100, 125, 150, 175, 200)
STARTS = np.random.default_rng(8).integers(10**9, size=10)


def gaps_of(posterior, f, noise, pick):
    "Regret of each pull of an upper confidence bound rule after ten random pulls."
    regret = []
    for t, e in enumerate(noise):
        arm = int(STARTS[t] % len(f)) if t < 10 else pick(posterior)
        posterior.observe(arm, float(f[arm]) + e)
        regret.append(float(f.max() - f[arm]))
    return np.array(regret)


def scale_regret(keys, o, n=10_000, noise_std=0.1):
    "A fresh domain and a reward from the prior, played with the exact kernel and with features."
    import time
    for seed, in keys:
        rng = np.random.default_rng([97, seed])
        X = GraphDomain.erdos_renyi(n, 20, 0.2, 10, rng)
        rich = GNTKFeatures(10, degree=6)
        normal = lambda *k: torch.from_numpy(rng.standard_normal(k))
        f = rich.linear(X, normal(1, len(rich)))[0] + rich.gap(X).sqrt()*normal(n)
        noise, lam = noise_std*rng.standard_normal(max(PULLS)), noise_std**2
        def start(features):
            Phi = torch.cat(list(features.blocks(X, dtype=torch.float32)))
            return LazyPosterior(Library.of(Phi, features.gap(X)), lam)
        lazy = lambda p: p.suggest(beta=BETA, repeats=True)[0]
        models = {f"degree {k}": (lambda k=k: start(GNTKFeatures(10, degree=k)), lazy)
                  for k in (1, 2, 3, 4)}
        models["exact kernel"] = (lambda: Prior.gntk(X, form="rows").start(lam),
                                  lambda p: int((p.mean + BETA*p.std).argmax()))
        for name, (begin, pick) in models.items():
            began = time.perf_counter()
            regret = gaps_of(begin(), f, noise, pick)
            took = time.perf_counter() - began
            yield from (dict(seed=seed, model=name, pulls=t, regret=regret[:t].sum(),
                             best=regret[:t].min(), seconds=took,
                             random=float(f.max() - f.mean())*t) for t in PULLS)


BANDIT_KEY = "population", "target", "noise", "seed", "preset", "algorithm"
CAMPAIGN_KEY = "population", "target", "noise", "seed", "recipe", "batch"
CHOICE_KEY = "pool", "target", "policy"
pool_of = lambda key: (key[0], key[3])                   # population and seed
TABLES = {
    "defaults": Table(defaults, BANDIT_KEY, default_keys, pool_of, 6),
    "laboratories": Table(laboratories, CAMPAIGN_KEY, laboratory_keys, pool_of, 6),
    "surrogate_random": Table(surrogate_random, CHOICE_KEY, surrogate_keys(12, "draw", "exp"),
                              lambda k: k[0], 4),
    "surrogate_qm9": Table(surrogate_qm9, CHOICE_KEY, surrogate_keys(4, *TARGETS), lambda k: k[0],
                           4),
    "scale_regret": Table(scale_regret, ("seed",), lambda: [(s,) for s in range(30)], digits=6,
                          clock=("seconds",))}
