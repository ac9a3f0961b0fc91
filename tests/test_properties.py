"""What must hold for every graph, kernel, belief, policy, table and sequence of calls.

Hypothesis makes the examples, and makes those that fail small. A few fixed examples are tried with
the other tests; `EXAMPLES=1000` tries as many new ones of each property (`make fuzz`).
"""
import contextlib
import dataclasses
import importlib
import io
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (RuleBasedStateMachine, initialize, invariant, rule,
                                 run_state_machine_as_test)
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import multivariate_normal
from html_reader import Reader
from test_posterior import kinds
from test_priors import KERNELS

from gnn_bandits import Campaign, GraphDomain, cli
from gnn_bandits.bandits import ALGORITHMS
from gnn_bandits.core import Bound, best_first, first_best
from gnn_bandits.gntk import gntk
from gnn_bandits.intake import as_file, for_spreadsheet, from_spreadsheet, read_cells
from gnn_bandits.journal import Journal
from gnn_bandits.kernels import GNTK, Given, Matrix
from gnn_bandits.paper.algorithms import MODELS
from gnn_bandits.paper.datasets import DatasetSpec
from gnn_bandits.paper.experiments import RunSpec
from gnn_bandits.policies import POLICIES, lite, log_improvement, log_p_best, plausible
from gnn_bandits.posterior import Posterior
from gnn_bandits.priors import Prior
from gnn_bandits.reports import report_page
from gnn_bandits.rewards import NOISES
from gnn_bandits.scale import Library
from gnn_bandits.surrogate import Surrogate

MORE = os.environ.get("EXAMPLES")
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("few", max_examples=10, derandomize=True, database=None)
settings.register_profile("many", max_examples=int(MORE or 1), print_blob=True)
TRIED = settings(settings.get_profile("many" if MORE else "few"), deadline=None,
                 suppress_health_check=QUIET)
SCRIPTS = Path(__file__).parent.parent/"scripts"
pytestmark = pytest.mark.usefixtures("one_thread")
seeds = st.integers(0, 2**32 - 1)


def tried(*strategies, few=10, **named):
    "A property: `given` with the settings above; fewer examples where one takes long"
    chosen = TRIED if MORE else settings(TRIED, max_examples=few)
    return lambda f: chosen(given(*strategies, **named)(f))


# Kernels

@st.composite
def graph(draw):
    "A graph of up to six nodes of three kinds, edges of two kinds; perhaps no edge at all"
    n = draw(st.integers(1, 6))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    g = nx.empty_graph(n)
    if pairs:
        for e in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8)):
            g.add_edge(*e, kind=draw(st.integers(0, 1)))
    for v in g: g.nodes[v]["x"] = np.eye(3)[draw(st.integers(0, 2))]
    return g


@st.composite
def pools(draw, least=2):
    "Graphs with an edge among them somewhere, and columns beside them"
    graphs = draw(st.lists(graph(), min_size=least, max_size=6))
    assume(any(g.edges for g in graphs))
    n = len(graphs)
    heat, salt = st.integers(1, 5), st.sampled_from(["NaCl", "KBr", "KI"])
    beside = dict(heat=[1, 4, *(draw(heat) for _ in range(n - 2))],
                  salt=["NaCl", "KBr", *(draw(salt) for _ in range(n - 2))])
    return graphs, beside


def domain(pool):
    graphs, beside = pool
    return GraphDomain.from_networkx(graphs, edge_type="kind").with_columns(beside)


def shuffled(g, order):
    "The same graph, its nodes in another order and under other names"
    new = nx.Graph()
    for v in order: new.add_node(f"v{v}", x=g.nodes[v]["x"])
    new.add_edges_from((f"v{a}", f"v{b}", d) for a, b, d in reversed(list(g.edges(data=True))))
    return new


TWINS = pytest.mark.filterwarnings("ignore:.*have a twin")
OWN = [name for name, k in KERNELS.items() if k is not None]     # the others are matrices
ROUND = 1e-10      # sums of at most 36 cosines in [-1, 1], each rounded a few hundred times


