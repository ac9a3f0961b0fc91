"""Molecules side by side: campaigns and predictions of many recipes on the same pools.

    python scripts/molecules.py nbs/results/molecules.csv --jobs 2
    python scripts/molecules.py nbs/results/molecules_prediction.csv --prediction --jobs 2
    python scripts/molecules.py nbs/results/molecules_isomers.csv --formula 10 7 0 2 0 --pools 10
    python scripts/molecules.py nbs/results/molecules_weights.csv --first 6000 --pools 10 \\
        --recipes "ours ucb" "ours weighed ucb"
    python scripts/molecules.py nbs/results/molecules_weights_prediction.csv --prediction \\
        --first 6000 --pools 10 --recipes ours "ours weighed"

    python scripts/molecules.py nbs/results/molecules_sets.csv --pools 20 --folder FOLDER \\
        --sets photoswitch esol freesolv lipophilicity buchwald suzuki chemml

The third one draws its pools from the isomers of one formula, given by the numbers of H, C, N, O,
F. The next two compare equal weights of the sums with weights by evidence, on development pools.
The last one plays on other sets of molecules and of reactions, whose files are in FOLDER or in the
installed packages; a pool has at most three quarters of a set.
One row for each campaign (or prediction); rows that are in the table are not repeated, so the
script can be stopped and started again. All recipes have the same pools, starts, noise and budget;
only recipes that ask for ten at a time have starts of their own, the same among them. Columns:
gap_30 is the distance to the best after 30 measurements, regret the mean distance of all measured,
top_ten how many of the best ten were measured (top_ten_tied counts ties with the tenth),
top_percent_at the measurement that first hit the best percent, setup the seconds to read the pool
and make the first model, seconds the time a suggestion took. With --door our own recipes get one
column more, ask: the seconds that `Campaign.ask` takes for a suggestion of the last batch in an
open folder, with fit, reasons and journal. Seeds from 9000 are for the test, seeds from 6000 for
choosing settings:

    python scripts/molecules.py development.csv --first 6000 --pools 3

It needs the extras `molecules` and `qm9`; the rivals need `sklearn` and `botorch`. A small trial of
everything takes a minute or two:

    python scripts/molecules.py trial.csv --size 60 --budget 15 --first 6000 --pools 1
"""
import argparse, json, tempfile, time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from scipy.stats import norm

from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign, CampaignPolicy, propose, virtual
from gnn_bandits.core import optional, progress_bar, write_table
from gnn_bandits.molecules import (ATOM_FEATURES, BONDS, ELEMENTS, load_molecules, qm9, qm9_files,
                                   read_smiles, tanimoto)
from gnn_bandits.relations import counts, neighbours
from gnn_bandits.surrogate import (FREEDOM, Surrogate, bend, candidate_priors, log_slope,
                                   student_log_density, weighed_sum)

TARGETS = ("gap", "dipole", "U0", "polarisability")
SETS = {"photoswitch": ("E_pi",), "esol": ("log_solubility",), "freesolv": ("hydration",),
        "lipophilicity": ("logD",), "buchwald": ("yield",), "suzuki": ("yield",),
        "chemml": ("polarisability", "density", "refractive_index")}
KEY = ["size", "target", "noise", "seed", "recipe", "batch"]
KEY_PREDICTION = ["size", "target", "noise", "seed", "model", "n"]
STEPS, TRAIN, LEVELS = (10, 20, 30, 50, 75, 100), (50, 100, 300, 1000), (0.5, 0.9, 0.99)
REFIT = 5 # Measurements between two fits of the forest; a fit at each takes five times as long
SLOW = {"tanimoto qLogNEI": 5} # Played on the first few pools only


def once(make):
    "A property that is made when it is first needed (`cached_property` has a lock: no pickling)."
    def get(self):
        if make.__name__ not in self.made: self.made[make.__name__] = make(self)
        return self.made[make.__name__]
    return property(get)


class Pool:
    "Some molecules, their properties, and what several recipes are made from."
    def __init__(self, rows, size):
        read = read_smiles(rows["smiles"].tolist(), invalid="skip")
        self.domain, self.smiles = read.domain[:size], read.canonical[:size]
        self.values, self.made = rows.iloc[read.rows[:size]], {}
    def __len__(self): return len(self.domain)
    def sums(self, x):
        "The sum of some numbers of the atoms over each molecule."
        owner = torch.repeat_interleave(torch.arange(len(self)), self.domain.sizes)
        return torch.zeros(len(self), x.shape[1], dtype=x.dtype).index_add(0, owner, x)
    @once
    def molecules(self): return [optional("rdkit.Chem", "molecules").MolFromSmiles(s)
                                 for s in self.smiles]
    @once
    def bag(self): return self.sums(self.domain.raw)
    @once
    def tanimoto(self): return tanimoto(self.smiles)
    @once
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
ASKED = {"ours weighed", "ours weighed ucb"} # Played only if asked for by name


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


