"""Tables of the theory, of the reproduction and of the released recipe; tables.py makes them."""
import math, re, time
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch
from molecule_tables import TARGETS, all_qm9              # the scripts beside this one
from tables import RESULTS, Table

from gnn_bandits.confidence import beta, rkhs_sphere
from gnn_bandits.core import read_table
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.infogain import max_information_gain
from gnn_bandits.molecules import load_molecules, read_smiles
from gnn_bandits.networks import LazyGNN
from gnn_bandits.paper.algorithms import PAPER_ALGORITHMS
from gnn_bandits.paper.claims import (CLAIMS, EliminationSettings, coverage_rows, elimination_row,
                                      stopping_rows)
from gnn_bandits.paper.datasets import DATASETS, remainder_rows
from gnn_bandits.paper.figures import Plan
from gnn_bandits.paper.ledger import SELECTION, panels, selection_judgements
from gnn_bandits.paper.population import (DRAWS, SELECTIONS, fresh_cells, picked_pairs,
                                          select, selection_cells, selection_picks, selection_table,
                                          trained_switch)
from gnn_bandits.paper.released import (random_regret, recipe_from, released_data, released_game,
                                        released_run, run_record)
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.studies import study_table
from gnn_bandits.paper.sweep import sweep
from gnn_bandits.posterior import Posterior, gram_root
from gnn_bandits.priors import LIMITS, Prior
from gnn_bandits.rewards import sample_reward
from gnn_bandits.surrogate import Surrogate
from gnn_bandits.training import ADAM, adam, taylor_error
from gnn_bandits.watch import duel

WIDTHS = 64, 128, 256, 512, 1024, 2048


# The kernel, and networks beside it

COSINES = np.unique(np.concatenate([np.linspace(-1, 1, 21), [-0.999, 0.99, 0.999, 0.999999]]))


def neural_tangents(u, L):
    "The tangent kernel of L hidden ReLU layers at cosines u by neural-tangents, not normalised."
    import jax
    jax.config.update("jax_enable_x64", True)
    from neural_tangents import stax
    dense = lambda scale: stax.Dense(1, W_std=np.sqrt(scale), b_std=None, parameterization="ntk")
    layers = [dense(2)]                                                    # two inputs
    for _ in range(L): layers += [stax.Relu(), dense(2)]
    u = np.asarray(u, dtype=np.float64)
    y = np.stack([u, np.sqrt(1 - u**2)], 1)
    return np.asarray(stax.serial(*layers)[2](np.array([[1.0, 0.0]]), y, "ntk"))[0]


def ntk_oracle(keys, o):
    "Values of neural-tangents at cosines u for L hidden layers; needs the extra `oracle`."
    return [dict(u=u, L=L, ntk=v) for L, in keys
            for u, v in zip(COSINES.tolist(), neural_tangents(COSINES, L).tolist())]


@cache
def ten_graphs(): return GraphDomain.erdos_renyi(10, 5, 0.2, 10, np.random.default_rng(7))


def width_limit(keys, o):
    "Frobenius distance between the tangent kernel of a network and the limit."
    for L, symmetric, m, seed in keys:
        net = LazyGNN(10, m, L, rng=np.random.default_rng([L, m, seed, symmetric]),
                      symmetric=bool(symmetric))
        far = (net.tangent_kernel(ten_graphs()) - (L + 1)*gntk(ten_graphs(), L=L)).norm()
        yield dict(L=L, symmetric=symmetric, m=m, seed=seed, distance=float(far))


def taylor(keys, o):
    "How far trained networks are from their linearisation."
    return [dict(m=m, seed=seed) | taylor_error(m, seed) for m, seed in keys]


def reward_remainder(keys, o):
    "What explicit features miss between different graphs, in numbers as text."
    degrees = {10: (3, 4, 5, 6), 100: (2, 3)}
    short = dict(variance=".4f") | dict.fromkeys(("gap", "gap_max", "rms", "largest", "closest"),
                                                 ".3e")
    for d, N, p in keys:
        spec = next(s for s in DATASETS.values() if (s.d, s.N, s.p) == (d, N, p))
        for row in remainder_rows(spec, degrees[d]):
            yield row | {k: f"{row[k]:{digits}}" for k, digits in short.items()}