@TWINS
@pytest.mark.parametrize("name", OWN)
@tried(pools(), st.data())
def test_a_kernel_is_a_kernel(name, pool, data):
    "Symmetric, positive, its diagonal its own, and the same between two pools as within one"
    k, X = KERNELS[name], domain(pool)
    K = k.gram(X)
    size = float(K.diagonal().mean())
    assert K.isfinite().all() and size > 0
    assert_allclose(K, K.T, atol=ROUND*size)
    assert float(torch.linalg.eigvalsh(K).min()) > -len(X)*ROUND*size
    assert_allclose(k.diag(X), K.diagonal(), atol=ROUND*size)
    some = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=4))
    assert_allclose(k.cross(X, X[some]), K[:, some], atol=ROUND*size)


@TWINS
@pytest.mark.parametrize("name", [n for n in OWN if n != "vector"])    # which reads nodes in order
@tried(pools(), st.data())
def test_a_kernel_sees_neither_the_order_of_nodes_nor_of_graphs(name, pool, data):
    graphs, beside = pool
    k, K = KERNELS[name], KERNELS[name].gram(domain(pool))
    others = [shuffled(g, data.draw(st.permutations(list(g)))) for g in graphs]
    order = data.draw(st.permutations(range(len(graphs))))
    moved = [others[i] for i in order], {c: [v[i] for i in order] for c, v in beside.items()}
    size = float(K.diagonal().mean())
    assert_allclose(k.gram(domain(moved)), K[order][:, order], atol=ROUND*size)


@TWINS
@tried(pools(), st.sampled_from(OWN), st.sampled_from(OWN), st.floats(0.1, 10))
def test_kernels_add_and_multiply(pool, one, two, weight):
    k, l, X = KERNELS[one], KERNELS[two], domain(pool)
    K, L = k.gram(X), l.gram(X)
    size = float(K.diagonal().max()*L.diagonal().max() + K.diagonal().max() + L.diagonal().max())
    close = lambda a, b: assert_allclose(a, b, atol=ROUND*size*weight)
    close((k + l).gram(X), K + L), close((weight*k).gram(X), weight*K), close((k*l).gram(X), K*L)
    close((k + l).diag(X), (K + L).diagonal()), close((k*l).diag(X), (K*L).diagonal())
    assert (k + l).label == f"{k.label} + {l.label}"


@TWINS
@tried(pools(), st.integers(1, 4), few=5)
def test_the_graph_kernel_in_single_precision_and_on_two_threads(pool, L):
    "Where the cosine is one, rounding it by eps turns the angle by about the root of 2 eps"
    X, threads = domain(pool), torch.get_num_threads()
    K = gntk(X, L=L)
    angle = math.sqrt(2*torch.finfo(torch.float32).eps)
    assert_allclose(gntk(X, L=L, dtype=torch.float32), K, atol=2*L*angle)
    try:
        torch.set_num_threads(2)
        assert_allclose(gntk(X, L=L), K, atol=ROUND)
    finally: torch.set_num_threads(threads)


# Priors

@TWINS
@pytest.mark.parametrize("name", OWN)
@tried(pools(least=3), st.data())
def test_a_prior_is_the_same_in_every_form(name, pool, data):
    "Centred over the same anchors, rows and a matrix say the same, also after observations"
    X = domain(pool)
    arms = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=5))
    y = [math.sin(3*a + k) for k, a in enumerate(arms)]
    whole, rows = (Prior(KERNELS[name], X, form, "anchors") for form in ("matrix", "rows"))
    assume(float(whole.diag.max()) > 1e-6)                     # not all graphs are one and the same
    assert_allclose(whole.block(arms), rows.block(arms), atol=1e-7)
    assert_allclose(whole.rows(arms), rows.rows(arms), atol=1e-7)
    assert_allclose(whole.diag, rows.diag, atol=1e-7)
    a, b = (p.start(0.1).observe(arms, y) for p in (whole, rows))
    assert_allclose(a.mean, b.mean, atol=1e-6)
    assert_allclose(a.std, b.std, atol=1e-4)                   # a root of what may be nearly zero