def noisy_improvement(pool):
    "qLogNEI in BoTorch of a Tanimoto Gaussian process fitted by marginal likelihood, as in GAUCHE."
    gpytorch, fit = optional("gpytorch", "botorch"), optional("botorch.fit", "botorch")
    botorch = optional("botorch.models.gpytorch", "botorch")
    improvement = optional("botorch.acquisition", "botorch").qLogNoisyExpectedImprovement

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

    def score(arms, told):
        X, y = torch.tensor(arms, dtype=torch.float64)[:, None], torch.tensor(told)
        model = Model(X, (y - y.mean())/y.std())
        fit.fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(len(arms))                 # of the samples
            gain = improvement(model, X, prune_baseline=True)
            scores, new = np.full(len(pool), -np.inf), np.setdiff1d(np.arange(len(pool)), arms)
            parts = torch.tensor(new, dtype=torch.float64)[:, None, None].split(256)
            scores[new] = torch.cat([gain(p) for p in parts]).numpy()
        return scores
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
RECIPES |= {f"{m} greedy": Recipe(m, GREEDY) for m in GAUSSIAN if m not in ASKED}
RECIPES |= {f"ours {p}": Recipe("ours", p) for p in ("ei", "ts", "pe")}
RECIPES |= {f"{m} ei": Recipe(m, "ei") for m in ("tanimoto", "tanimoto + bag")}
RECIPES |= {f"{m} ucb by 10": Recipe(m, "ucb", 10) for m in ("ours", "tanimoto", "tanimoto + bag")}
RECIPES |= {"random": Recipe("random", "random")} | {m: Recipe(m, None) for m in SCORERS}


def play(score, values, budget, noise, rng):
    "The arms that a score picks after the random starts that every campaign has."
    policy, arms, told = CampaignPolicy(), [], []
    state = np.full(len(values), "available", dtype="<U9")
    while len(arms) < budget:
        if len(arms) < policy.first(len(values)): arm = propose(None, policy, 1, state, rng)[0][0]
        else: arm = int(np.where(state == "available", score(arms, told), -np.inf).argmax())
        arms.append(arm), told.append(values[arm] + noise*rng.standard_normal())
        state[arm] = "measured"
    return np.array(arms)


def row(arms, values):
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


def asking(pool, played, policy, batch):
    "Seconds a suggestion that people wait for the last batch of a campaign, in an open folder."
    with tempfile.TemporaryDirectory() as home:
        with Campaign.create(Path(home)/"c", pool.domain, policy=policy) as c:
            for part in (played[:-2*batch], played[-2*batch:-batch]):
                c.suggest()                              # kernels are made when they are first used
                c.tell(arms=part["arm"].tolist(), rewards=part["value"].tolist())
            start = time.perf_counter()
            c.ask(batch)
            return (time.perf_counter() - start)/batch


def campaigns(rows, size, budget, todo, door=False):
    "One row for each campaign with one model on one pool."
    torch.set_num_threads(1)
    start, pool = time.perf_counter(), Pool(rows, size)
    model, out = RECIPES[todo[0][4]].model, []
    if gaussian := model in MODELS:                     # kernels are made when they are first used
        priors = MODELS[model](pool)
        Surrogate(priors).learn(list(range(10)), np.arange(10.)).latent
    else: SCORERS[model](pool)([0, 1, 2], [0., 1., 3.])
    setup = time.perf_counter() - start
    for key in todo:
        _, target, noise, seed, name, batch = key
        values, rng = pool.values[target].to_numpy(float), np.random.default_rng([seed, 4])
        start, sd = time.perf_counter(), float(noise.split()[0])*values.std()
        if gaussian:
            played = virtual(priors, values, budget, RECIPES[name].policy, batch=batch,
                             noise_std=sd, rng=rng)
            arms = played["arm"].to_numpy()
        else: arms = play(SCORERS[model](pool), values, budget, sd, rng)
        spent = (time.perf_counter() - start)/(len(arms) - CampaignPolicy().first(len(pool)))
        out.append(dict(zip(KEY, key)) | row(arms, values) | dict(setup=setup, seconds=spent))
        if door and model == "ours":
            out[-1]["ask"] = asking(pool, played, RECIPES[name].policy, batch)
    return out


def surrogate_says(priors, arms, told, values):
    "Means, ends of intervals and log densities of the true values by a Gaussian process."
    s = Surrogate(priors).learn(arms, told)
    fit, (z, std) = s._update(), s._spread()
    x = (torch.tensor(values) - fit.shift)/fit.unit
    error = ((bend(x, fit.power) - fit.middle[0])/fit.middle[1] - z)/std
    density = student_log_density(error, s.t + FREEDOM) - std.log() + log_slope(x, fit.power)
    density = density - np.log(fit.middle[1]*fit.unit)
    return s.mean.numpy(), [[e.numpy() for e in s.interval(p)] for p in LEVELS], density.numpy()


