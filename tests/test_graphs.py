"What would bore a reader of 00_graphs: seeds, shapes, precision, refusals."
import numpy as np
import pytest
import torch

from gnn_bandits.core import split_rng
from gnn_bandits.graphs import GraphDomain, erdos_renyi_adjacency


def rng(seed=0): return np.random.default_rng(seed)


@pytest.mark.parametrize("N,p,d", [(1, 0.5, 1), (2, 0.0, 3), (5, 1.0, 10), (100, 0.05, 2), (7, 0.3, 40)])
def test_domain_invariants(N, p, d):
    X = GraphDomain.erdos_renyi(20, N, p, d, rng())
    assert X.h.shape == (20, N, d) and X.h.dtype == torch.float64 and X.h.is_contiguous()
    assert X.sizes.tolist() == [N]*20
    torch.testing.assert_close(X.h.norm(dim=2), torch.ones(20, N, dtype=torch.float64), rtol=0, atol=1e-14)
    assert torch.equal(X.h, GraphDomain.erdos_renyi(20, N, p, d, rng()).h)
    assert not torch.equal(X.h, GraphDomain.erdos_renyi(20, N, p, d, rng(1)).h) or (N, d) == (1, 1)


def test_complete_graphs_have_one_direction():
    X = GraphDomain.erdos_renyi(5, 8, 1.0, 4, rng())
    torch.testing.assert_close(X.h, X.h[:, :1].expand_as(X.h), rtol=0, atol=1e-14)


EXPECTED = [0.6914454073255902, -0.7224287152988511, 0.8938920607571785, 0.44828225897896584,
            0.8111067550010184, -0.584898138133229, 0.5817606904460202, -0.8133600058103237,
            0.10516002153166916, -0.9944553131596506, -0.4148228920928994, -0.9099021750692119,
            -0.06519346616592922, -0.9978726431610758, -0.6018736383737863, -0.7985913369369223,
            -0.8967504227706369, -0.44253664171533225, -0.4919483735194965, -0.8706243723854288,
            -0.8967504227706369, -0.44253664171533225, -0.8967504227706367, -0.4425366417153322]


def test_the_bits_of_a_seed_do_not_change():
    "Fixed for good: saved campaigns and published tables depend on these numbers."
    X = GraphDomain.erdos_renyi(3, 4, 0.5, 2, rng(42))
    expected = torch.tensor(EXPECTED, dtype=torch.float64).view(3, 4, 2)
    assert torch.equal(X.h, expected)


def test_block_size_does_not_matter():
    "Blocks hold 2**22/(N*max(N, d)) graphs: this domain spans several"
    X = GraphDomain.erdos_renyi(150, 200, 0.1, 3, rng())
    edges, features = split_rng(rng(), 2)
    A, x = erdos_renyi_adjacency(150, 200, 0.1, edges), features.standard_normal((150, 200, 3))
    assert torch.equal(X.h, GraphDomain.from_arrays(A.numpy(), x).h)


def test_input_containers_agree():
    A, x = erdos_renyi_adjacency(4, 6, 0.4, rng()), rng(1).standard_normal((4, 6, 3))
    from scipy.sparse import csr_array
    want = GraphDomain.from_arrays(A.numpy(), x).h
    for adjacency in (A, A.tolist(), A.float(), [csr_array(a.numpy().astype(int)) for a in A]):
        assert torch.equal(GraphDomain.from_arrays(adjacency, x).h, want)
    with_loops = A.numpy() | np.eye(6, dtype=bool)
    assert torch.equal(GraphDomain.from_arrays(with_loops, x).h, want)


def test_scale_of_features_does_not_matter():
    A, x = erdos_renyi_adjacency(3, 6, 0.4, rng()).numpy(), rng(1).standard_normal((3, 6, 3))
    want = GraphDomain.from_arrays(A, x).h
    for scale in (1e-300, 1e-9, 1e300): torch.testing.assert_close(GraphDomain.from_arrays(A, scale*x).h, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("hops", [0, -1, 1.5, "two"])
def test_bad_hops(hops):
    with pytest.raises(ValueError, match="hops"): GraphDomain.erdos_renyi(2, 3, 0.5, 2, rng(), hops=hops)


@pytest.mark.parametrize("index", [5, -6, [0, 9], 1.5, [True, False], "a"])
def test_bad_index(index):
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    with pytest.raises((ValueError, TypeError)): X[index]


def test_frozen():
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    with pytest.raises(AttributeError): X.h = X.h


def test_save_replaces_only_when_complete(tmp_path, monkeypatch):
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    path = X.save(tmp_path/"d.npz")
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError): X[:2].save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["d.npz"]


def test_load_refuses_pickles(tmp_path):
    np.savez(tmp_path/"evil.npz", nodes=np.array([{"a": 1}], dtype=object), sizes=[1], N=1, version=1)
    with pytest.raises(ValueError, match="cannot read"): GraphDomain.load(tmp_path/"evil.npz")
    with pytest.raises(FileNotFoundError): GraphDomain.load(tmp_path/"none.npz")