@tried(seeds, st.integers(2, 9), st.integers(1, 4), st.booleans())
def test_features_are_the_matrix_they_make(seed, n, F, gap):
    "A matrix Φ Φᵀ + diag(r), given as a matrix, by rows, and by its features"
    rng = np.random.default_rng(seed)
    Phi = torch.from_numpy(rng.standard_normal((n, F)))
    missed = torch.from_numpy(gap*rng.uniform(0, 1, n))
    K = Phi @ Phi.T + missed.diag()
    given = Prior(Given(Phi=Phi, missed=missed), None, "features")
    arms, y = rng.integers(n, size=6).tolist(), rng.standard_normal(6)
    for form in ("matrix", "rows"):
        other = Prior(Matrix(K), None, form)
        assert_allclose(given.block(arms), other.block(arms), atol=1e-9)
        single = 1e-5*float(K.diagonal().max())       # how the features of all arms are kept
        assert_allclose(given.rows(arms), other.rows(arms), atol=single)
        a, b = (p.start(0.1).observe(arms, y) for p in (given, other))
        assert_allclose(a.mean, b.mean, atol=10*single)     # ten: one over the noise variance
        assert_allclose(a.std**2, b.std**2, atol=10*single)


@TWINS
@pytest.mark.parametrize("form", ["matrix", "rows"])
@tried(pools(least=3), st.sampled_from([n for n in OWN if not n.startswith("new")]))
def test_a_prior_comes_back_from_its_file(form, pool, name):
    X = domain(pool)
    prior = Prior(KERNELS[name], X, form, "anchors")
    every = range(len(X))
    with tempfile.TemporaryDirectory() as folder:
        prior.save(Path(folder)/"p.npz")
        again = Prior.load(Path(folder)/"p.npz", X)
    assert (again.form, again.label, again.nats) == (prior.form, prior.label, prior.nats)
    assert_allclose(again.block(every), prior.block(every), rtol=1e-12, atol=1e-12)


@TWINS
@tried(pools(least=3), st.integers(1, 4), st.data())
def test_features_in_files_are_those_in_memory(pool, degree, data):
    X = domain(pool)
    arms = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=5))
    y = [math.cos(5*a + k) for k, a in enumerate(arms)]
    Phi, missed = GNTK().features(X, degree=degree)
    with tempfile.TemporaryDirectory() as folder:
        Library.of(Phi, missed).save(Path(folder)/"f")
        files = Prior.library(Path(folder)/"f", X).start(0.1).observe(arms, y)
        held = Prior(Given(Phi=Phi.double(), missed=missed.double()), None, "features")
        memory = held.start(0.1).observe(arms, y)
        single = 1e-5*float((Phi**2).sum(1).max())         # files hold single precision
        assert_allclose(files.mean, memory.mean, atol=10*single)
        assert_allclose(files.std**2, memory.std**2, atol=10*single)


# Beliefs

@st.composite
def histories(draw, n=6):
    "Observations: an arm, a value, a weight"
    k = draw(st.integers(1, 8))
    arms = draw(st.lists(st.integers(0, n - 1), min_size=k, max_size=k))
    values = draw(st.lists(st.integers(-40, 40), min_size=k, max_size=k))
    weights = draw(st.lists(st.sampled_from([0.25, 1., 1., 3.]), min_size=k, max_size=k))
    return arms, np.array(values)/8, np.array(weights)


