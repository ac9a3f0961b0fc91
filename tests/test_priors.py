"Every kernel in every form through every door; a cell that is empty has a reason."
import gc, weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from gnn_bandits import Campaign, GraphDomain, make_algorithm
from gnn_bandits.kernels import (GNTK, Columns, Kernel, Matrix, Overlap, Relational, Sum, Typed,
                                 Unit, Vector, WeisfeilerLehman)
from gnn_bandits.priors import FORMS, Prior
from gnn_bandits.scale import Library
from gnn_bandits.surrogate import Surrogate

pytestmark = pytest.mark.usefixtures("one_thread")


class Size(Kernel):
    "A kernel that no page of the package has: six lines, and every door takes it."
    label = "size"
    def encode(self, X): return X.sizes.double()
    def between(self, a, b): return torch.exp(-(a[:, None] - b)**2/18)
    def own(self, a): return torch.ones_like(a)


KERNELS = {"gntk": GNTK(), "vector": Vector(), "relational": Relational(over="sum"),
           "overlap": Overlap(1), "weisfeiler-lehman": WeisfeilerLehman(2), "typed": Typed(),
           "cosine": Unit(WeisfeilerLehman(1)), "sum": 0.5*GNTK(1) + GNTK(3),
           "mixture": Sum((GNTK(over="sum"), Overlap(1)), standard=True, free=True),
           "product": GNTK()*Overlap(1), "new": Size(), "new product": Size()*GNTK(),
           "columns": Columns(), "conditions": Unit(GNTK())*Columns(("heat",)) + GNTK(),
           "matrix": None, "files": None}
NO_FEATURES = {"vector", "relational", "overlap", "cosine", "mixture", "product", "new",
               "new product", "columns", "conditions", "matrix"} # for which no features are known
N = 24


@pytest.fixture(scope="module")
def pool():
    import networkx as nx
    rng, graphs = np.random.default_rng(0), []
    for i in range(N):
        g = nx.gnp_random_graph(3 + i % 5, 0.5, seed=i)
        nx.set_node_attributes(g, {v: np.eye(3)[rng.integers(3)] for v in g}, "x")
        nx.set_edge_attributes(g, {e: int(rng.integers(2)) for e in g.edges}, "kind")
        graphs.append(g)
    pool = GraphDomain.from_networkx(graphs, edge_type="kind")
    beside = dict(heat=rng.integers(1, 9, N), salt=rng.choice(["NaCl", "KBr", "none"], N))
    return pool.with_columns(beside)


@pytest.fixture(scope="module")
def shelf(pool, tmp_path_factory):
    "Features of one kernel in files"
    folder = tmp_path_factory.mktemp("library")/"features"
    Library.of(*GNTK().features(pool, degree=3)).save(folder)
    return folder


def made(name, pool, form, shelf):
    if name == "files": return Prior.library(shelf, pool).changed(form=form)
    kernel = KERNELS[name] or Matrix(GNTK().gram(pool))
    return Prior(kernel, pool, form)


CELLS = [(k, f) for k in KERNELS for f in FORMS if not (f == "features" and k in NO_FEATURES)
         and (f != "library" or k == "files")]           # only what is in files is read from there


@pytest.mark.parametrize("name", sorted(NO_FEATURES))
def test_kernels_without_features_say_so(pool, name):
    with pytest.raises(ValueError, match="has no explicit features"):
        made(name, pool, "features", None).start(0.1)


@pytest.mark.parametrize("name", [k for k in KERNELS if k != "files"])
def test_what_is_not_in_files_says_how_to_write_it(pool, name):
    with pytest.raises(ValueError, match="is not in files; write its features with featurize"):
        made(name, pool, "library", None)


@pytest.mark.parametrize("name, form", CELLS)
def test_a_bandit_takes_it(pool, shelf, name, form):
    prior = made(name, pool, form, shelf)
    for algorithm, options in (("GNN-UCB", {}), ("GNN-TS", dict(lam=0.01))):
        if prior.inputs == "vector": algorithm = algorithm.replace("GNN", "NN")
        alg = make_algorithm(algorithm, pool, prior=prior, rng=np.random.default_rng(1), **options)
        for _ in range(8):
            arm = alg.ask()
            alg.tell(arm, float(np.sin(arm)))
        assert torch.isfinite(alg.mean).all() and 0 <= alg.ask() < N


