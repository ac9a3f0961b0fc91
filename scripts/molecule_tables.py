"""Molecules: our campaigns and predictions beside those of others; tables.py makes the tables.

All recipes have the same pools, starts, noise and budget; only recipes that ask for ten at a time
have starts of their own, the same among them. Seeds from 9000 are for the test, seeds from 6000
were for choosing settings. The extras `molecules` and `qm9` are needed, by the rivals `sklearn` and
`botorch`; other sets of molecules are looked for in --folder or in the installed packages.
"""
import json, multiprocessing, resource, subprocess, sys, tempfile, time
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from tables import Table                                 # the script beside this one

from gnn_bandits.campaigns import Campaign, CampaignPolicy, propose, virtual
from gnn_bandits.core import optional
from gnn_bandits.kernels import Counts, Overlap
from gnn_bandits.molecules import (ATOM_FEATURES, BONDS, ELEMENTS, load_molecules, qm9, qm9_files,
                                   read_smiles, tanimoto)
from gnn_bandits.priors import Prior
from gnn_bandits.relations import counts, neighbours
from gnn_bandits.surrogate import (FREEDOM, Surrogate, candidate_priors, student_log_density,
                                   weighed_sum)

TARGETS = "gap", "dipole", "U0", "polarisability"
SETS = {"photoswitch": ("E_pi",), "esol": ("log_solubility",), "freesolv": ("hydration",),
        "lipophilicity": ("logD",), "buchwald": ("yield",), "suzuki": ("yield",),
        "chemml": ("polarisability", "density", "refractive_index")}
SIZES = dict.fromkeys(SETS, 1000) | dict(photoswitch=294, esol=846, freesolv=481) # Of a pool
KEY = "size", "target", "noise", "seed", "recipe", "batch"
KEY_PREDICTION = "size", "target", "noise", "seed", "model", "n"
STEPS, TRAIN, LEVELS = (10, 20, 30, 50, 75, 100), (50, 100, 300, 1000), (0.5, 0.9, 0.99)
BUDGET = 100 # Measurements in a campaign
REFIT = 5 # Measurements between two fits of the forest; a fit at each takes five times as long


# Sets of molecules

@cache
def all_qm9(): return qm9(TARGETS)


def qm9_rows(targets, seed, k):
    "Some molecules of QM9."
    rows = all_qm9()
    return rows.iloc[np.random.default_rng(seed).choice(len(rows), k, replace=False)][
        ["smiles", *targets]]


@cache
def isomers():
    "The molecules of QM9 with 10 H, 7 C and 2 O, no N and no F."
    column = ["Stoichiometry"]
    parts = pd.concat([pd.read_csv(f, usecols=column) for f in qm9_files()], ignore_index=True)
    return all_qm9()[[json.loads(s) == [10, 7, 0, 2, 0] for s in parts["Stoichiometry"]]]


@cache
def other_set(name, folder):
    "The molecules of a set whose properties are all known, with the set in the names of these."
    columns = {t: f"{name} {t}" for t in SETS[name]}
    rows = load_molecules(name, folder)[["smiles", *columns]].dropna()
    return rows.rename(columns=columns)


class Pool:
    "Some molecules, their properties, and what several recipes are made from."
    def __init__(self, rows, size):
        read = read_smiles(rows["smiles"].tolist(), invalid="skip")
        self.domain, self.smiles = read.domain[:size], read.canonical[:size]
        self.values = rows.iloc[read.rows[:size]]
    def __len__(self): return len(self.domain)
    def sums(self, x):
        "The sum of some numbers of the atoms over each molecule."
        owner = torch.repeat_interleave(torch.arange(len(self)), self.domain.sizes)
        return torch.zeros(len(self), x.shape[1], dtype=x.dtype).index_add(0, owner, x)
    @cached_property
    def molecules(self): return [optional("rdkit.Chem", "molecules").MolFromSmiles(s)
                                 for s in self.smiles]
    @cached_property
    def bag(self): return self.sums(self.domain.raw)
    @cached_property
    def tanimoto(self): return tanimoto(self.smiles)
    @cached_property
    def columns(self):
        "Counts of Morgan substructures beside the bag of atoms, for the forest."
        make = optional("rdkit.Chem.rdFingerprintGenerator", "molecules").GetMorganGenerator
        counts = [make(radius=2, fpSize=2048).GetCountFingerprintAsNumPy(m) for m in self.molecules]
        X = np.column_stack([np.stack(counts), self.bag.numpy()]).astype(np.float32)
        return X[:, X.std(0) > 0]


def gntk_only(pool):
    "The graph kernel of the paper: depths 1 to 3, 0 to 2 hops, chosen by evidence."
    return candidate_priors(pool.domain, (1, 2, 3), (0, 1, 2))


def standard(K):
    "A kernel centred over the pool, with a mean diagonal of one, as a list of priors."
    return [Prior.kernel(K).standard]


def tanimoto_and_bag(pool):
    "Both kernels with equal weights, each centred and scaled first."
    return standard(standard(pool.tanimoto)[0].K + standard(pool.bag @ pool.bag.T)[0].K)


def gntk_and_tanimoto(pool):
    "The graph kernel of the paper, depth 2 and one hop, and the Tanimoto kernel, alike."
    K = candidate_priors(pool.domain, 2, 1)[0].block(range(len(pool)))
    return standard(K + standard(pool.tanimoto)[0].K)


def wl_gp(pool):
    "Weisfeiler-Lehman, three rounds, from the element, or also hydrogens, charge and aromaticity."
    d, element = pool.domain, (*ELEMENTS, "number of other element")
    labels = [d.raw[:, [ATOM_FEATURES.index(k) for k in (*element, *more)]].numpy()
              for more in ((), ("hydrogens", "charge", "aromatic"))]
    seen = [counts(d, x, 3)[0] for x in labels]  # a neighbour counts with its bond
    K = [torch.from_numpy((C @ C.T).toarray()) for C in seen]
    return [standard(k/k.diagonal().sqrt()/k.diagonal().sqrt()[:, None])[0] for k in K]