def warm_start(keys, o):
    """Training from the last weights against training from the start.

    A run is a fresh domain of 200 graphs and a fresh reward. Graphs are measured at random, and
    after every twentieth value the network is trained in three ways: from the start, from the start
    with the graphs in another order, and from the weights of twenty values ago; with the paper's
    single-graph Adam ("text") or with a learning rate that knows the width ("scaled"). `apart` and
    `error` are the root mean square distances of its predictions to the first way and to the truth,
    in standard deviations of the reward.
    """
    times = range(20, 101, 20)
    for options, run in keys:
        graphs, reward, pulls, weights, *orders = np.random.default_rng([9, run]).spawn(7)
        X = GraphDomain.erdos_renyi(200, 20, 0.2, 10, graphs)
        f = sample_reward(X, reward).numpy()
        arms = pulls.integers(200, size=times[-1])
        y = f[arms] + 0.01*pulls.standard_normal(len(arms))
        net, last = LazyGNN(10, m=512, rng=weights), None
        far = lambda a, b: float(np.sqrt(np.mean((a - b)**2))/f.std())
        for t in times:
            train = lambda rng, start=None: adam(net, X, arms[:t], y[:t], ADAM[options], rng=rng,
                                                 start=start)
            fits = {"from the start": train(orders[0]), "another order": train(orders[1]),
                    "from the last weights": train(orders[2], last)}
            last = fits["from the last weights"]
            says = {k: v(X).double().numpy() for k, v in fits.items()}
            yield from (dict(options=options, run=run, t=t, way=k, steps=v.steps, reason=v.reason,
                             apart=far(says[k], says["from the start"]), error=far(says[k], f))
                        for k, v in fits.items())


# Experiments of claims

def coverage(keys, o):
    "Do the confidence sets cover? Histories of kernels, linearised and trained networks."
    return coverage_rows(340, o.jobs)


@cache
def elimination_arms():
    X = EliminationSettings().domain()
    return X, gntk(X)


def elimination(keys, o):
    "Does phased elimination keep the optimum? Runs of the theorem's algorithm."
    return [elimination_row(*elimination_arms(), *k, EliminationSettings()) for k in keys]


def stopping(keys, o):
    "What the stopping rule does to the regret and to the training."
    return [row for run, in keys for row in stopping_rows(run)]


def tuning_edges(keys, o):
    "Tuning runs with λ a decade beyond both edges of the grid."
    return Plan(o.room/"tuning_edges", jobs=o.jobs).table("tuning_edges").to_dict("records")


@cache
def tuning():
    table = read_table(RESULTS/"tuning.csv.gz")
    return table[table["d"] == 10]


@cache
def settings(): return select(tuning())


def trained_population(keys, o):
    "Really trained networks against their linearisation, on the population of the ablation."
    return [r for k in keys for r in trained_switch(settings(), k).to_dict("records")]


def swept(cells, o, name):
    "The store in which all cells are, after playing what is missing."
    if failed := sweep(cells, o.room/name, o.jobs).failed: raise SystemExit(f"{failed} failed")
    return Store(o.room/name)


def selection(keys, o):
    "Test runs of all settings that resamples of the tuning runs select: paired differences."
    picks = selection_picks(tuning())
    cells, pairs = selection_cells(picks), picked_pairs(picks)
    return selection_table(swept(cells, o, "selection"), cells, pairs).to_dict("records")


def selection_claims(keys, o):
    "What is found for each comparison of a claim if the selection of settings is resampled too."
    picks = selection_picks(tuning())
    cells = selection_cells(picks)
    runs = study_table(swept(cells, o, "selection"), cells)
    learners = ["GNN-PE", "GNN-UCB", "NN-PE", "NN-UCB"]
    some = {name: picks[name, DRAWS][learners].head(2000) for name in SELECTIONS}
    given = panels(o.results, ["population.csv.gz"])[0].source
    return [r for c in CLAIMS if (c.key,) in keys
            for r in selection_judgements(c, runs, some, given)]


def fresh(o, which):
    "Fresh runs for claims that were undecided, of the cells that are asked for."
    theirs = select(read_table(RESULTS/"paper_tuning.csv.gz"), SELECTIONS["best-observed"])
    cells = [c for c in fresh_cells(settings(), theirs) if which(c)]
    return study_table(swept(cells, o, "fresh"), cells).to_dict("records")