@pytest.mark.parametrize("kind", ["matrix", "features", "rows", "library"])
@tried(histories(), st.sampled_from([0.05, 0.2, 2.]), st.data())
def test_a_belief_is_bayes_rule(kind, told, lam, data):
    "In any order, in any batches: mean, deviation and evidence are those of the joint normal law"
    arms, y, w = told
    prior = kinds(6, lam)
    K = prior["matrix"].block(range(6)).numpy()
    A = K[np.ix_(arms, arms)] + np.diag(lam/w)
    mean = K[:, arms] @ np.linalg.solve(A, y)
    var = K.diagonal() - (K[:, arms]*np.linalg.solve(A, K[arms]).T).sum(1)
    belief = prior[kind]
    order = data.draw(st.permutations(range(len(arms))))
    cut = data.draw(st.integers(0, len(arms)))
    for part in filter(None, (order[:cut], order[cut:])):
        belief.observe([arms[i] for i in part], y[part], w[part])
    close = lambda a, b, atol: assert_allclose(a, b, atol=atol, rtol=1e-5)
    close(belief.mean, mean, 1e-5)
    close(belief.std**2, var, 1e-5)
    close(belief.evidence(), multivariate_normal(cov=A).logpdf(y), 1e-4)
    assert belief.t == len(arms) and sorted(belief.arms.tolist()) == sorted(set(arms))