def fragments(molecules):
    "All descriptors of rdkit, one row a molecule."
    describe = optional("rdkit.Chem.Descriptors", "molecules").CalcMolDescriptors
    return torch.tensor([list(describe(m).values()) for m in molecules], dtype=torch.float64)


def gaussian(X):
    "An RBF kernel on descriptors that are known; half, once or twice the median distance."
    X = X[:, X.isfinite().all(0)]
    X = X[:, X.std(0) > 1e-9*X.abs().amax(0).clamp(min=1)]
    D = torch.cdist(Z := (X - X.mean(0))/X.std(0), Z)
    middle = D[torch.triu_indices(len(D), len(D), 1).unbind()].median()
    return [standard(torch.exp(-(D/(s*middle))**2/2))[0] for s in (1, 0.5, 2)]


MODELS = {"ours": lambda pool: candidate_priors(pool.domain), # What a campaign uses by default
          "gntk only": gntk_only, "tanimoto": lambda pool: standard(pool.tanimoto),
          "tanimoto + bag": tanimoto_and_bag, "bag": lambda pool: standard(pool.bag @ pool.bag.T),
          "gntk + tanimoto": gntk_and_tanimoto, "WL": wl_gp,
          "fragments": lambda pool: gaussian(fragments(pool.molecules)),
          "ours weighed": lambda pool: [weighed_sum(pool.domain)], # Weights of the sum by evidence
          "random": lambda pool: [Prior.kernel(torch.eye(len(pool), dtype=torch.float64))]}


def grow(pool, arms, told):
    "What each tree of a forest says of every molecule, (100, n)."
    trees = optional("sklearn.ensemble", "sklearn").RandomForestRegressor(100, random_state=0)
    trees.fit(pool.columns[arms], told)
    return np.stack([t.predict(pool.columns) for t in trees.estimators_])


def start_networks(d, kinds):
    "Weights of all members of an ensemble of graph networks, by name."
    g, H = torch.Generator().manual_seed(0), WIDTH
    shapes = {"atom": (d, H), "wide": (H, H), "wide_level": (1, H), "last": (H, 1)}
    for k in range(LAYERS): shapes |= {f"bond{k}": (kinds, H), f"in{k}": (H, H),
                                       f"level{k}": (1, H), f"out{k}": (H, H)}
    scale = lambda s: (2/s[0])**0.5 if s[0] > 1 else 0.
    return {k: (scale(s)*torch.randn(MEMBERS, *s, generator=g)).requires_grad_()
            for k, s in shapes.items()}


def as_tensors(domain, unit):
    "Features, bonds in both directions with their kinds, and the graph of each atom."
    v, u, kind, _ = (torch.from_numpy(a) for a in neighbours(domain))
    owner = torch.repeat_interleave(torch.arange(len(domain)), domain.sizes)
    kind, bond = torch.eye(1 + len(BONDS))[kind], kind > 0
    return domain.raw.float(), v[bond], u[bond], kind[bond], owner, len(domain), unit


def network(w, x, v, u, kind, owner, n, unit):
    "Graph networks with bond types (GINE), sum over atoms: (members, n)."
    h = torch.relu(x @ w["atom"])
    for k in range(LAYERS):
        sent = torch.relu(h.index_select(1, u) + kind @ w[f"bond{k}"])
        inner = torch.baddbmm(w[f"level{k}"], h.index_add(1, v, sent), w[f"in{k}"])
        h = h + torch.relu(inner) @ w[f"out{k}"]/LAYERS
    whole = h.new_zeros(MEMBERS, n, WIDTH).index_add(1, owner, h)/unit
    return (torch.relu(torch.baddbmm(w["wide_level"], whole, w["wide"])) @ w["last"])[..., 0]


def train(pool, arms, told):
    "What each of several trained graph networks says of every molecule, (members, n)."
    y, unit = torch.tensor(told, dtype=torch.float32), float(pool.domain.sizes.double().mean())
    some, level, sd = as_tensors(pool.domain[arms], unit), y.mean(), y.std().clamp(min=1e-9)
    w = start_networks(pool.domain.d, 1 + len(BONDS))
    steps = torch.optim.AdamW(w.values(), RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        loss = (network(w, *some) - (y - level)/sd).square().mean(1).sum()
        steps.zero_grad(), loss.backward(), steps.step()
    with torch.no_grad(): return (level + sd*network(w, *as_tensors(pool.domain, unit))).numpy()


MEMBERS, WIDTH, LAYERS, EPOCHS, RATE, DECAY = 5, 32, 3, 60, 1e-2, 1e-2 # Of trained networks
ENSEMBLES = {"random forest": (grow, REFIT), "trained GNN ensemble": (train, 2*REFIT)}


def bounds(fit, every, pool):
    "Upper bounds by an ensemble: mean and two standard deviations of its members."
    last = {}
    def score(arms, told):
        if not last or len(arms) >= last["t"] + every: last.update(t=len(arms),
                                                                   says=fit(pool, arms, told))
        return last["says"].mean(0) + 2*last["says"].std(0)
    return score


def tanimoto_process(pool):
    "Fits a Tanimoto Gaussian process of BoTorch by marginal likelihood, as in GAUCHE."
    gpytorch, fit = optional("gpytorch", "botorch"), optional("botorch.fit", "botorch")
    botorch = optional("botorch.models.gpytorch", "botorch")

    class Tanimoto(gpytorch.kernels.Kernel):
        "Looks the similarity up by the numbers of the molecules."
        def forward(self, a, b, diag=False, **params):
            a, b = a[..., 0].long(), b[..., 0].long()
            return pool.tanimoto[a, b] if diag else pool.tanimoto[a[..., None], b[..., None, :]]

    class Model(gpytorch.models.ExactGP, botorch.GPyTorchModel):
        "Constant mean, scaled kernel."
        num_outputs = 1
        def __init__(self, X, y):
            super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(Tanimoto())
            self.double()
        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x),
                                                             self.covar_module(x))

    def fitted(X, y):
        model = Model(X, y)
        fit.fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
        return model
    return fitted