def ensemble_says(by, arms, told, values):
    "The same by an ensemble, whose members are taken to scatter normally."
    says = by(arms, told)
    mean, std = says.mean(0), says.std(0).clip(1e-6*np.std(told))
    half = norm.ppf((1 + np.array(LEVELS))/2)[:, None]*std
    return mean, list(zip(mean - half, mean + half)), norm.logpdf(values, mean, std)


def predictions(rows, size, budget, todo):
    "One row for each prediction by one model on one pool, from molecules chosen at random."
    torch.set_num_threads(1)
    pool, model, out = Pool(rows, size), todo[0][4], []
    priors = MODELS[model](pool) if model in MODELS else None
    for key in todo:
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
        out.append(dict(zip(KEY_PREDICTION, key)) | cover | dict(
            rmse=np.sqrt(((mean - values)[new]**2).mean())/sd,
            nll=-(density + np.log(sd))[new].mean()))   # as if values were in deviations
    return out


def isomers(rows, formula):
    "The molecules of QM9 with these numbers of H, C, N, O and F."
    column = ["Stoichiometry"]
    parts = pd.concat([pd.read_csv(f, usecols=column) for f in qm9_files()], ignore_index=True)
    return rows[[json.loads(s) == formula for s in parts["Stoichiometry"]]]


def load(name, folder):
    "The molecules of a set whose properties are all known, with the set in the names of these."
    columns = {t: f"{name} {t}" for t in SETS[name]}
    rows = load_molecules(name, folder)[["smiles", *columns]].dropna()
    return rows.rename(columns=columns)


def wanted(o, seed, size, targets):
    "The keys of one pool, in groups that share a model."
    chosen = lambda name, model: name in o.recipes or model in o.recipes if o.recipes else \
        name not in ASKED
    few = lambda name: seed - o.first < SLOW.get(name, o.pools)
    same = lambda t: (size, t, f"{o.noise:g} sd", seed)
    if o.prediction: return [[(*same(t), m, n) for t in targets for n in TRAIN if n < size]
                             for m in (*GAUSSIAN, *ENSEMBLES) if chosen(m, m) and few(m)]
    groups = {}
    for name, r in RECIPES.items():
        if chosen(name, r.model) and few(name):
            groups.setdefault(r.model, []).extend((*same(t), name, r.batch) for t in targets)
    return list(groups.values())


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write, or to go on with")
    cli.add_argument("--prediction", action="store_true", help="predictions instead of campaigns")
    cli.add_argument("--recipes", nargs="+", help="names of recipes or of models; all if not given")
    cli.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    cli.add_argument("--pools", type=int, default=20, help="pools")
    cli.add_argument("--first", type=int, default=9000, help="first seed; 6000 for development")
    cli.add_argument("--size", type=int, default=1000, help="molecules in a pool")
    cli.add_argument("--sets", nargs="+", choices=SETS, help="other sets than QM9")
    cli.add_argument("--folder", type=Path, help="where the files of these sets are")
    cli.add_argument("--formula", nargs=5, type=int, help="numbers of H, C, N, O, F: isomers")
    cli.add_argument("--budget", type=int, default=100, help="measurements in a campaign")
    cli.add_argument("--noise", type=float, default=0.1, help="in deviations of the pool")
    cli.add_argument("--door", action="store_true", help="time Campaign.ask as well")
    cli.add_argument("--jobs", type=int, default=2, help="processes")
    o = cli.parse_args()
    known = {*RECIPES, *MODELS, *SCORERS}
    if bad := set(o.recipes or ()) - known:
        cli.error(f"unknown {sorted(bad)}; recipes and models: {', '.join(sorted(known))}")
    names = KEY_PREDICTION if o.prediction else KEY
    table = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=names)
    done, tasks = set(table[names].itertuples(index=False, name=None)), []
    if o.sets: sources = [(load(name, o.folder), None) for name in o.sets]
    else: sources = [(isomers(qm9(TARGETS), o.formula) if o.formula else qm9(TARGETS), o.targets)]
    for seed in range(o.first, o.first + o.pools):
        for rows, targets in sources:
            size, targets = min(o.size, len(rows)*3//4), targets or rows.columns[1:]
            some = np.random.default_rng([96, seed]).choice(len(rows), size*21//20, replace=False)
            for keys in wanted(o, seed, size, targets):
                if todo := [k for k in keys if k not in done]:
                    make = predictions if o.prediction else partial(campaigns, door=o.door)
                    tasks.append(delayed(make)(rows.iloc[some], size, o.budget, todo))
    results = Parallel(o.jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for new in progress_bar(results, "models of pools", len(tasks)):
        new = pd.DataFrame(new)
        table = pd.concat([table, new], ignore_index=True) if len(table) else new
        write_table(o.path, table.sort_values(names), 6)


if __name__ == "__main__": main()