def fresh_dense(keys, o):
    "Fresh runs of UCB with both networks on dense graphs, with the settings selected by regret."
    return fresh(o, lambda c: c.protocol == "population" and (c.N,) in keys)


def fresh_arms(keys, o):
    "Fresh runs of the graph networks with more arms and many rewards, with the paper's settings."
    return fresh(o, lambda c: c.protocol == "many rewards" and (c.arms,) in keys)


def landing(keys, o):
    "Cumulative regret of the two algorithms of which the landing page shows a typical run."
    for seed, in keys:
        players, env = duel(seed)
        yield dict(seed=seed) | {a.name: float(env.gaps[a.arms].sum()) for a in players}


# What the theory says on molecules

ARMS, PULLS, LAM, DELTA, NOISE = 200, 100, 0.01, 0.1, 0.1
KINDS = {"qm9": (6, 7, 8, 9), "lipophilicity": (20, 25, 30), "random": (5, 9, 20, 30)} # Sizes
PROPERTIES = {"qm9": TARGETS, "lipophilicity": ("logD",), "random": ()}


@cache
def by_size(name, folder):
    "A domain of molecules that may be chosen, and their rows."
    table = all_qm9() if name == "qm9" else load_molecules(name, folder)
    if name == "qm9":                                   # the small ones come first in the file
        more = 4000 + np.random.default_rng(7).permutation(len(table) - 4000)[:14000]
        table = table.iloc[np.r_[:4000, more]]
    read = read_smiles(table["smiles"].tolist(), invalid="skip")
    return read.domain, table.iloc[read.rows].reset_index(drop=True)


def fresh_domain(name, N, seed, folder):
    "200 graphs of one size (one atom more or less in lipophilicity), and their properties."
    rng = np.random.default_rng([43, N, seed])
    if name == "random": return GraphDomain.erdos_renyi(ARMS, N, 0.2, 10, rng), None
    domain, table = by_size(name, folder)
    near = np.flatnonzero(abs(domain.sizes.numpy() - N) <= (name == "lipophilicity"))
    some = rng.choice(near, ARMS, replace=False)
    return domain[some.tolist()], table.iloc[some]


