"Every prior that the constructors return can begin a campaign, and comes back as it was."
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from gnn_bandits.bandits import FeaturePrior, KernelPrior, Prior, RowsPrior
from gnn_bandits.campaigns import Campaign, pack_prior, unpack_prior
from gnn_bandits.core import pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import read_smiles
from gnn_bandits.relations import (DistinctPrior, OverlapPrior, RelationalPrior, SumPrior,
                                   WeighedPrior)
from gnn_bandits.surrogate import candidate_priors

pytestmark = pytest.mark.usefixtures("one_thread")
SMILES = ["CCO", "CCN", "CCC", "c1ccccc1", "CC(=O)O", "CCCl", "C#N", "C=C", "CO", "CCOC", "CCCC",
          "CC(C)O", "c1ccncc1", "CC=O", "CCS", "NCCO", "OCCO", "CC#N", "C1CCCC1", "CNC"]
N = len(SMILES)


@pytest.fixture(scope="module")
def pool(): return read_smiles(SMILES).domain


class Odd(Prior):
    "A prior that no file can hold."
    def __init__(self, n): self.n = n
    def __len__(self): return self.n


PRIORS = {
    "matrix": Prior.gntk, "rows": lambda X: Prior.gntk(X, form="rows"),
    "features": lambda X: Prior.gntk(X, form="features"),
    "vector": lambda X: Prior.gntk(X, inputs="vector"),
    "rows by name": lambda X: Prior.rows(X, 3), "centred rows": lambda X: Prior.rows(X).standard,
    "features by name": lambda X: Prior.features(X, 2),
    "own": lambda X: Prior.kernel(torch.eye(len(X), dtype=torch.float64)),
    "network": lambda X: Prior.network(X, m=32, rng=np.random.default_rng(0)),
    "distinct": lambda X: DistinctPrior(X, 1, True),
    "relations": lambda X: RelationalPrior(X, 1, 3, columns=list(range(8))),
    "overlap": lambda X: OverlapPrior(X, 1),
    "feature map": lambda X: candidate_priors(X, form="features")[0],
    "other hops": lambda X: RowsPrior(X.with_hops(2), 2, torch.arange(4)),
    "sum": lambda X: SumPrior([RelationalPrior(X), OverlapPrior(X), Prior.rows(X).standard],
                              [1, 2, 3]),
    "weighed": lambda X: WeighedPrior([RelationalPrior(X), OverlapPrior(X)]),
    "types of edges by features": lambda X: candidate_priors(X, form="features")[-1],
    "default": lambda X: candidate_priors(X)[0],
    "default sum": lambda X: candidate_priors(X)[-1],
    "other depth": lambda X: candidate_priors(X, 3, 0)[-1]}


@pytest.mark.parametrize("name", PRIORS)
def test_a_campaign_keeps_the_prior_that_it_began_with(pool, tmp_path, name):
    prior, truth = PRIORS[name](pool), np.sin(np.arange(N))
    c = Campaign.create(tmp_path/"c", pool, prior=prior)
    assert_array_equal(c._priors_of().block(list(range(N))),
                       prior.standard.block(list(range(N))))
    for n in (4, 5):
        arms = c.ask(n)
        c.tell(arms, truth[arms])
    again = Campaign.open(c.path)
    assert again.suggest(4).equals(c.suggest(4)) and again.predict().equals(c.predict())
    assert len(again.simulate(runs=2, progress=False)) == 9


def test_a_pool_too_large_for_a_matrix(tmp_path):
    X = GraphDomain.erdos_renyi(4001, 5, 0.4, 3, np.random.default_rng(0))
    prior = Prior.gntk(X)
    c = Campaign.create(tmp_path/"c", X, prior=prior, policy="ei")
    assert prior.form == "rows" and (c.path/"prior.npz").stat().st_size < 20_000
    c.tell(range(10), np.arange(10.))
    assert len(c.ask(3)) == 3
    assert c._priors_of().L == 2 and type(c._priors_of()) is RowsPrior


def test_rows_and_sums_grow_with_the_pool(pool, tmp_path):
    make = lambda X: SumPrior([RelationalPrior(X), OverlapPrior(X)])
    c = Campaign.create(tmp_path/"c", pool[:15], prior=make(pool[:15]))
    c.tell(range(10), np.arange(10.))
    c.add(pool[15:], prior=make(GraphDomain.concat([pool[:15], pool[15:]])))
    assert Campaign.open(c.path).suggest(3).equals(c.suggest(3))


def test_graphs_outside_the_pool_can_be_predicted_from_a_stored_kernel(pool, tmp_path):
    for name in ("matrix", "rows", "relations", "other depth"):
        c = Campaign.create(tmp_path/name, pool[:15], prior=PRIORS[name](pool[:15]))
        c.tell(range(10), np.arange(10.))
        inside, outside = c.predict([12, 14]), c.predict(pool[[12, 14]])
        assert_allclose(outside["mean"], inside["mean"], rtol=1e-5)


def test_files_of_an_earlier_version_are_read(pool, tmp_path):
    K, every = Prior.gntk(pool).K, list(range(N))
    (tmp_path/"k").write_bytes(pack_arrays(dict(kind="kernel"), K=K))
    made = unpack_prior(tmp_path/"k", pool)
    assert type(made) is KernelPrior and made.label == "a kernel of your own"
    assert_array_equal(made.K, K)
    f = Prior.features(pool, 2)
    (tmp_path/"f").write_bytes(pack_arrays(dict(kind="features"), Phi=f.Phi, residual=f.residual))
    made = unpack_prior(tmp_path/"f", pool)
    assert type(made) is FeaturePrior and torch.equal(made.block(every), f.block(every))


def test_what_cannot_be_stored_or_belongs_elsewhere_is_refused(pool, tmp_path):
    with pytest.raises(ValueError, match="Its matrix can be stored: Prior.kernel"):
        Campaign.create(tmp_path/"c", pool, prior=Odd(N))
    with pytest.raises(ValueError, match="over other graphs"):
        Campaign.create(tmp_path/"c", pool, prior=Prior.rows(pool[list(range(N))[::-1]]))
    assert list(tmp_path.iterdir()) == []
    c = Campaign.create(tmp_path/"c", pool, prior=Prior.rows(pool))
    (c.path/"prior.npz").write_bytes(pack_prior(Prior.rows(pool[list(range(N))[::-1]])))
    with pytest.raises(ValueError, match="over other graphs"): Campaign.open(c.path).suggest(15)
    meta, arrays = unpack_arrays(pack_prior(Prior.rows(pool)))
    for broken in (meta | dict(kind="crystal ball"), {"kind": "sum"}, meta | dict(depth=3),
                   {"kind": "kernel", "at": 5.}, meta | dict(L=10**9), meta | dict(hops="two")):
        (tmp_path/"b").write_bytes(pack_arrays(broken, **arrays))
        with pytest.raises(ValueError, match="cannot be read"): unpack_prior(tmp_path/"b", pool)
    (tmp_path/"b").write_bytes(pack_prior(Prior.gntk(pool)))
    with pytest.raises(ValueError, match="over other graphs"): unpack_prior(tmp_path/"b", pool[:5])


def test_a_sum_found_by_evidence_is_weighed_again(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool, prior=PRIORS["weighed"](pool))
    c.tell(range(12), np.arange(12.))
    assert type(c._priors_of()) is WeighedPrior and "0." in c.surrogate().facts["prior"]