@pytest.mark.parametrize("kind", ["matrix", "features", "rows", "library"])
@tried(histories(), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_a_fantasy_moves_no_mean_and_knows_as_much_as_a_measurement(kind, told, dreamt):
    belief = kinds(6)[kind].observe(*told)
    before = belief.mean.clone(), belief.std.clone(), belief.evidence(), belief.t
    dream, truth = belief.fantasy(dreamt), belief.copy().observe(dreamt, [9.]*len(dreamt))
    assert_allclose(dream.mean, before[0], atol=1e-5)
    assert_allclose(dream.std, truth.std, atol=1e-5)
    assert (dream.std <= before[1] + 1e-6).all()
    assert torch.equal(belief.mean, before[0]) and torch.equal(belief.std, before[1])
    assert (belief.evidence(), belief.t) == before[2:]
    assert belief.reset().t == 0 and belief.evidence() == 0


SMOOTH = Prior.kernel(torch.from_numpy(np.exp(-(np.arange(8.)[:, None] - np.arange(8.))**2/8)))
MEASURED = st.lists(st.tuples(st.integers(0, 7), st.integers(-40, 40), st.sampled_from([0, 0, 0, 1,
                                                                                       -1])),
                    min_size=1, max_size=12).filter(lambda rows: any(not s for *_, s in rows))


@tried(MEASURED, st.integers(-60, 60), st.data(), few=5)
def test_a_surrogate_is_a_function_of_its_list_in_any_unit(rows, power, data):
    "In pieces or at once, in a unit that is a power of two, with changed signs: the same bits"
    arms = [a for a, *_ in rows]
    told = lambda k: [Bound(k*v/8, int(math.copysign(s, k*s))) if s else k*v/8 for _, v, s in rows]
    once, k = Surrogate(SMOOTH).learn(arms, told(1.)), 2.**power
    single, cut = Surrogate(SMOOTH), data.draw(st.integers(0, len(rows)))
    for part in (slice(cut), slice(cut, None)):
        if arms[part]: single.learn(arms[part], told(1.)[part]).std
    assert torch.equal(once.mean, single.mean) and torch.equal(once.std, single.std)
    assume(len({v for _, v, s in rows if not s}) > 1)     # else the unit is a rule, not a spread
    large, mirror = (Surrogate(SMOOTH).learn(arms, told(f)) for f in (k, -1.))
    assert torch.equal(large.mean, k*once.mean) and torch.equal(large.std, k*once.std)
    assert torch.equal(mirror.mean, -once.mean) and torch.equal(mirror.std, once.std)


@tried(MEASURED, st.floats(0.01, 0.99), st.floats(0.001, 0.009))
def test_intervals_lie_in_each_other_and_around_the_mean(rows, level, more):
    s = Surrogate(SMOOTH).learn([a for a, *_ in rows],
                                [Bound(float(v), c) if c else float(v) for _, v, c in rows])
    (low, high), (lower, higher) = s.interval(level), s.interval(level + more)
    assert (lower <= low).all() and (low <= s.mean).all()
    assert (s.mean <= high).all() and (high <= higher).all()
    p = s.p_best(rng=np.random.default_rng(0))
    assert abs(float(p.sum()) - 1) < 1e-9 and (p >= 0).all()


# Policies

def believed(seed, n=7):
    "A belief over some arms, and the arms that were measured"
    rng = np.random.default_rng(seed)
    Phi = torch.from_numpy(rng.standard_normal((n, 4)))
    arms = rng.integers(n, size=int(rng.integers(0, 6))).tolist()
    belief = Posterior(Phi @ Phi.T + 0.1*torch.eye(n).double(), 0.2)
    return (belief.observe(arms, rng.standard_normal(len(arms))) if arms else belief), arms, rng


@pytest.mark.parametrize("name", POLICIES)
@tried(seeds, st.lists(st.booleans(), min_size=7, max_size=7).filter(any))
def test_a_policy_chooses_again_what_it_chose_and_never_who_is_out(name, seed, able):
    belief, seen, _ = believed(seed)
    race, policy = torch.tensor(able), POLICIES[name]
    before = belief.mean.clone(), belief.std.clone()
    score, again = (policy.score(belief, policy.beta, seen, race, np.random.default_rng(seed))
                    for _ in range(2))
    assert score.shape == (7,) and torch.equal(score, again) and not score.isnan().any()
    assert able[first_best(score, race)]
    if policy.races: assert able[first_best(score)]                # also without being told again
    assert torch.equal(belief.mean, before[0]) and torch.equal(belief.std, before[1])


class Said:
    "A belief that is told what to say"
    def __init__(self, *said): self.mean, self.std = (torch.tensor(v).double() for v in said)


values = st.lists(st.integers(-30, 30), min_size=2, max_size=6).map(lambda v: [x/4 for x in v])


@pytest.mark.parametrize("name", ["ucb", "ei"])
@tried(values, st.data())
def test_more_promise_or_more_doubt_never_lowers_a_score(name, mean, data):
    "Of an arm that was not measured, while the others stay as they are"
    std = [data.draw(st.sampled_from([0.01, 0.5, 1., 4.])) for _ in mean]
    arm = data.draw(st.integers(0, len(mean) - 1))
    seen = [i for i in range(len(mean)) if i != arm]
    score = lambda m, s: float(POLICIES[name].score(Said(m, s), 2., seen, None, None)[arm])
    up, wide = list(mean), list(std)
    up[arm] += data.draw(st.sampled_from([0.25, 1., 8.]))
    wide[arm] *= data.draw(st.sampled_from([1.5, 4.]))
    assert score(up, std) > score(mean, std) and score(mean, wide) > score(mean, std) - 1e-12
    if name == "ucb": assert_allclose(score(mean, wide), mean[arm] + 2*wide[arm])


@tried(values, st.floats(0, 3), st.floats(0, 3), st.data())
def test_the_best_arm_stays_in_the_race_and_a_wider_interval_keeps_more(mean, beta, more, data):
    mean = torch.tensor(mean).double()
    std = torch.tensor([data.draw(st.sampled_from([0.1, 1., 3.])) for _ in mean]).double()
    pool = torch.tensor([data.draw(st.booleans()) for _ in mean])
    assume(pool.any())
    narrow, wide = (plausible(mean, b*std, pool) for b in (beta, beta + more))
    assert not (narrow & ~pool).any() and not (narrow & ~wide).any()
    assert narrow[first_best(mean, pool)] and narrow[first_best(mean - beta*std, pool)]
    assert plausible(mean, beta*std, pool, 100.).equal(pool)


@tried(st.floats(-30, 8))
def test_the_expected_improvement_is_an_integral(z):
    inside = lambda x: x*math.exp(-(x - z)**2/2 + min(z, 0)**2/2)/math.sqrt(2*math.pi)
    found = quad(inside, 0, max(z, 0) + 12, epsabs=0, epsrel=1e-10, points=[max(z, 0) + 1])[0]
    log = float(log_improvement(torch.tensor(z).double()))
    assert_allclose(log, math.log(found) - min(z, 0)**2/2, atol=1e-6)


@tried(seeds, st.lists(st.booleans(), min_size=7, max_size=7))
def test_probabilities_of_being_best_add_up(seed, able):
    belief, _, rng = believed(seed)
    able = torch.tensor(able)
    p = log_p_best(belief, able, rng=rng).exp()
    assert (p[~able] == 0).all()
    if able.any():
        assert_allclose(p.sum(), 1, atol=1e-9)
        assert_allclose(lite(belief.mean[able], belief.std[able]).exp().sum(), 1, atol=1e-9)


@tried(st.lists(st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.just(0.)), min_size=1,
                max_size=8))