def covered(K, rng):
    "The multiplier of the theorem, how often it covers, what would have, and two deviations."
    arms, post = rng.integers(len(K), size=PULLS//2), Posterior(K, LAM)
    post.observe(arms.tolist(), [0.]*len(arms))
    counts = torch.bincount(torch.from_numpy(arms), minlength=len(K))[post.arms].double()
    noise = lambda k: torch.from_numpy(rng.standard_normal((len(counts), k)))*(LAM/counts).sqrt()[
        :, None]
    b = beta(1., LAM**0.5, LAM, DELTA, len(K), norm_factor=1.)
    ratio = post.worst_ratio(rkhs_sphere(K, 1., 50, rng), noise(50))
    f = gram_root(K) @ torch.from_numpy(rng.standard_normal((len(K), 50)))
    off = (f - post.mean_for(f[post.arms] + noise(50))).abs() <= 2*post.std[:, None]
    return dict(beta=b, cover_beta=float((ratio <= b).double().mean()), worst=float(ratio.mean()),
                cover_2=float(off.double().mean()))


def regret(prior, f, rng):
    "Mean gap of the pulls of UCB, in units of the mean gap of all arms."
    post, gaps, total = Posterior(prior.K, NOISE**2), f.max() - f, 0.
    for _ in range(PULLS):
        arm = int((post.mean + 2*post.std).argmax())
        post.observe(arm, float(f[arm] + NOISE*rng.standard_normal()))
        total += float(gaps[arm])
    return total/PULLS/float(gaps.mean())


def errors(prior, table, names, seed):
    "Errors of predictions of real properties from half of the domain."
    out, order = {}, np.random.default_rng([44, seed]).permutation(ARMS)
    for t in names:
        y = table[t].to_numpy(float)
        says = Surrogate([prior]).learn(order[:ARMS//2].tolist(), y[order[:ARMS//2]].tolist()).mean
        out[f"rmse_{t}"] = np.sqrt(((says.numpy() - y)[order[ARMS//2:]]**2).mean())/y.std()
    return out


def molecules_theory(keys, o):
    """Information gain, confidence sets and the vector kernel, on molecules and on random graphs.

    A domain has 200 molecules with N heavy atoms, or 200 random graphs of N nodes with p = 0.2 and
    ten normal features, as in the paper. inputs is "graph" for the GNTK, mean over nodes, "vector"
    for all nodes one after another in the order of the file. gain is the information gain of 100
    greedy steps, dimension the effective dimension of the domain, both for a noise variance of
    0.01; beta the multiplier of the theorem for a norm of one, cover_beta how many of 50 functions
    on the sphere of that norm lie in the set at every graph after 50 pulls, worst the mean of the
    smallest multipliers that would have covered; cover_2 how many graphs lie within two deviations
    for draws from the kernel itself; regret that of 100 pulls by UCB in units of random pulls, when
    the reward is drawn from the centred graph kernel; rmse_... the error of predictions from 100
    molecules in deviations."""
    for name, N, seed in keys:
        domain, table = fresh_domain(name, N, seed, o.folder)
        kernels = {k: LIMITS[k]().gram(domain) for k in ("graph", "vector")}
        priors = {k: Prior.kernel(K).standard for k, K in kernels.items()}
        normal = np.random.default_rng([45, N, seed]).standard_normal(ARMS)
        f = gram_root(priors["graph"].K) @ torch.from_numpy(normal)
        for inputs, K in kernels.items():
            rng, e = np.random.default_rng([46, N, seed]), torch.linalg.eigvalsh(K).clamp(min=0)
            yield dict(set=name, N=N, seed=seed, inputs=inputs, graphs=ARMS,
                       gain=max_information_gain(K, PULLS, LAM),
                       dimension=float((e/(e + LAM)).sum()),
                       regret=regret(priors[inputs], f, rng), **covered(K, rng),
                       **errors(priors[inputs], table, PROPERTIES[name], seed))


# The published curves, as cited numbers; --folder has them: panel, algorithm, t, mean, lower, upper

PUBLISHED = {"performance": "regret_0.2p_10d_20N_labeled", "domains": "benchmark_all_10d",
             "size": "paper_scalability2_10d_labeled", "density": "paper_density2_all_10d_labeled",
             "hyper": "new_paper_hyperparam_400T_5N_10d_0.05p_200actions"} # Files of the curves


def curves(folder, name):
    "The digitised curves of one figure."
    if folder is None: raise SystemExit("--folder has to have the digitised curves")
    return read_table(Path(folder)/f"{name}.csv", "it is not distributed")


def last_common_step(a, b):
    "Last tabulated step up to which two curves are one, to half a percent; -1 if they start apart."
    if len(a) != len(b): return -1
    same = np.abs(a[:, 1] - b[:, 1]) <= 0.005*b[:, 1]
    if same.all(): return int(a[-1, 0])
    return int(a[same.argmin() - 1, 0]) if same[0] else -1


def published_rows(
    name:str, # A key of `PUBLISHED`
    folder:str|Path, # Of digitised curves: panel, algorithm, t, mean, lower, upper
)->list[dict]: # A row for each curve, numbers as text of five digits
    "The beginning, the middle and the end of the published curves of one figure."
    columns, rows = ["t", "mean", "lower", "upper"], []
    for panel, group in curves(folder, PUBLISHED[name]).groupby("panel", sort=False):
        of = {algorithm: c.sort_values(columns)[columns].to_numpy(float)
              for algorithm, c in group.groupby("algorithm", sort=False)}
        field = dict(re.findall(r"(\w+)=(\S+)", panel))
        runs = 5 if name == "hyper" else 20 if field["A"] == "200" else 10
        for algorithm, c in of.items():
            t, mean, low, high = c.T
            std = (high[-1] - low[-1])/2/(0.2 if name == "hyper" else 0.1)
            common = {f"with_{other}": last_common_step(c, of[other]) if other in of else ""
                      for other in ("GNN-PE", "NN-UCB")}
            rows.append(dict(
                figure=name, N=field["N"], p=field["p"], arms=field["A"], d=field["d"],
                lam=field.get("lambda", ""), beta=field.get("beta", ""), algorithm=algorithm,
                T=round(t[-1]) + 1, runs=runs, first=f"{mean[0]:.5g}",
                half=f"{np.interp(t[-1]/2, t, mean):.5g}", final=f"{mean[-1]:.5g}",
                se=f"{std/math.sqrt(runs):.4g}", **common))
    return rows


def published(keys, o):
    "The end points of the paper's regret figures."
    return [row for name, in keys for row in published_rows(name, o.folder)]


# The released recipe

MAIN = PUBLISHED["performance"]
PANELS = [(N, p, d, 200) for d in (10, 100) for N in (5, 20, 100) for p in (0.05, 0.2, 0.95)]
PANELS += [(20, 0.2, 10, 500), (20, 0.2, 10, 1000)]


def released_published(keys, o):
    "The published curves of the main panel."
    v = curves(o.folder, MAIN)
    v = v[v.panel == "N=20 p=0.2 A=200 d=10"].sort_values(["algorithm", "t"])
    return v[["algorithm", "t", "mean", "lower", "upper"]].to_dict("records")


def released_first(keys, o, most=25):
    "Which published curves begin with the random pulls that the seeds of the released code give."
    for N, p, d, arms in keys:
        v = curves(o.folder, MAIN if arms > 200 else f"benchmark_all_{d}d")
        v = v[v.panel == f"N={N} p={p:g} A={arms} d={d}"]
        v = v.pivot(index="t", columns="algorithm", values="mean")
        if 0 not in v.index: continue
        (_, second), (a, b) = v.index[:2], v.iloc[:2].median(axis=1)  # algorithms are mostly equal
        data, found = released_data(N=N, p=p, d=d), []
        for n in (5_000, 10_000):                         # the best size and run count
            part = type(data)(data.domain[:n], data.f[:n], data.seed)
            c = np.array([random_regret(released_game(part, r, arms=arms, T=41))
                          for r in range(most)])
            means = c.cumsum(0)/np.arange(1, most + 1)[:, None]
            found += [(abs(m[0]/a - 1) + abs(m[second]/b - 1), n, k + 1, m[0], m[second])
                      for k, m in enumerate(means) if k >= 4]
        _, n, runs, first, later = min(found)
        values = dict(first=first, published_first=a, second=later, published_second=b)
        yield dict(N=N, p=p, d=d, arms=arms, graphs=n, runs=runs, t=int(second)) | {
            k: round(float(values[k]), 6) for k in values}


LADDER = "network training uncertainty values exploration+lag reward scale noise".split()
LADDER = ["+".join(LADDER[:k]) for k in range(2, len(LADDER) + 1)] # Ours, ingredient by ingredient
TELLING = 16, 7, 9, 19, 14, 10, 12, 5, 3, 18 # Games that say most about the plotted regret
RELEASED = [*product(("released", "training", "training+uncertainty", *LADDER), [512],
                     PAPER_ALGORITHMS, range(20)),
            *product(("network", "uncertainty", "network+uncertainty"), [512], ["NN-UCB"],
                     range(20)),
            *product(["uncertainty"], [512], ["GNN-UCB"], TELLING[:3]),
            *product(["released"], [2048], ["GNN-UCB"], TELLING[:3]),
            *product(["released"], [2048], ["NN-UCB"], TELLING)]


@cache
def recovered(): return released_data()


def released_row(game, algorithm, recipe, m, unfinished):
    "The result of one run; what is not finished lies in a file, written every minute."
    torch.set_flush_denormal(True)      # decayed moments of Adam: tiny numbers would only be slow
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    row = run_record(game, released_run(game, algorithm, recipe, m, unfinished))[0]
    unfinished.unlink(missing_ok=True)
    return row


def released(keys, o):
    "Runs of the released recipe, or of one in which the named ingredients are ours."
    for recipe, m, algorithm, run in keys:
        chosen = recipe_from(recipe)
        redrawn = chosen.reward == "redrawn"
        game = released_game(released_data(seed=10_000 + run) if redrawn else recovered(), run,
                             chosen)
        unfinished = o.room/f"{recipe}_m{m}_{algorithm}_{run:03}.part"
        yield dict(recipe=recipe, m=m, algorithm=algorithm, run=run) | released_row(
            game, algorithm, chosen, m, unfinished)


# The plan for other domains, fixed before any result was looked at: 20 rewards in each of four
# domains at two widths, five rewards at a time, so that domains have equally many at any time
OTHERS = (5, 0.2), (20, 0.05), (20, 0.2), (20, 0.95)
REDRAWN = [(*domain, m, name, run) for domain in OTHERS for m in (128, 512)
           for name in ("GNN-UCB", "NN-UCB") for run in range(20)]


def released_domains(keys, o):
    "The released recipe in four domains, with new graphs and a new reward for every run."
    for N, p, m, algorithm, run in keys:
        recipe = recipe_from("reward=redrawn")
        game = released_game(released_data(seed=20_000 + run, N=N, p=p), run, recipe)
        unfinished = o.room/f"domains_N{N}_p{p}_m{m}_{algorithm}_{run:03}.part"
        whole, began = not unfinished.exists(), time.process_time()
        row = released_row(game, algorithm, recipe, m, unfinished)
        yield dict(N=N, p=p, m=m, algorithm=algorithm, run=run) | row | dict(
            random=random_regret(game)[-1]/row["mean_gap"],
            processor=time.process_time() - began if whole else math.nan)


def released_widths(keys, o):
    "One run of the released recipe on a new reward at several widths, for its seconds."
    for N, m, algorithm in keys:
        recipe = recipe_from("reward=redrawn")
        game = released_game(released_data(seed=10_000, N=N), 0, recipe)
        unfinished = o.room/f"widths_N{N}_m{m}_{algorithm}.part"
        yield dict(N=N, m=m, algorithm=algorithm) | released_row(game, algorithm, recipe, m,
                                                                 unfinished)


TABLES = {
    "ntk_oracle": Table(ntk_oracle, ("L",), lambda: [(L,) for L in (1, 2, 3, 4)], digits=None),
    "width_limit": Table(width_limit, ("L", "symmetric", "m", "seed"), lambda: [
        (*s, m, seed) for s in ((1, 1), (2, 1), (3, 1), (2, 0)) for m in WIDTHS
        for seed in range(40)], lambda k: k[:3], 6),
    "taylor_error": Table(taylor, ("m", "seed"), lambda: [*product(WIDTHS, range(8))], digits=9),
    "reward_remainder": Table(reward_remainder, ("d", "N", "p"), lambda: sorted(
        (s.d, s.N, s.p) for s in DATASETS.values())),
    "warm_start": Table(warm_start, ("options", "run"), lambda: [
        *product(("scaled", "text"), range(6))], digits=5),
    "coverage": Table(coverage),
    "elimination": Table(elimination, ("model", "share", "seed"), lambda: [
        (*case, seed) for case in EliminationSettings().cases for seed in range(500)]),
    "stopping": Table(stopping, ("run",), lambda: [(run,) for run in range(24)]),
    "tuning_edges": Table(tuning_edges, digits=5),
    "trained_population": Table(trained_population, ("run",), lambda: [(r,) for r in range(20)]),
    "selection": Table(selection, digits=5, ending=".csv.gz"),
    "selection_claims": Table(selection_claims, ("key",), lambda: [
        (c.key,) for c in CLAIMS if SELECTION in c.files], lambda k: 0),
    "fresh_dense": Table(fresh_dense, ("N",), lambda: [(20,), (100,)], digits=5,
                         ending=".csv.gz"),
    "fresh_arms": Table(fresh_arms, ("arms",), lambda: [(200,), (500,), (1000,)], digits=5,
                        ending=".csv.gz"),
    "landing": Table(landing, ("seed",), lambda: [(seed,) for seed in range(51)]),
    "published": Table(published, ("figure",), lambda: [(name,) for name in PUBLISHED]),
    "released_published": Table(released_published, digits=None),
    "released_first": Table(released_first, ("N", "p", "d", "arms"), lambda: PANELS, digits=None),
    "released": Table(released, ("recipe", "m", "algorithm", "run"), lambda: sorted(RELEASED),
                      clock=("seconds",)),
    "released_redrawn": Table(released, ("recipe", "m", "algorithm", "run"), lambda: [
        ("reward=redrawn", 512, a, run) for run in range(20) for a in PAPER_ALGORITHMS],
        clock=("seconds",)),
    "released_domains": Table(released_domains, ("N", "p", "m", "algorithm", "run"),
                              lambda: REDRAWN, clock=("seconds", "processor")),
    "released_widths": Table(released_widths, ("N", "m", "algorithm"), lambda: [
        *product((5, 20), (64, 128, 256, 512), ("GNN-UCB", "NN-UCB"))], clock=("seconds",)),
    "molecules_theory": Table(molecules_theory, ("set", "N", "seed"), lambda: sorted(
        (name, N, seed) for name in KINDS for N in KINDS[name] for seed in range(20)), digits=5)}