def scores_of_new(gain, n, arms, part):
    "An acquisition function of BoTorch at all candidates that were not measured, some at a time."
    scores, new = np.full(n, -np.inf), np.setdiff1d(np.arange(n), arms)
    parts = torch.tensor(new, dtype=torch.float64)[:, None, None].split(part)
    scores[new] = torch.cat([gain(p) for p in parts]).numpy()
    return scores


def noisy_improvement(pool):
    "qLogNEI in BoTorch of a Tanimoto Gaussian process."
    fitted = tanimoto_process(pool)
    improvement = optional("botorch.acquisition", "botorch").qLogNoisyExpectedImprovement
    def score(arms, told):
        X, y = torch.tensor(arms, dtype=torch.float64)[:, None], torch.tensor(told)
        model = fitted(X, (y - y.mean())/y.std())
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(len(arms))                 # of the samples
            return scores_of_new(improvement(model, X, prune_baseline=True), len(pool), arms, 256)
    return score


SCORERS = {m: partial(bounds, *v) for m, v in ENSEMBLES.items()}
SCORERS |= {"tanimoto qLogNEI": noisy_improvement}


class Recipe(NamedTuple):
    "How a campaign is played."
    model:str # A key of `MODELS` or of `SCORERS`
    policy:object # A name or a `CampaignPolicy`
    batch:int=1 # Suggestions at a time


GREEDY = CampaignPolicy("ucb", beta=0.)
GAUSSIAN = [m for m in MODELS if m != "random"]
RECIPES = {f"{m} ucb": Recipe(m, "ucb") for m in GAUSSIAN}
RECIPES |= {f"{m} greedy": Recipe(m, GREEDY) for m in GAUSSIAN}
RECIPES |= {f"ours {p}": Recipe("ours", p) for p in ("ei", "ts", "pe")}
RECIPES |= {f"{m} ei": Recipe(m, "ei") for m in ("tanimoto", "tanimoto + bag")}
RECIPES |= {f"{m} ucb by 10": Recipe(m, "ucb", 10) for m in ("ours", "tanimoto", "tanimoto + bag")}
RECIPES |= {"random": Recipe("random", "random")} | {m: Recipe(m, None) for m in SCORERS}


def play(score, values, budget, noise, rng):
    "The arms that a score picks after the random starts that every campaign has."
    policy, arms, told = CampaignPolicy(), [], []
    state = np.full(len(values), "available", dtype="<U9")
    while len(arms) < budget:
        if len(arms) < policy.first(len(values)):
            arm = next(a for a in rng.permutation(len(values)).tolist() if a not in arms)
        else: arm = int(np.where(state == "available", score(arms, told), -np.inf).argmax())
        arms.append(arm), told.append(values[arm] + noise*rng.standard_normal())
        state[arm] = "measured"
    return np.array(arms)