def test_an_order_has_everyone_once_and_begins_with_the_best(scores):
    order = best_first(scores).tolist()
    assert sorted(order) == list(range(len(scores)))
    assert order[0] == first_best(scores)


# Files

TEXT = st.text(max_size=12)                        # any character, except halves of a character
PLAIN = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@tried(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5), st.sampled_from(",;\t"),
       st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_text_in_any_cell_comes_back(rows, separator, end):
    table = pd.DataFrame([("first", *r) for r in rows], columns=["id", "b", "c"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder)/"t.csv"
        table.to_csv(file, index=False, sep=separator, lineterminator=end, quoting=1,
                     encoding="utf-8")
        assert read_cells(file).to_numpy().tolist() == table.to_numpy().tolist()


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
@tried(st.lists(PLAIN, min_size=1, max_size=5))
def test_what_is_written_for_a_spreadsheet_is_read_again(kind, cells):
    if kind == "xlsx": pytest.importorskip("openpyxl")
    table = pd.DataFrame({"id": [f"m{i}" for i in range(len(cells))], "text": cells})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder)/f"t.{kind}"
        file.write_bytes(as_file(table, kind))
        found = read_cells(file)["text"].tolist()
    assert (found if kind == "xlsx" else [from_spreadsheet(t) for t in found]) == cells
    assert all(from_spreadsheet(for_spreadsheet(t)) == t for t in cells)


JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-2**60, 2**60), TEXT,
                              st.floats(allow_nan=False, allow_infinity=False)),
                    lambda inner: st.one_of(st.lists(inner, max_size=3),
                                            st.dictionaries(TEXT, inner, max_size=3)), max_leaves=6)


@tried(st.lists(st.tuples(TEXT, st.dictionaries(TEXT, JSON, max_size=3), TEXT), max_size=4))
def test_a_journal_keeps_every_fact(events):
    "Whatever it takes it gives back, from memory and from the file; the rest is refused whole"
    with tempfile.TemporaryDirectory() as folder:
        path, kept = Path(folder)/"j.db", []
        with Journal.create(path, {}, author="ada") as j:
            for kind, data, note in events:
                try: j.append(kind, data, note)
                except ValueError as e: assert "\n" not in str(e) and not kind
                else: kept.append((kind, data, note))
            said = [(e.kind, e.data, e.note) for e in j.events()]
        with Journal.open(path) as j:
            assert [(e.kind, e.data, e.note) for e in j.events()] == said == kept
            assert [e.seq for e in j.events()] == list(range(1, len(kept) + 1))


@tried(st.lists(TEXT, min_size=3, max_size=3), st.lists(TEXT, min_size=3, max_size=3), TEXT)
def test_a_campaign_keeps_every_text(ids, cells, note):
    "Ids, cells of its table, notes: as they were given, or refused in one line and nothing is left"
    X = GraphDomain.from_arrays([nx.to_numpy_array(nx.path_graph(k)) for k in (2, 3, 4)],
                                [np.arange(1., 2*k + 1).reshape(k, 2) for k in (2, 3, 4)])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)/"lab"
        table = pd.DataFrame({"text": cells})
        try: c = Campaign.create(place, X, ids=ids, table=table)
        except ValueError as e:
            assert "\n" not in str(e) and os.listdir(folder) == []
            return
        with c:
            first = c.table.map(str)
            told = True
            try: c.tell(c.ids[1], 1.5, note=note)
            except ValueError: told = False
        assert c.ids == [i.strip() for i in ids] and first["text"].tolist() == cells
        with Campaign.open(place) as again:
            assert again.ids == c.ids and again.table.map(str).equals(first)
            notes = again.observations["note"].tolist()
            assert notes == ([note] if told else [])


