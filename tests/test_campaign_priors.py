"Every prior that the constructors return can begin a campaign, and comes back as it was."
import io, zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.molecules import read_smiles
from gnn_bandits.kernels import GNTK, Given, Kernel, Matrix, Overlap, Relational, Sum
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import candidate_priors

pytestmark = pytest.mark.usefixtures("one_thread")
SMILES = ["CCO", "CCN", "CCC", "c1ccccc1", "CC(=O)O", "CCCl", "C#N", "C=C", "CO", "CCOC", "CCCC",
          "CC(C)O", "c1ccncc1", "CC=O", "CCS", "NCCO", "OCCO", "CC#N", "C1CCCC1", "CNC"]
N = len(SMILES)
with zipfile.ZipFile(Path(__file__).parent/"data"/"priors.zip") as z:
    EARLIER = {n[:-4]: (z.read(n), np.load(io.BytesIO(z.read(n[:-4] + ".npy"))))
               for n in z.namelist() if n.endswith(".npz")}


@pytest.fixture(scope="module")
def pool(): return read_smiles(SMILES).domain


class Odd(Kernel):
    "A kernel that no file can hold."
    def encode(self, X): return X.sizes.double()
    def between(self, a, b): return torch.exp(-(a[:, None] - b)**2/18)
    def own(self, a): return torch.ones_like(a)


def over(kernel, X): return Prior(kernel, X, "rows", "anchors")


PRIORS = {
    "matrix": Prior.gntk, "rows": lambda X: Prior.gntk(X, form="rows"),
    "features": lambda X: Prior.gntk(X, form="features"),
    "vector": lambda X: Prior.gntk(X, inputs="vector"),
    "rows by name": lambda X: Prior.gntk(X, 3, form="rows"),
    "centred rows": lambda X: Prior.gntk(X, form="rows").standard,
    "features by name": lambda X: Prior.features(X, 2),
    "own": lambda X: Prior.kernel(torch.eye(len(X), dtype=torch.float64)),
    "network": lambda X: Prior.network(X, m=32, rng=np.random.default_rng(0)),
    "distinct": lambda X: over(GNTK(1, over="sum"), X),
    "relations": lambda X: over(Relational(3, blocks=1, columns=range(8)), X),
    "overlap": lambda X: over(Overlap(1), X),
    "feature map": lambda X: candidate_priors(X, form="features")[0],
    "other hops": lambda X: Prior(GNTK(), X.with_hops(2), "rows", [0, 1, 2, 3]),
    "sum": lambda X: over(Sum((Relational(), Overlap(), GNTK()), (1, 2, 3), True), X),
    "product": lambda X: over(0.3*GNTK(1)*Overlap(1), X),
    "weighed": lambda X: over(Sum((Relational(), Overlap()), None, True, True), X),
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
    assert c._priors_of().L == 2 and c._priors_of().form == "rows"


def test_rows_and_sums_grow_with_the_pool(pool, tmp_path):
    make = lambda X: over(Sum((Relational(), Overlap()), standard=True), X)
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
    made = Prior.load(tmp_path/"k", pool)
    assert type(made.kernel) is Matrix and made.label == "a kernel of your own"
    assert_array_equal(made.K, K)
    f = Prior.features(pool, 2)
    Phi, residual = f.held.whole
    (tmp_path/"f").write_bytes(pack_arrays(dict(kind="features"), Phi=Phi, residual=residual))
    made = Prior.load(tmp_path/"f", pool)
    assert type(made.kernel) is Given
    assert_allclose(made.block(every), f.block(every), atol=1e-6)  # written in single precision


@pytest.mark.parametrize("name", sorted(EARLIER))
def test_every_prior_that_was_stored_by_class_is_read(pool, tmp_path, name):
    "Files of 970cba3, each with the covariances that it stood for"
    (tmp_path/"p").write_bytes(EARLIER[name][0])
    made = Prior.load(tmp_path/"p", pool)
    assert_allclose(made.standard.block(list(range(N))), EARLIER[name][1], atol=2e-7)
    if name in ("matrix", "rows", "default", "default sum", "feature map"):
        assert made.standard.cross(pool[:2], [3])[0].isfinite().all()


def test_what_cannot_be_stored_or_belongs_elsewhere_is_refused(pool, tmp_path):
    with pytest.raises(ValueError, match="Its matrix can be stored: Prior.kernel"):
        Campaign.create(tmp_path/"c", pool, prior=Prior(Odd(), pool))
    with pytest.raises(ValueError, match="over other graphs"):
        other = pool[list(range(N))[::-1]]
        Campaign.create(tmp_path/"c", pool, prior=Prior.gntk(other, form="rows"))
    assert list(tmp_path.iterdir()) == []
    c = Campaign.create(tmp_path/"c", pool, prior=Prior.gntk(pool, form="rows"))
    (c.path/"prior.npz").write_bytes(
        Prior.gntk(pool[list(range(N))[::-1]], form="rows").packed())
    with pytest.raises(ValueError, match="over other graphs"): Campaign.open(c.path).suggest(15)
    meta, arrays = unpack_arrays(Prior.gntk(pool, form="rows").packed())
    kernel = lambda **changes: meta | {"kernel": meta["kernel"] | changes}
    for broken in (kernel(kind="crystal ball"), kernel(kind="sum"), kernel(depth=3),
                   kernel(kind="matrix"), kernel(L=10**9), kernel(hops="two"), {"version": 2},
                   meta | dict(form="heap"), meta | dict(centre="left"), meta | dict(dtype="int8"),
                   {"kind": "kernel", "at": 5.}, {"kind": "sum"}, {"kind": "crystal ball"}):
        (tmp_path/"b").write_bytes(pack_arrays(broken, **arrays))
        with pytest.raises(ValueError, match="cannot be read"): Prior.load(tmp_path/"b", pool)
    (tmp_path/"b").write_bytes(Prior.gntk(pool).packed())
    with pytest.raises(ValueError, match="over other graphs"): Prior.load(tmp_path/"b", pool[:5])


def test_a_sum_found_by_evidence_is_weighed_again(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool, prior=PRIORS["weighed"](pool))
    c.tell(range(12), np.arange(12.))
    assert c._priors_of().kernel.free and "0." in c.surrogate().facts["prior"]