@pytest.mark.parametrize("name, form", CELLS)
def test_a_surrogate_takes_it(pool, shelf, name, form):
    s = Surrogate(made(name, pool, form, shelf)).learn(range(12), np.sin(np.arange(12)))
    assert s.facts["form"] == form and s.mean.isfinite().all() and (s.std > 0).all()
    if name in ("matrix", "files"):
        with pytest.raises(ValueError, match="outside the pool"): s.predict(pool[:2])
    else: assert_allclose(s.predict(pool[[15, 20]])["mean"], s.mean[[15, 20]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name, form", CELLS)
def test_a_campaign_takes_it(pool, shelf, tmp_path, name, form):
    prior = made(name, pool, form, shelf)
    if name.startswith("new"):                           # its code is not on disk
        with pytest.raises(ValueError, match="Its matrix can be stored"):
            Campaign.create(tmp_path/"c", pool, prior=prior)
        prior = Prior.kernel(prior.block(range(N)), pool)
    with Campaign.create(tmp_path/"c", pool, prior=prior) as c:
        c.tell(range(12), np.sin(np.arange(12)))
        asked = c.suggest(3)
    with Campaign.open(tmp_path/"c") as c:
        assert c.suggest(3).equals(asked) and c.surrogate().facts["form"] == prior.form


@pytest.mark.parametrize("name, form", CELLS)
def test_botorch_takes_it(pool, shelf, name, form):
    pytest.importorskip("botorch")
    from gnn_bandits.bridges import as_botorch_model
    s = Surrogate(made(name, pool, form, shelf)).learn(range(12), np.sin(np.arange(12)))
    posterior = as_botorch_model(s).posterior(torch.tensor([[[3.], [15.]]], dtype=torch.float64))
    assert posterior.mean.isfinite().all() and (posterior.variance > 0).all()


@pytest.mark.parametrize("name, form", CELLS)
def test_a_form_changes_nothing_but_the_way(pool, shelf, name, form):
    if form == "features": pytest.skip("features approximate the kernel; the page checks them")
    same = "features" if form == "library" else "matrix"  # features are centred without their gap
    one, two = (made(name, pool, f, shelf).standard for f in (same, form))
    if form == "rows": one = Prior(one.kernel, pool, "matrix", "anchors")
    told = list(range(0, N, 3)), np.cos(np.arange(0, N, 3))
    a, b = (p.start(0.1, 0.2).observe(*told) for p in (one, two))
    assert_allclose(a.mean, b.mean, atol=1e-5)
    assert_allclose(a.std, b.std, atol=1e-5)


def test_a_campaign_says_what_happened_to_its_library(pool, shelf, tmp_path):
    "Gone, changed, or back"
    own = Library.open(shelf).save(tmp_path/"own")
    with Campaign.create(tmp_path/"c", pool, prior=Prior.library(tmp_path/"own", pool)) as c:
        c.tell(range(12), np.sin(np.arange(12)))
        asked = c.suggest(3)
    (tmp_path/"own").rename(tmp_path/"away")
    with Campaign.open(tmp_path/"c") as c, pytest.raises(ValueError, match="is not there"):
        c.suggest(3)
    Library([own.parts[0] + 1]).save(tmp_path/"own")
    with Campaign.open(tmp_path/"c") as c, pytest.raises(ValueError, match="has changed"):
        c.suggest(3)
    (tmp_path/"own").rename(tmp_path/"other"), (tmp_path/"away").rename(tmp_path/"own")
    with Campaign.open(tmp_path/"c") as c: assert c.suggest(3).equals(asked)


def test_graphs_that_are_not_those_of_the_library(pool, shelf):
    with pytest.raises(ValueError, match="one row for each of 3 graphs"):
        Prior.library(shelf, pool[:3])


def test_priors_over_one_pool_share_what_they_computed(pool, monkeypatch):
    calls, encode = [], Overlap.encode
    monkeypatch.setattr(Overlap, "encode", lambda self, X: calls.append(1) or encode(self, X))
    fresh = pool[list(range(N))]
    for weights in ((1, 1), (1, 2), (5, 1)):
        kernel = Sum((GNTK(), Overlap(3)), weights, standard=True)
        Prior(kernel, fresh, "rows", "anchors").block([0, 1, 2])
    assert len(calls) == 1


@pytest.mark.parametrize("name, form", CELLS)
def test_the_order_of_arms_does_not_matter(pool, shelf, name, form):
    "Also when all arms are asked for, in another order"
    prior, back = made(name, pool, form, shelf), list(range(N))[::-1]
    assert_allclose(prior.block(back), prior.block(range(N))[back][:, back], atol=1e-6)
    assert_allclose(prior.rows(back), prior.rows(range(N))[back], atol=1e-6)


@pytest.mark.parametrize("name, form", CELLS)
def test_an_arm_that_is_named_twice_is_one_arm(pool, shelf, name, form):
    "Found by random examples: features forgot that an arm shares all of its variance with itself"
    prior, twice = made(name, pool, form, shelf), [3, 0, 3, 7, 0]
    assert_allclose(prior.block(twice), prior.block(range(N))[twice][:, twice], atol=1e-6)
    assert_allclose(prior.rows(twice), prior.rows(range(N))[twice], atol=1e-6)


def test_a_pool_is_freed(pool):
    "What is kept for a pool does not keep the pool, whatever a kernel reads of it"
    class Itself(Size):
        def encode(self, X): return X
        def between(self, a, b): return super().between(a.sizes.double(), b.sizes.double())
        def own(self, a): return torch.ones(len(a)).double()
    for kernel in (GNTK(), Overlap(1), Itself(), GNTK()*Overlap(1)):
        fresh = pool[list(range(N))]
        kept = weakref.ref(fresh)
        prior = Prior(kernel, fresh, "rows", "anchors")
        prior.rows([0, 1]), prior.block([2, 3])
        del fresh, prior
        gc.collect()
        assert kept() is None


def test_nothing_is_computed_before_it_is_needed(pool, monkeypatch):
    monkeypatch.setattr(GNTK, "encode", lambda self, X: 1/0)
    prior = Prior(Sum((GNTK(), Overlap(1)), standard=True), pool[list(range(N))], "rows", "anchors")
    assert len(prior) == N and "overlap" in prior.label and prior.standard is prior