@TWINS
@tried(pools())
def test_graphs_come_back_from_a_file(pool):
    X = domain(pool)
    with tempfile.TemporaryDirectory() as folder:
        X.save(Path(folder)/"x.npz")
        Y = GraphDomain.load(Path(folder)/"x.npz")
    assert torch.equal(X.h, Y.h) and torch.equal(X.sizes, Y.sizes)
    assert (X.adjacency() != Y.adjacency()).nnz == 0
    assert torch.equal(KERNELS["conditions"].gram(X), KERNELS["conditions"].gram(Y))


# Specs

RUNS = st.fixed_dictionaries(
    dict(algorithm=st.sampled_from(sorted(ALGORITHMS)), model=st.sampled_from(sorted(MODELS)),
         arms=st.integers(1, 50), T=st.integers(1, 10**6), seed=st.integers(0, 2**31),
         noise_std=st.floats(0, 1e3), noise=st.sampled_from(sorted(NOISES)), replace=st.booleans(),
         options=st.fixed_dictionaries({}, optional=dict(
             B=st.floats(0.01, 100), m=st.integers(1, 4096)))))
SETS = st.builds(DatasetSpec, st.integers(1, 200), st.floats(0, 1), st.integers(1, 100),
                 st.integers(50, 10**6), st.integers(0, 2**31))


@tried(SETS, RUNS, RUNS)
def test_a_spec_is_its_text(data, fields, others):
    "It comes back, equal specs have equal text, and every field that differs changes its key"
    spec, other = RunSpec(data, **fields), RunSpec(data, **others)
    again = RunSpec.from_json(spec.to_json())
    assert again == spec and again.hash == spec.hash and again.to_json() == spec.to_json()
    assert (spec == other) == (spec.hash == other.hash)
    assert DatasetSpec(**{f.name: getattr(data, f.name) for f in dataclasses.fields(data)}) == data


# Pages

HOSTILE = ["<script>alert(1)</script>", '" onload="alert(2)', "</title><img src=x onerror=y>",
           "' style='x", "&lt;b&gt;", "]]> -->", "$\\frac{1}{$", "{{ 7*7 }}", "\u202e", "名前 🧪"]
ACTIVE = {"script", "img", "iframe", "style", "link", "object", "form", "title", "base"}
TYPED = st.one_of(st.sampled_from(HOSTILE), PLAIN)
PATHS = [nx.to_numpy_array(nx.path_graph(k)) for k in (2, 3, 4)]
NODES = [np.arange(1., 2*k + 1).reshape(k, 2) for k in (2, 3, 4)]


def tags_of_report(ids, cell, note, reason):
    "Tags of a report of a small campaign, each with the names of its attributes"
    with tempfile.TemporaryDirectory() as folder:
        c = Campaign.create(Path(folder)/"lab", GraphDomain.from_arrays(PATHS, NODES), ids=ids,
                            table=pd.DataFrame({"text": [cell]*3}),
                            prior=Prior.kernel(torch.eye(3).double()))
        with c:
            c.tell(c.ids[0], 1.5, note=note), c.tell(c.ids[1], 0.5), c.fail(c.ids[2], reason)
            return [(tag, sorted(attrs)) for tag, attrs in Reader(report_page(c)).tags]


@pytest.fixture(scope="module")
def harmless(): return tags_of_report(["a", "b", "c"], "d", "e", "f")


