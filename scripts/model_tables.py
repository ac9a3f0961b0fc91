"""Tables of what defaults and choices are worth, on random graphs and molecules; tables.py makes
them. The molecules need the extras `molecules` and `qm9`; --only leaves them out."""
import math
import tempfile
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import torch
from molecule_tables import Pool, found, qm9_rows, standard  # the scripts beside this one
from tables import Table

from gnn_bandits.bandits import make_algorithm, run_bandit
from gnn_bandits.campaigns import Campaign, virtual
from gnn_bandits.core import Bound, first_best
from gnn_bandits.features import GNTKFeatures
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import read_smiles
from gnn_bandits.posterior import gram_root
from gnn_bandits.priors import Prior
from gnn_bandits.rewards import Environment, RewardOptions, sample_reward
from gnn_bandits.scale import LazyPosterior, Library
from gnn_bandits.surrogate import (POWERS, Fit, Learned, Measured, Spectra, Standardised,
                                   Surrogate, Units, candidate_priors, units_of, with_power)

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


def qm9_pool(i, n=1000):
    "A thousand molecules and three properties."
    rows = qm9_rows(TARGETS, [15, i], n)
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


# Are intervals right as often as they say? With values from the model itself, and in campaigns

DRAWS, LEVELS, MOMENTS = 50, (0.5, 0.9, 0.99), (10, 20, 40)
FITTED = 4 # Pools for which a surrogate is fitted, too
WORLDS = {"noise 0.03": dict(noise=0.03), "noise 0.3": dict(noise=0.3), "noise 1": dict(noise=1.),
          "private 0.3": dict(noise=0.1, private=0.3), "known noise": dict(noise=0.3, own=True),
          "replicates": dict(noise=0.3, arms=7), "bounds": dict(noise=0.3, limit=0.5),
          "bounds, replicates": dict(noise=0.3, limit=0.5, arms=7),
          "chosen by UCB": dict(noise=0.3, ucb=True),
          "noise 1, taken for 0.5": dict(noise=1., taken=0.5)}


def simulated(K, domain, rng, noise, private=0., arms=20, limit=math.inf, ucb=False, own=False,
              taken=None):
    "True values from the model, twenty measurements, and a posterior that knows the variances."
    n, prior = len(domain), Prior.kernel(K)
    f = gram_root(K).numpy() @ rng.standard_normal(n) + private*rng.standard_normal(n)
    some, data = rng.permutation(n)[:arms].tolist(), Measured([], [], [])
    exact = Learned(Fit(0, prior, Units(0., 1.), 1., private**2, (taken or noise)**2), data)
    for t in range(20):
        arm = some[t % arms]
        if ucb and t >= 5: arm = first_best(exact.latent.mean + 2*exact.latent.std)
        y = f[arm] + noise*rng.standard_normal()
        data += Measured([arm], [min(y, limit)], [noise if own else math.nan], [int(y > limit)])
        if ucb: exact.catch_up(data)
    exact.catch_up(data)
    return f, data, exact.latent


def ranks(f, latent, some, private, rng, count=99):
    "How many draws lie below the true value, of some arms and of the best value of the pool."
    never = np.setdiff1d(np.arange(len(f)), latent.arms)
    draws = np.array([latent.draw(rng).numpy() for _ in range(count)])
    draws[:, never] += private*rng.standard_normal((count, len(never)))
    return {k: int((draws[:, a] < f[a]).sum()) for k, a in some.items()} | dict(
        best=int((draws.max(1) < f.max()).sum()))


def places(f, model, some):
    "Between which of 19 quantiles of the model a true value lies, and whether within 99 %."
    ends = [v for k in range(1, 10) for v in model.interval(k/10)]
    below = (torch.stack([*ends, model.mean]) < f).sum(0)
    low, high = model.interval(0.99)
    return {f"fitted_{k}": int(below[a]) for k, a in some.items()} | {
        f"inside_{k}": int(low[a] <= f[a] <= high[a]) for k, a in some.items()}