def found(arms, values):
    "What a campaign found: distance to the best value in deviations of the pool, and the top."
    gaps = (values.max() - values)/values.std()
    best, order = np.minimum.accumulate(gaps[arms]), np.argsort(gaps, kind="stable")
    first = lambda hit: np.flatnonzero(hit)[0] + 1 if hit.any() else np.nan
    hits = lambda k: len(set(order[:k]) & set(arms))
    percent = gaps[order[max(1, len(values)//100) - 1]]
    return {f"gap_{s}": best[min(s, len(best)) - 1] for s in STEPS} | dict(
        mean_gap=best.mean(), regret=gaps[arms].mean(), top_ten=hits(10), top_fifty=hits(50),
        top_ten_tied=min(10, (gaps[arms] <= gaps[order[:10]].max()).sum()), # Ties count as well
        found_at=first(best <= 1e-12), top_percent_at=first(best <= percent))


def drawn_pool(rows, size, seed):
    "A pool with a few molecules more, if some cannot be read."
    some = np.random.default_rng([96, seed]).choice(len(rows), size*21//20, replace=False)
    return Pool(rows.iloc[some], size)


def ready(model, pool):
    "The kernels of a model, made and used once, or nothing if it has none."
    if model in MODELS:
        priors = MODELS[model](pool)
        Surrogate(priors).learn(list(range(10)), np.arange(10.)).latent
        return priors
    SCORERS[model](pool)([0, 1, 2], [0., 1., 3.])


def measured(name, pool, priors, values, sd, rng):
    "The arms that a recipe measures."
    model, policy, batch = RECIPES[name]
    if priors is None: return play(SCORERS[model](pool), values, BUDGET, sd, rng)
    return virtual(priors, values, BUDGET, policy, batch=batch, noise_std=sd,
                   rng=rng)["arm"].to_numpy()


def campaigns(keys, rows):
    """Campaigns with one model on one pool.

    gap_30 is the distance to the best after 30 measurements, regret the mean distance of all
    measured, top_ten how many of the best ten were measured (top_ten_tied counts ties with the
    tenth), top_percent_at the measurement that first hit the best percent, setup the seconds to
    read the pool and make the first model, seconds the time a suggestion took.
    """
    size, _, _, seed, first, _ = keys[0]
    start, pool = time.perf_counter(), drawn_pool(rows, size, seed)
    priors = ready(RECIPES[first].model, pool)
    setup = time.perf_counter() - start
    for key in keys:
        _, target, noise, seed, name, _ = key
        values, start = pool.values[target].to_numpy(float), time.perf_counter()
        arms = measured(name, pool, priors, values, float(noise.split()[0])*values.std(),
                        np.random.default_rng([seed, 4]))
        spent = (time.perf_counter() - start)/(len(arms) - CampaignPolicy().first(len(pool)))
        yield dict(zip(KEY, key)) | found(arms, values) | dict(setup=setup, seconds=spent)


def molecules(keys, o):
    "Campaigns of many recipes on the same pools of QM9."
    return campaigns(keys, all_qm9())


def molecules_isomers(keys, o):
    "Campaigns on pools of isomers of one formula."
    return campaigns(keys, isomers())


def molecules_sets(keys, o):
    "Campaigns on other sets of molecules and of reactions."
    return campaigns(keys, other_set(keys[0][1].split()[0], o.folder))


def surrogate_says(priors, arms, told, values):
    "Means, ends of intervals and log densities of the true values by a Gaussian process."
    s = Surrogate(priors).learn(arms, told)
    units, (z, std) = s.fit.units, s._spread()
    density = student_log_density((units.latent(values) - z)/std, s.t + FREEDOM) - std.log()
    density = density + units.log_slope(values) - np.log(units.unit)
    return s.mean.numpy(), [[e.numpy() for e in s.interval(p)] for p in LEVELS], density.numpy()


def ensemble_says(by, arms, told, values):
    "The same by an ensemble, whose members are taken to scatter normally."
    says = by(arms, told)
    mean, std = says.mean(0), says.std(0).clip(1e-6*np.std(told))
    half = norm.ppf((1 + np.array(LEVELS))/2)[:, None]*std
    return mean, list(zip(mean - half, mean + half)), norm.logpdf(values, mean, std)


def predictions(keys, rows):
    "Predictions by one model on one pool, from molecules chosen at random."
    size, _, _, seed, model, _ = keys[0]
    pool = drawn_pool(rows, size, seed)
    priors = MODELS[model](pool) if model in MODELS else None
    for key in keys:
        _, target, noise, seed, _, n = key
        values, rng = pool.values[target].to_numpy(float), np.random.default_rng([seed, 5])
        arms, new = np.split(rng.permutation(len(pool)), [n])
        sd = values.std()
        told = values[arms] + float(noise.split()[0])*sd*rng.standard_normal(len(arms))
        say, by = (surrogate_says, priors) if priors else (
            ensemble_says, partial(ENSEMBLES[model][0], pool))
        mean, ends, density = say(by, arms.tolist(), told.tolist(), values)
        cover = {f"cover_{100*p:g}": ((low <= values) & (values <= high))[new].mean()
                 for p, (low, high) in zip(LEVELS, ends)}
        yield dict(zip(KEY_PREDICTION, key)) | cover | dict(
            rmse=np.sqrt(((mean - values)[new]**2).mean())/sd,
            nll=-(density + np.log(sd))[new].mean())    # as if values were in deviations


def molecules_prediction(keys, o):
    "Predictions of many models on the same pools of QM9."
    return predictions(keys, all_qm9())


def molecules_isomers_prediction(keys, o):
    "Predictions on pools of isomers of one formula."
    return predictions(keys, isomers())


# Predictions on the usual small sets, by random splits of 80 and 20 per cent

def mordred(molecules):
    "All descriptors of mordred that need no shape in space, one row a molecule."
    try: from mordred import Calculator, descriptors
    except ModuleNotFoundError as e:
        raise ImportError("the model mordred needs mordred: pip install mordredcommunity") from e
    table = Calculator(descriptors, ignore_3D=True).pandas(molecules, nproc=1, quiet=True)
    return torch.from_numpy(table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64))


MODELS_OF_SPLITS = {
    "ours": MODELS["ours"], "tanimoto": MODELS["tanimoto"], "gntk only": gntk_only,
    "overlap": lambda pool: Prior(Overlap(1, range(14)), pool.domain, "rows", "anchors"),
    "fragments": MODELS["fragments"], "mordred": lambda pool: gaussian(mordred(pool.molecules))}


@cache
def whole_set(name, folder):
    "All molecules of a set with a known property, as a pool with the SMILES of the file."
    rows = load_molecules(name, folder).dropna(subset=[SETS[name][0]])
    pool = Pool(rows, len(rows))
    pool.smiles = pool.values["smiles"].tolist()
    return pool


@lru_cache(len(MODELS_OF_SPLITS))
def model_of(name, folder, model): return MODELS_OF_SPLITS[model](whole_set(name, folder))


def splits(keys, o):
    "Predictions of the rest of a set from 80 per cent of it, by random splits."
    for name, seed, model in keys:
        y = whole_set(name, o.folder).values[SETS[name][0]].to_numpy(float)
        order = np.random.default_rng([41, seed]).permutation(len(y))
        train, test = order[:round(0.8*len(y))], order[round(0.8*len(y)):]
        s = Surrogate(model_of(name, o.folder, model)).learn(train.tolist(), y[train].tolist())
        low, high = s.interval(0.9)
        error = s.mean.numpy()[test] - y[test]
        inside = (low.numpy()[test] <= y[test]) & (y[test] <= high.numpy()[test])
        yield dict(set=name, split=seed, model=model, prior=s.facts["prior"],
                   rmse=np.sqrt((error**2).mean()), sd=y.std(), n=len(y), cover_90=inside.mean())


def split_keys():
    "Twenty splits, fewer of what is slow."
    few = {(name, m): 20 for name in list(SETS)[:3] for m in MODELS_OF_SPLITS}
    few |= {(name, m): 20 for name in ("buchwald", "lipophilicity") for m in ("ours", "tanimoto")}
    few |= {("suzuki", m): 10 for m in ("ours", "tanimoto")}
    few |= {("buchwald", "gntk only"): 17, ("buchwald", "overlap"): 17,
            ("lipophilicity", "gntk only"): 1, ("lipophilicity", "overlap"): 3,
            ("suzuki", "gntk only"): 1, ("suzuki", "overlap"): 1}
    return sorted((name, seed, m) for (name, m), k in few.items() for seed in range(k))


# The whole of QM9 as one pool: 130,831 candidates, batches of suggestions

def in_child(kind, work, *args):
    "What some work returns in a process of its own, a copy (fork) or a new one (spawn)."
    context = multiprocessing.get_context(kind)
    got, sent = context.Pipe(False)
    job = context.Process(target=answer, args=(sent, work, *args))
    job.start()
    sent.close()
    try: return got.recv()
    except EOFError: raise SystemExit(f"{work.__name__} ended without a result") from None
    finally: job.join()


def answer(sent, work, *args):
    "Do the work on one thread and send what it returns."
    torch.set_num_threads(1)
    sent.send(work(*args))


def peak_gb(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/2**20


NEAR = 1000 # Candidates that the quick choice looks at first
SHARES = (1e-4, 1e-3, 1e-2) # Parts of the pool that count as the best
KEY_QM9 = "target", "noise", "starts", "batch", "measurements", "seed", "recipe"


@dataclass(frozen=True, eq=False)
class Tanimoto(Overlap):
    "The Tanimoto kernel of Morgan counts."
    smiles:list=None # Of the graphs of the pool
    label = "Tanimoto"
    def encode(self, X):
        chem = optional("rdkit.Chem", "molecules")
        make = optional("rdkit.Chem.rdFingerprintGenerator", "molecules").GetMorganGenerator
        read, names = make(radius=2), {}
        seen = [read.GetSparseCountFingerprint(chem.MolFromSmiles(s)).GetNonzeroElements()
                for s in self.smiles]
        at = [names.setdefault(k, len(names)) for c in seen for k in c]
        start = np.cumsum([0, *map(len, seen)])
        values = [float(v) for c in seen for v in c.values()]
        table = sparse.csr_matrix((values, at, start), (len(seen), len(names)))
        return Counts(table, np.arange(len(names)))


def know_levels(prior):
    "Let a prior look up what it would compute candidate by candidate."
    for _, part in prior.held.parts: part._level = dict(enumerate(part.levels.tolist()))
    prior.diag
    return prior


MODELS_OF_ALL = {
    "ours": lambda domain, smiles: [*map(know_levels, candidate_priors(domain))],
    "first kernel": lambda domain, smiles: [know_levels(candidate_priors(domain)[0])],
    "tanimoto": lambda domain, smiles: [know_levels(
        Prior(Tanimoto(smiles=smiles), domain, "rows", "anchors"))],
    "features": lambda domain, smiles: candidate_priors(domain, form="features"),
    "random": lambda domain, smiles: None}


def choose_near(model, policy, n, free):
    """The batch that `choose` takes, found among the candidates whose bound is highest.

    A choice counts as measured at its expected value, so means stay and uncertainties shrink:
    no bound rises. The search is over when the last choice beats all bounds that were left out.
    """
    belief, prior = model.latent, model.prior
    bound = torch.where(free, belief.mean + policy.factor*belief.std, -torch.inf)
    size = min(max(NEAR, 10*n), len(bound) - 1)
    while True:
        top = bound.topk(size + 1)
        near, outside = top.indices[:-1], float(top.values[-1])
        mean, C = belief.mean[near], prior.block(near.tolist())
        C.diagonal().add_(belief.private)
        for piece in belief._V: C.addmm_(piece[:, near].T, piece[:, near], alpha=-1)
        left, picks = free[near], []
        while len(picks) < n:
            std = (C.diagonal() - belief.hidden).clamp(min=0).sqrt()
            scores = torch.where(left, mean + policy.factor*std, -torch.inf)
            i = int(scores.argmax())
            if float(scores[i]) < outside: break
            picks.append(int(near[i])), left.__setitem__(i, False)
            C -= C[i]*C[i][:, None]/(C[i, i] + belief.lam)
        if len(picks) == n: return picks
        if size == len(bound) - 1: raise ValueError("too few candidates for the quick choice")
        size = min(4*size, len(bound) - 1)


def campaign(priors, values, starts, batch, measurements, noise_std, rng, quick, policy="ucb"):
    "The candidates that were measured, in order, and the seconds a suggestion took."
    policy, arms = CampaignPolicy(policy, starts=starts if priors else measurements), []
    model = Surrogate(priors) if priors else None
    state, spent = np.full(len(values), "available", dtype="<U9"), 0.
    while len(arms) < measurements:
        start, early = time.perf_counter(), len(arms) < starts
        n = min(starts if early else batch, measurements - len(arms))
        if early or not quick: new = propose(model, policy, n, state, rng)[0]
        else: new = choose_near(model, policy, n, torch.from_numpy(state == "available"))
        if not early: spent += time.perf_counter() - start
        told = values[new] + noise_std*rng.standard_normal(len(new))
        if model: model.learn(new, told.tolist())
        state[new], arms = "measured", arms + new
    return np.array(arms), spent/(len(arms) - starts)


def best_shares(arms, values):
    "What a campaign found."
    order = np.argsort(-values, kind="stable")
    out = {"gap": (values.max() - values[arms].max())/values.std()}
    for share in SHARES:
        k, name = round(share*len(values)), f"top_{100*share:g}"
        out |= {f"of_{100*share:g}": k, name: len(set(order[:k]) & set(arms.tolist())),
                f"{name}_tied": min(k, int((values[arms] >= values[order[k - 1]]).sum()))}
    return out


@cache
def whole_qm9():
    "The molecules as a domain, their rows, and the seconds that reading them took."
    rows, start = all_qm9(), time.perf_counter()
    read = read_smiles(rows["smiles"].tolist(), invalid="skip", duplicates="keep")
    return read.domain, rows.iloc[read.rows], time.perf_counter() - start


@lru_cache(1)
def priors_of_all(recipe):
    "The priors of a recipe, and the seconds that reading and making them took."
    (domain, rows, reading), start = whole_qm9(), time.perf_counter()
    priors = MODELS_OF_ALL[recipe.removesuffix(" po")](domain, rows["smiles"].tolist())
    return priors, reading + time.perf_counter() - start


def one_campaign(priors, values, key):
    "What a campaign found; seconds of a suggestion with fit and update, peak memory in GB."
    _, noise, *how, seed, recipe = key
    quick = recipe not in ("features", "random", "ours po")
    sd, rng = float(noise.split()[0])*values.std(), np.random.default_rng([seed, 6])
    arms, spent = campaign(priors, values, *how, sd, rng, quick,
                           "po" if recipe == "ours po" else "ucb")
    return best_shares(arms, values) | dict(seconds=spent, memory=peak_gb())


def molecules_qm9(keys, o):
    """Campaigns on all molecules of QM9 at once.

    top_k is how many of the best k per cent of the pool were measured, top_k_tied counts ties with
    the last of them too. "ours" has the kernels that a campaign has by default, row by row, "first
    kernel" only the first of them, without relations; "features" has explicit features of the graph
    kernel; "tanimoto" has the Tanimoto kernel of Morgan counts, row by row. "ours po" takes the
    candidates that are most probably the best (qPO), all others take upper confidence bounds."""
    for key in keys:
        (priors, setup), (_, rows, _) = priors_of_all(key[-1]), whole_qm9()
        values = rows[key[0]].to_numpy(float)
        yield dict(zip(KEY_QM9, key)) | in_child("fork", one_campaign, priors, values, key) | dict(
            setup=setup, pool=len(rows))


QPO = {"ours": 10, "ours po": 10, "random": 10} # Seeds played by the protocol of qPO


def qm9_keys():
    "500 measurements in batches of 20 with noise; for the gap also the protocol of qPO."
    usual, seeds = ("0.1 sd", 20, 20, 500), range(9000, 9010)
    few = {"ours": 3, "tanimoto": 3, "random": 3, "features": 1, "first kernel": 1}
    return sorted([*((t, *usual, s, r) for r, k in few.items() for t in TARGETS[:2]
                     for s in seeds[:k]),
                   *(("gap", "0 sd", 100, 100, 2100, s, r) for r, k in QPO.items()
                     for s in seeds[:k])])


# MolPAL's protocol: the best hundred of a library by docking score, from six per cent of it

TOP, SHARE, ROUNDS = 100, 0.01, 5 # How many are looked for; part of the library a batch; batches


class Library(NamedTuple):
    "Molecules to dock, in the order of their file; a score that is missing is not a number."
    domain:object
    smiles:list
    scores:np.ndarray
    top:list # The best hundred; of equal scores the first in the file of scores


@cache
def enamine(folder):
    "The molecules of a library, each once, and their scores, from a folder with two files."
    files = [Path(folder or ".")/f"{name}.csv.gz" for name in ("library", "scores")]
    if folder is None or not all(f.exists() for f in files):
        sys.exit("expected --folder to have library.csv.gz (smiles) and scores.csv.gz (smiles, "
                 f"score) of MolPAL's Enamine 10k, got {folder}")
    library, scores = (pd.read_csv(f).drop_duplicates("smiles").set_index("smiles") for f in files)
    read = read_smiles(library.index.tolist(), invalid="skip")
    smiles = library.index[read.rows]
    best = scores["score"].sort_values(kind="stable").index[:TOP]
    return Library(read.domain, smiles.tolist(), scores["score"].reindex(smiles).to_numpy(float),
                   smiles.get_indexer(best).tolist())


def hits(library, arms):
    "How many of the best were found, by identity and by score as a multiset."
    of = lambda some: Counter(library.scores[some].tolist())
    return dict(identity=len({*library.top} & {*arms}),
                score=(of(library.top) & of([*arms])).total())


def exact_gp(K, arms, y):
    """Mean and deviation of a Gaussian process whose kernel has a diagonal of one.

    K has the covariances of all with the measured; the level is the mean of the values, the scale
    and the noise maximise the marginal likelihood.
    """
    z, (values, U) = (y - y.mean())/y.std(), np.linalg.eigh(K[arms])
    a, t = U.T @ z, len(y)
    def loss(log_noise): # with the best scale for it
        d = values.clip(0) + np.exp(log_noise)
        return t*np.log((a**2/d).mean()) + np.log(d).sum()
    d = values.clip(0) + np.exp(minimize_scalar(loss, bounds=(-12, 5), method="bounded").x)
    inner, scale = K @ U, (a**2/d).mean()
    std = np.sqrt(scale*(1 - (inner**2/d).sum(1)).clip(0))
    return y.mean() + y.std()*(inner @ (a/d)), y.std()*std


def play_tanimoto(library, starts, beta):
    "Batches of the best lower bounds of an exact GP, and processor seconds of each."
    new, arms, seconds = starts, [], 0.
    while True:
        yield new, seconds
        begin, arms = time.process_time(), arms + new
        known = [a for a in arms if np.isfinite(library.scores[a])]
        K = tanimoto(library.smiles, [library.smiles[a] for a in known]).numpy()
        mean, std = exact_gp(K, known, library.scores[known])
        bound = mean - beta*std
        bound[arms] = np.inf
        new = np.argsort(bound, kind="stable")[:len(starts)].tolist()
        seconds = time.process_time() - begin


def play_random(library, starts, rng):
    "Batches at random, the starts first."
    rest = rng.permutation(np.setdiff1d(np.arange(len(library.smiles)), starts))
    for i in range(ROUNDS + 1):
        yield (rest[(i - 1)*len(starts):i*len(starts)].tolist() if i else starts), 0.


def play_campaign(library, starts, seed):
    "Batches by `Campaign.ask` with all defaults; molecules without a score fail."
    new, seconds = starts, 0.
    with tempfile.TemporaryDirectory() as home:
        path = Path(home)/"campaign"
        with Campaign.create(path, library.domain, maximize=False, seed=seed) as campaign:
            while True:
                yield new, seconds
                fine = np.isfinite(library.scores[new])
                begin, told, bad = time.process_time(), np.array(new)[fine], np.array(new)[~fine]
                campaign.tell(arms=told, rewards=library.scores[told])
                if len(bad): campaign.fail(arms=bad, reason="no score")
                new = [int(a) for a in campaign.ask(len(starts))]
                seconds = time.process_time() - begin


MOLPAL = {"campaign": play_campaign,
          "Tanimoto GP, UCB": lambda library, starts, seed: play_tanimoto(library, starts, 2.),
          "Tanimoto GP, greedy": lambda library, starts, seed: play_tanimoto(library, starts, 0.),
          "random": lambda library, starts, seed: play_random(
              library, starts, np.random.default_rng([seed, 9]))}


def molpal(keys, o):
    """MolPAL's protocol on Enamine 10k: one per cent at random, then five batches of one per cent.

    All methods of a seed have the same starts. identity and score say how many of the best hundred
    were measured, failed how many of the measured have no score, seconds the processor time of the
    batch on one thread, with what it learns from.
    """
    library = enamine(o.folder)
    size = int(np.ceil(SHARE*len(library.smiles)))
    for seed, method in keys:
        starts = np.random.default_rng([seed, 8]).choice(len(library.smiles), size, replace=False)
        arms, batches = [], MOLPAL[method](library, starts.tolist(), seed)
        for i, (new, seconds) in zip(range(ROUNDS + 1), batches):
            arms += new
            yield dict(seed=seed, method=method, round=i, measured=len(arms),
                       failed=int(np.isnan(library.scores[arms]).sum()), **hits(library, arms),
                       seconds=seconds)
        batches.close()


# BayBE as its users get it, beside a campaign with its defaults, on the same pools

KEY_BAYBE = "target", "seed", "method"
SHORT = 50 # Measurements: 4 s a recommendation with fingerprints, so not a hundred
ENCODINGS = {"BayBE Mordred": "MORDRED", "BayBE RDKit": "RDKIT2DDESCRIPTORS", "BayBE ECFP": "ECFP"}


def ask_campaign(domain, values, starts, measurements):
    "The arms that `Campaign.ask` measures one by one after the starts, and processor seconds."
    out = dict(arms=list(starts), ask=[])
    with tempfile.TemporaryDirectory() as home:
        begin, new = time.process_time(), out["arms"]
        campaign = Campaign.create(Path(home)/"campaign", domain)
        out["setup"] = time.process_time() - begin
        while True:
            begin = time.process_time()
            campaign.tell(arms=new, rewards=values[new])
            if len(out["arms"]) >= measurements: break
            new = [int(a) for a in campaign.ask()]
            out["ask"].append(time.process_time() - begin)
            out["arms"] += new
        campaign.close()
    return out


def ask_baybe(python, **what):
    "The same by BayBE, for several targets, in the environment of another Python."
    if python is None or not python.exists():
        sys.exit(f"expected --peer to be the Python of an environment with baybe, got {python}; "
                 "baybe_campaigns.py says how to make one")
    script = Path(__file__).with_name("baybe_campaigns.py")
    done = subprocess.run([python, script], input=json.dumps(what), capture_output=True, text=True)
    if done.returncode: sys.exit(f"{script.name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def baybe(keys, o):
    """Campaigns by BayBE with its defaults and by `Campaign.ask`, on the same pools of QM9.

    All have the same ten random starts, and a molecule has the same noise for all. ten is how many
    of the ten best were measured, gap_50 the distance to the best after 50 measurements in
    deviations of the pool. Times are processor seconds on one thread: setup to make the campaign
    with its descriptors, first of the first suggestion, ask the mean of the others.
    """
    _, seed, method = keys[0]
    pool, rng = drawn_pool(all_qm9(), 1000, seed), np.random.default_rng([seed, 7])
    starts, noise = rng.choice(len(pool), 10, replace=False), rng.standard_normal(len(pool))
    true = [pool.values[t].to_numpy(float) for t, *_ in keys]
    told, facts = [v + 0.1*v.std()*noise for v in true], {"version": "", "columns": ""}
    if method in ENCODINGS:
        facts = ask_baybe(o.peer, smiles=pool.smiles, targets=[t.tolist() for t in told], seed=seed,
                          starts=starts.tolist(), encoding=ENCODINGS[method], measurements=SHORT)
        runs = facts.pop("campaigns")
    else: runs = [ask_campaign(pool.domain, t, starts.tolist(), SHORT) for t in told]
    for key, values, run in zip(keys, true, runs):
        what = found(np.array(run["arms"]), values)
        yield dict(zip(KEY_BAYBE, key)) | {k: what[k] for k in ("gap_20", "gap_50")} | dict(
            ten=what["top_ten"], fifty=what["top_fifty"], measured=len(run["arms"]), **facts,
            setup=run["setup"], first=run["ask"][0], ask=np.mean(run["ask"][1:]))


def baybe_keys():
    "All targets on five pools; with fingerprints two targets, at 4 s a recommendation."
    methods, few = ("campaign", "BayBE Mordred", "BayBE RDKit"), sorted(TARGETS)[:2]
    return sorted([*product(sorted(TARGETS), TEST[:5], methods),
                   *product(few, TEST[:5], ("BayBE ECFP",))])


# Time and memory

def one_cost(size, name):
    "One campaign for the gap, in a process that has seen nothing else."
    seed, rows, model = 6000, all_qm9(), RECIPES[name].model
    start = time.process_time()
    pool = drawn_pool(rows, size, seed)
    priors = ready(model, pool)
    first, start = time.process_time() - start, time.process_time()
    values = pool.values["gap"].to_numpy(float)
    measured(name, pool, priors, values, 0.1*values.std(), np.random.default_rng([seed, 4]))
    each = (time.process_time() - start)/(BUDGET - CampaignPolicy().first(size))
    return dict(size=size, recipe=name, first=first, seconds=each, memory=peak_gb())


def molecules_memory(keys, o):
    """Processor time and memory that a suggestion takes, recipe by recipe.

    first is the processor time in seconds to read the pool and make the first model, seconds that
    of a suggestion after the random ones, fit and update included, memory the peak of the process
    in GB. Processor time hardly depends on what else the machine does."""
    return [in_child("spawn", one_cost, *key) for key in keys]


# Which rows the tables have

USUAL = "ours ucb", "tanimoto ucb", "tanimoto + bag ucb", "random"
TEST, DEVELOPMENT = range(9000, 9020), range(6000, 6006)


def campaign_keys(recipes, seeds=TEST, targets=TARGETS, noise="0.1 sd", size=1000):
    "Every target and pool; recipes may have a number of pools."
    return [(size, t, noise, s, r, RECIPES[r].batch) for r in recipes for t in targets
            for s in (seeds[:recipes[r]] if isinstance(recipes, dict) else seeds)]


def molecule_keys():
    "All recipes, and the usual ones with other noise and on larger pools."
    few = {r: 20 for r in RECIPES if "weighed" not in r and r != "gntk only greedy"}
    few |= {r: 10 for r in few if r.endswith("greedy") or r in ("ours ei", "ours ts", "ours pe")}
    return sorted([*campaign_keys(few | {"tanimoto qLogNEI": 5}),
                   *campaign_keys(USUAL, noise="0 sd"), *campaign_keys(USUAL, noise="0.5 sd"),
                   *campaign_keys(USUAL, size=10_000)])


def set_keys():
    "The usual recipes and two more on every property of every set."
    return sorted(k for name in SETS for k in campaign_keys(
        (*USUAL, "bag ucb", "WL ucb"), targets=[f"{name} {t}" for t in SETS[name]],
        size=SIZES[name]))


def prediction_keys(models, seeds=TEST, size=1000):
    "Every target, pool and number of molecules."
    return sorted((size, t, "0.1 sd", s, m, n) for m in models for t in TARGETS for s in seeds
                  for n in TRAIN if n < size)


def all_predictions():
    "All models, and some of them on larger pools."
    return sorted([*prediction_keys([m for m in GAUSSIAN if m != "ours weighed"]),
                   *prediction_keys(["random forest"]),
                   *prediction_keys(["trained GNN ensemble"], TEST[:10]),
                   *prediction_keys(("ours", "tanimoto", "tanimoto + bag"), TEST[:10], 2000)])


def side_by_side(play, keys):
    "A table of campaigns; a set, a pool and a model are read and made once."
    return Table(play, KEY, keys, lambda k: (k[0], k[1].split()[:-1], *k[2:4], RECIPES[k[4]].model),
                 6, ("setup", "seconds"))


def predicted(play, keys):
    "A table of predictions; a pool and a model are made once."
    return Table(play, KEY_PREDICTION, keys, lambda k: (k[0], k[3], k[4]), 6)


TABLES = {
    "molecules": side_by_side(molecules, molecule_keys),
    "molecules_sets": side_by_side(molecules_sets, set_keys),
    "molecules_isomers": side_by_side(molecules_isomers, lambda: sorted(campaign_keys(
        (*USUAL[:3], "bag ucb", "gntk only ucb"), TEST[:10]))),
    "molecules_weights": side_by_side(molecules, lambda: sorted(campaign_keys(
        ("ours ucb", "ours weighed ucb"), DEVELOPMENT))),
    "molecules_prediction": predicted(molecules_prediction, all_predictions),
    "molecules_isomers_prediction": predicted(molecules_isomers_prediction, lambda: prediction_keys(
        ("ours", "bag", "tanimoto", "tanimoto + bag"), TEST[:5])),
    "molecules_weights_prediction": predicted(molecules_prediction, lambda: prediction_keys(
        ("ours", "ours weighed"), DEVELOPMENT)),
    "splits": Table(splits, ("set", "split", "model"), split_keys, digits=6),
    "molecules_qm9": Table(molecules_qm9, KEY_QM9, qm9_keys, digits=6,
                           clock=("seconds", "memory", "setup"), alone=True),
    "molpal": Table(molpal, ("seed", "method"), lambda: [*product(range(5), MOLPAL)], digits=6,
                    clock=("seconds",)),
    "baybe": Table(baybe, KEY_BAYBE, baybe_keys, lambda k: k[1:], 6, ("setup", "first", "ask")),
    "molecules_memory": Table(molecules_memory, ("size", "recipe"), lambda: sorted(product(
        [1000], ["WL ucb", "fragments ucb", "gntk only ucb", "random forest", *USUAL])) + [
        (10_000, r) for r in ("ours ucb", "tanimoto ucb")], digits=4,
        clock=("first", "seconds", "memory"), alone=True)}