@tried(st.lists(TYPED, min_size=3, max_size=3), TYPED, TYPED, TYPED, few=5)
def test_no_text_becomes_a_tag_of_a_report(harmless, ids, cell, note, reason):
    "Nothing that acts is there that was not there with harmless texts, whatever somebody typed"
    acts = lambda tags: [t for t in tags if t[0] in ACTIVE or any(a.startswith("on") for a in t[1])]
    try: found = tags_of_report(ids, cell, note, reason)
    except ValueError as e: assert "\n" not in str(e)     # a text that a campaign refuses
    else:
        assert acts(found) == acts(harmless)
        assert {tag for tag, _ in found} <= {tag for tag, _ in harmless}


# Command lines

COMMANDS = ["ask", "tell", "fail", "status", "best", "undo", "drop", "exclude", "include", "add",
            "policy", "goal", "predict", "export", "report", "simulate", "new", "none"]
WORDS = st.one_of(st.sampled_from(
    ["LAB", "0", "1", "7", "-1", "1.5", ">2", "nan", "1e400", "-n", "--batch", "--note", "--all",
     "--out", "--minimize", "--smiles", "--reason", "--noise", "--level", "--help", "--", "-",
     "ucb", "--json", "results.csv", "--none"]), PLAIN)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    c = Campaign.create(home/"lab", GraphDomain.from_arrays(PATHS, NODES))
    c.tell(0, 1.)
    c.close()
    (home/"results.csv").write_text("id,value\n1,2.5\n")
    return home/"lab"


@tried(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=5))
def test_any_command_line_does_its_work_or_says_why_not(lab, command, words):
    "Code 0, or code 2 with one line on standard error and nothing on standard output"
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        shutil.copytree(lab, Path(home)/"lab")
        shutil.copy(lab.parent/"results.csv", home)
        argv = ["campaign", command, *("lab" if w == "LAB" else w for w in words)]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try: code = cli.main(argv)
            except SystemExit as e: code = e.code
        assert code in (0, 2), (argv, code, err.getvalue())
        if code == 2:
            assert out.getvalue() == "" and err.getvalue().count("\n") == 1, (argv, err.getvalue())
            assert "Traceback" not in err.getvalue()
        with Campaign.open("lab") as c: c.journal.check()


# Campaigns

SLOW = set() if MORE else {"command", "program_reads", "outputs", "threads", "copy_folder"}


@pytest.mark.skipif(not SCRIPTS.exists() or sys.platform != "linux", reason="needs the scripts")
def test_a_campaign_is_a_plain_list_of_what_happened():
    """Any sequence of calls beside the plain model of scripts/fuzz_calls.py: ask, tell, undo, drop,
    fail, exclude, include, add, reopen, a second writer. A sequence that fails is made short."""
    sys.path.insert(0, str(SCRIPTS))
    try: calls = importlib.import_module("fuzz_calls")
    finally: sys.path.remove(str(SCRIPTS))

    class Machine(RuleBasedStateMachine):
        lab = None

        @initialize(seed=seeds)
        def begin(self, seed):
            self.home = tempfile.TemporaryDirectory()
            self.lab = calls.Lab(self.home.name, np.random.default_rng(seed))

        @rule(name=st.sampled_from(sorted(set(calls.CALLS) - SLOW)), seed=seeds)
        def call(self, name, seed):
            self.lab.rng = np.random.default_rng(seed)
            calls.CALLS[name][0](self.lab, calls.pick(self.lab.rng, self.lab.handles))

        @invariant()
        def agrees(self):
            if self.lab:
                for c in self.lab.handles: self.lab.check(c, self.lab.log[-1])

        def teardown(self):
            if not self.lab: return
            with contextlib.closing(self.lab): self.lab.compare("the end")
            self.home.cleanup()

    few = dict(max_examples=4, stateful_step_count=10)
    many = dict(max_examples=int(MORE or 1), stateful_step_count=25)
    run_state_machine_as_test(Machine, settings=settings(TRIED, **(many if MORE else few)))