def calibration(keys, o):
    """Ranks of true values that were drawn from the model, sixty graphs and twenty measurements.

    The posterior with the true variances, by 99 draws from it; and sometimes a surrogate that has
    to find everything, in another unit, by 19 of its quantiles. Of a measured graph, of one that
    was not, of the one with the largest mean, and (by draws) of the best value of the pool."""
    for pool, case in keys:
        rng = np.random.default_rng([41, pool, zlib.crc32(case.encode())])
        domain = GraphDomain.erdos_renyi(60, 6, 0.3, 4, rng)
        priors = candidate_priors(domain)
        K = Prior.gntk(domain).standard.K
        for draw in range(DRAWS):
            f, data, latent = simulated(K, domain, rng, **WORLDS[case])
            seen, new = rng.choice(data.distinct), rng.choice(
                np.setdiff1d(np.arange(60), data.distinct))
            some = dict(measured=seen, new=new, leader=first_best(latent.mean))
            row = ranks(f, latent, some, WORLDS[case].get("private", 0.), rng)
            user = lambda v: 10 + 3*np.asarray(v)
            told = [Bound(v, s) if s else v for v, s in zip(user(data.values), data.sense)]
            own = [3*v for v in data.noise]
            every = 5 if "limit" in WORLDS[case] else 2          # bounds take long to fit
            if pool < FITTED and "taken" not in WORLDS[case] and draw % every == 0:
                model = Surrogate(priors).learn(data.arms, told, own)
                row |= places(torch.from_numpy(user(f)), model, some)
            yield dict(pool=pool, case=case, draw=draw) | row


def asked(domain, f, seed):
    "What a campaign with untouched defaults says as it goes, asked for five candidates at a time."
    rng, n = np.random.default_rng([42, seed]), len(f)
    with tempfile.TemporaryDirectory() as home:
        c = Campaign.create(Path(home)/"lab", domain, seed=seed)
        for t in range(5, max(MOMENTS) + 1, 5):
            arms = list(c.ask(5))
            c.tell(arms, f[arms] + NOISE*f.std()*rng.standard_normal(5))
            if t not in MOMENTS: continue
            model, seen = c.surrogate(), np.unique(c.observations["arm"])
            row, new = dict(t=t), np.setdiff1d(np.arange(n), seen)
            leader = int(c.best()["arm"].iloc[0])
            for level in LEVELS:
                low, high = (v.numpy() for v in model.interval(level))
                inside = (low <= f) & (f <= high)
                row |= {f"{k}_{100*level:g}": inside[some].mean() for k, some in
                        (("new", new), ("measured", seen), ("leader", [leader]))}
            proof, field = c.certificate(), c.contenders()
            best, low = f.max(), proof["value"]
            yield row | dict(
                certificate=int(f[leader] >= low and best <= low + proof["bound"]),
                bound=proof["bound"]/f.std(), among=int(int(f.argmax()) in field["arms"]),
                contenders=len(field["arms"]), p_first=field["p_best"][0],
                first=int(f[field["arms"][0]] == best), p_measured=field["measured"],
                found=int(f[seen].max() == best))


def intervals(keys, o):
    """Campaigns asked by UCB on random graphs and molecules: what they say, and whether it is true.

    The share of true values within intervals of 50, 90 and 99 %, of graphs that were not measured,
    of those that were, and of the one that the campaign calls the best. Whether certificate and
    contenders (90 %) hold, and how probably the best one is the first contender, and measured."""
    kind, pool, *_ = keys[0]
    domain, targets = qm9_pool(pool, 500) if kind == "qm9" else random_pool(pool)
    for _, _, target in keys:
        for row in asked(domain, targets[target], pool):
            yield dict(kind=kind, pool=pool, target=target) | row


BANDIT_KEY = "population", "target", "noise", "seed", "preset", "algorithm"
CAMPAIGN_KEY = "population", "target", "noise", "seed", "recipe", "batch"
CHOICE_KEY = "pool", "target", "policy"
interval_keys = lambda: [*product(["random"], range(100, 108), ("draw", "exp")),
                         *product(["qm9"], range(100, 104), TARGETS)]
pool_of = lambda key: (key[0], key[3])                   # population and seed
TABLES = {
    "defaults": Table(defaults, BANDIT_KEY, default_keys, pool_of, 6),
    "laboratories": Table(laboratories, CAMPAIGN_KEY, laboratory_keys, pool_of, 6),
    "surrogate_random": Table(surrogate_random, CHOICE_KEY, surrogate_keys(12, "draw", "exp"),
                              lambda k: k[0], 4),
    "surrogate_qm9": Table(surrogate_qm9, CHOICE_KEY, surrogate_keys(4, *TARGETS), lambda k: k[0],
                           4),
    "calibration": Table(calibration, ("pool", "case"), lambda: [*product(range(10), WORLDS)],
                         ending=".csv.gz", unfinished=True),
    "intervals": Table(intervals, ("kind", "pool", "target"), interval_keys, lambda k: k[:2], 4),
    "scale_regret": Table(scale_regret, ("seed",), lambda: [(s,) for s in range(30)], digits=6,
                          clock=("seconds",))}
