"What would bore a reader of nbs/08_posterior.ipynb: forms of input, invariants, refusals, size."
import copy, math, pickle

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits import posterior as c
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN, LazyNN, distinct_squares, squared_gradients
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import FittedBelief, fit_times
from gnn_bandits.scale import LazyPosterior, Library

def gram(n, seed=0, d=3, scale=2.):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return torch.from_numpy(np.exp(-((X[:, None] - X)**2).sum(-1)/scale))

def history(n, t, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(n, size=t), rng.standard_normal(t)

def fresh(K, arms, y, lam):
    kt = K[arms]
    A = torch.linalg.solve(kt[:, arms] + lam*torch.eye(len(arms), dtype=K.dtype), kt)
    return A.T @ torch.as_tensor(y), K - kt.T @ A

def test_before_any_observation():
    s = torch.linspace(1, 3, 7, dtype=torch.float64)
    K = gram(7)*s.outer(s)
    post = c.Posterior(K, 0.1)
    assert torch.equal(post.mean, torch.zeros(7, dtype=torch.float64)) and post.t == 0
    assert len(post) == 7
    assert_close(post.std, K.diagonal().sqrt())
    assert_close(post.covariance(), K)
    assert post.mean_for(torch.zeros(0, 3)).shape == (7, 3)

@pytest.mark.parametrize("make", [lambda K: K, lambda K: K.clone().requires_grad_(),
                                  lambda K: K.numpy(), lambda K: K.float(), lambda K: K.tolist(),
                                  lambda K: K.numpy().astype(np.float32)])
def test_forms_of_gram(make):
    post = c.Posterior(make(gram(12)), 0.1).observe([1, 2, 1], [1., 2., 3.])
    assert post.mean.dtype == post.std.dtype == torch.float64
    assert_close(post.std, c.Posterior(gram(12), 0.1).observe([1, 2, 1], [1., 2., 3.]).std,
                 rtol=1e-5, atol=1e-7)

@pytest.mark.parametrize("arm, y", [(3, 1), (np.int64(3), np.float32(1)),
                                    (torch.tensor(3), torch.tensor(1.)), ([3], [1.]),
                                    (np.array([3]), np.array([1.])), ((3,), (1,)),
                                    (np.array(3), 1)])
def test_forms_of_observation(arm, y):
    post, reference = (c.Posterior(gram(5), 0.1) for _ in range(2))
    assert torch.equal(post.observe(arm, y).mean, reference.observe(3, 1.).mean)

@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1., 100.])
@pytest.mark.parametrize("n, t",
                         [(1, 5), (2, 1), (30, 31), (30, 32), (30, 33), (30, 64), (90, 200)])
def test_against_fresh(n, t, lam):
    K, (arms, y) = gram(n), history(n, t)
    post = c.Posterior(K, lam)
    for a, v in zip(arms, y): post.observe(a, v)
    mean, C = fresh(K, arms, y, lam)
    rtol = 1e-10 + 1e-14/lam    # what rounding does to the textbook formula itself
    assert_close(post.mean, mean, rtol=rtol, atol=10*rtol)
    assert_close(post.covariance(), C, rtol=rtol, atol=1e-12)
    some = [n - 1, 0] if n > 1 else [0]
    assert_close(post.covariance(some), C[some][:, some], rtol=rtol, atol=1e-12)
    assert_close(post.covariance().diagonal().sqrt(), post.std)
    assert_close(post.column(n//2), C[n//2], rtol=rtol, atol=1e-12)

def test_order_and_batches_do_not_matter():
    K, (arms, y) = gram(40), history(15, 90)
    single, batch, shuffled = (c.Posterior(K, 0.05) for _ in range(3))
    for a, v in zip(arms, y): single.observe(a, v)
    batch.observe(arms, y)
    order = np.random.default_rng(3).permutation(90)
    shuffled.observe(arms[order], y[order])
    for other in (batch, shuffled):
        assert_close(other.mean, single.mean, rtol=1e-9, atol=1e-12)
        assert_close(other.std, single.std, rtol=1e-10, atol=0)
    assert single.t == batch.t == 90 and single.arms.tolist() == batch.arms.tolist()
    assert_close(single.rewards, batch.rewards)
    assert batch.observe([], []).t == 90

def test_variance_only_falls_and_does_not_see_rewards():
    K, (arms, y) = gram(50), history(20, 70)
    post, other = c.Posterior(K, 0.01), c.Posterior(K, 0.01)
    last = post.std
    for a, v in zip(arms, y):
        post.observe(a, v), other.observe(a, -3*v)
        assert (post.std <= last*(1 + 1e-12)).all()
        last = post.std
    assert torch.equal(post.std, other.std)
    assert_close(other.mean, -3*post.mean, rtol=1e-9, atol=1e-12)
    assert_close(post.mean_for(torch.stack([post.rewards, other.rewards], 1)),
                 torch.stack([post.mean, other.mean], 1), rtol=1e-9, atol=1e-11)

def test_reset():
    post = c.Posterior(gram(9), 0.1).observe([1, 2, 1], [1., 2., 3.])
    assert torch.equal(post.reset().std, c.Posterior(gram(9), 0.1).std) and post.t == 0
    assert not post.mean.any()
    assert torch.equal(post.observe(4, 1.).mean, c.Posterior(gram(9), 0.1).observe(4, 1.).mean)

def test_scaling():
    K, (arms, y) = gram(30), history(12, 40)
    a, b = c.Posterior(K, 0.1).observe(arms, y), c.Posterior(9*K, 0.9).observe(arms, y)
    assert_close(a.mean, b.mean, rtol=1e-9, atol=1e-12)
    assert_close(3*a.std, b.std, rtol=1e-10, atol=0)

def test_singular_gram_exact_duplicates():
    K = gram(6).repeat(3, 3)
    post = c.Posterior(K, 1e-3)
    for a, y in zip(*history(18, 2000)):
        post.observe(a, y)
        assert post._var.min() > 0
    assert_close(post.std[:6], post.std[12:], rtol=1e-7, atol=0)
    assert_close(post.mean[:6], post.mean[6:12], rtol=1e-7, atol=1e-9)
    assert c.Posterior(torch.zeros(4, 4), 0.1).observe(2, 1.).std.tolist() == [0]*4

def test_copies_are_independent_and_share_the_gram():
    post = c.Posterior(gram(9), 0.1).observe([1, 2], [1., 2.])
    before = post.mean, post.std
    other = post.copy().observe([3, 1], [5., 5.])
    assert torch.equal(post.mean, before[0]) and torch.equal(post.std, before[1])
    assert other.K is post.K and other.t == 4
    assert_close(other.std, c.Posterior(gram(9), 0.1).observe([1, 2, 3, 1], [0.]*4).std)
    post.mean.add_(1), post.std.add_(1)    # what a caller does to the answer stays with the caller
    assert torch.equal(post.mean, before[0]) and torch.equal(post.std, before[1])
    again = pickle.loads(pickle.dumps(post)).observe(4, 1.)
    assert torch.equal(again.mean, post.copy().observe(4, 1.).mean)
    assert torch.equal(copy.deepcopy(post).std, post.std)

BAD = [(9, 1.), (-1, 1.), (1.0, 1.), ("a", 1.), (None, 1.), (True, 1.), (1, None), (1, "b"),
       (1, float("nan")), (1, float("-inf")), ([0, 1], [0.]), ([0, 99], [0., 1.]),
       ([0, 1], [0., float("nan")]), (torch.tensor([0, 1]), torch.tensor([0., float("inf")])),
       ([[0, 1]], [0.]), (np.array([0.5]), [1.])]

@pytest.mark.parametrize("arms, y", BAD)
@pytest.mark.parametrize("make", [lambda: c.Posterior(gram(9), 0.1),
                                  lambda: c.FeaturePosterior(gram(9), 0.1, torch.rand(9)),
                                  lambda: c.DiagonalPosterior(gram(9), 0.1)])
def test_refusals_change_nothing(make, arms, y):
    post = make().observe([2, 3, 2], [1., 2., 3.])
    before = (post.std, getattr(post, "mean", post.std), post.t)
    with pytest.raises(ValueError, match="expected"): post.observe(arms, y)
    assert all(torch.equal(a, b)
               for a, b in zip(before, (post.std, getattr(post, "mean", post.std))))
    assert post.t == before[2]
    if not isinstance(post, c.FeaturePosterior):
        assert_close(post.observe(5, 1.).std, make().observe([2, 3, 2, 5], [0.]*4).std)

@pytest.mark.parametrize("lam", [0, -1, float("nan"), float("inf"), None, "1", True])
def test_refuses_ridge(lam):
    for make in (c.Posterior, c.FeaturePosterior, c.DiagonalPosterior):
        with pytest.raises(ValueError, match="lam"): make(gram(3), lam)

@pytest.mark.parametrize("n", [3, 300, 2500])
def test_refuses_indefinite(n):
    K = gram(n, d=8)
    v = torch.linspace(-1, 1, n, dtype=torch.float64)
    with pytest.raises(ValueError, match="semi-definite"):
        c.check_gram(K - 2*torch.outer(v, v)/v.norm()**2*K.sum(1).max())
    skew = K.clone()
    skew[0, -1] += 1e-3
    with pytest.raises(ValueError, match="mirror"): c.check_gram(skew)

def test_accepts_rounding():
    K = gram(400).float()
    assert float(torch.linalg.eigvalsh(K.double())[0]) < 0    # float32 makes it slightly indefinite
    post = c.Posterior(K, 1e-4)
    for a, y in zip(*history(400, 600)): post.observe(a, y)
    assert post.std.isfinite().all() and post.mean.isfinite().all()
    tilted = gram(10)
    tilted[0, 1] += 1e-9
    assert torch.equal(c.check_gram(tilted), c.check_gram(tilted).T)
    exact = gram(10)
    assert c.check_gram(exact) is exact

def test_covariance_of_one_arm():
    post = c.Posterior(gram(9), 0.1).observe([1, 2], [1., 2.])
    assert_close(post.covariance(4), post.covariance()[4:5, 4:5])

def test_mean_for_and_covariance_refuse():
    post = c.Posterior(gram(9), 0.1).observe([1, 2], [1., 2.])
    with pytest.raises(ValueError, match="distinct"): post.mean_for(torch.zeros(3))
    with pytest.raises(ValueError, match="0 to 8"): post.covariance([1, 9])

@pytest.mark.parametrize("arms", [[3, 1, 3], np.array([4, 4]), torch.tensor([2]), [7, 7, 0], []])
def test_covariance_keeps_order_and_repeats(arms):
    K, (a, y) = gram(9), history(5, 20)
    post = c.Posterior(K, 0.1).observe(a, y)
    index = [int(v) for v in arms]
    assert_close(post.covariance(arms), post.covariance()[index][:, index])

@pytest.mark.parametrize("net", [
    LazyGNN(3, 10, 1, rng=np.random.default_rng(0), dtype=torch.float64),
    LazyGNN(3, 6, 3, rng=np.random.default_rng(1), dtype=torch.float64),
    LazyNN(3, 5, 8, 2, rng=np.random.default_rng(2), dtype=torch.float64)])
def test_weight_space(net):
    X = GraphDomain.erdos_renyi(20, 5, 0.4, 3, rng=np.random.default_rng(3))
    Phi, (arms, y), lam = net.gradients(X)/math.sqrt(net.m), history(9, 33), 0.04
    Z = lam*torch.eye(net.p, dtype=torch.float64) + Phi[arms].T @ Phi[arms]
    right = torch.cat([Phi.T, (Phi[arms].T @ torch.from_numpy(y))[:, None]], 1)
    solved = torch.linalg.solve(Z, right)
    for post in (c.Posterior(net.tangent_kernel(X), lam), c.FeaturePosterior(Phi, lam)):
        post.observe(arms, y)
        assert_close(post.std**2, lam*(Phi*solved[:, :-1].T).sum(1), rtol=1e-8, atol=0)
        assert_close(post.mean, Phi @ solved[:, -1], rtol=1e-8, atol=1e-10)
    assert_close(squared_gradients(net, X, torch.float64, block=7), Phi**2)

@pytest.mark.parametrize("L", [1, 2, 3])
@pytest.mark.parametrize("kind, symmetric", [("graph", True), ("vector", True), ("graph", False)])
def test_squares_without_their_copies_say_the_same(L, kind, symmetric):
    X = GraphDomain.erdos_renyi(9, 4, 0.4, 3, rng=np.random.default_rng(3))
    rng = np.random.default_rng(4)
    kw = dict(rng=rng, symmetric=symmetric, dtype=torch.float64)
    net = LazyGNN(3, 10, L, **kw) if kind == "graph" else LazyNN(3, 4, 12, L, **kw)
    whole = squared_gradients(net, X, torch.float64)
    some, copies = distinct_squares(net, X, torch.float64, block=4)
    assert int(copies.sum()) == net.p == whole.shape[1] and (some.shape[1] < net.p) == symmetric
    arms = [0, 0, 5, 2]
    for ridge in c.RIDGES:
        a, b = (c.DiagonalPosterior(v, 0.3, ridge, k).observe(arms, [0.]*4).std
                for v, k in ((whole, None), (some, copies)))
        assert_close(a, b)
    with pytest.raises(ValueError, match="copies"):
        c.DiagonalPosterior(some, 0.3, copies=copies[1:])

def test_looking_does_not_change_a_posterior():
    (arms, y), posts = history(20, 50), [c.Posterior(gram(20), 0.1) for _ in range(2)]
    for a, v in zip(arms, y):
        for post in posts: post.observe(int(a), float(v))
        posts[0].mean_for(torch.ones(len(posts[0].arms)))
    assert torch.equal(posts[0].std, posts[1].std) and torch.equal(posts[0].mean, posts[1].mean)
    assert_close(posts[0].mean_for(posts[0].rewards), posts[0].mean)

def test_sklearn():
    gp = pytest.importorskip("sklearn.gaussian_process")
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    rng = np.random.default_rng(5)
    X = rng.standard_normal((70, 3))
    for lam in (1e-2, 1.):
        arms, y = rng.integers(25, size=90), rng.standard_normal(90)
        kernel = kernels.Matern(1.5, nu=1.5)
        model = gp.GaussianProcessRegressor(kernel, alpha=lam, optimizer=None).fit(X[arms], y)
        mean, std = model.predict(X, return_std=True)
        post = c.Posterior(kernel(X), lam).observe(arms, y)
        np.testing.assert_allclose(post.mean, mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(post.std, std, rtol=1e-6)

def test_features_with_all_residual_patterns():
    rng = np.random.default_rng(6)
    for _ in range(40):
        n, F, lam = int(rng.integers(2, 40)), int(rng.integers(1, 12)), 10**rng.uniform(-2, 1)
        Phi = torch.from_numpy(rng.standard_normal((n, F)))
        r = torch.from_numpy(rng.uniform(0, 2, n)*(rng.random(n) < 0.6))
        arms, y = rng.integers(rng.integers(1, n + 1), size=50), rng.standard_normal(50)
        thin, full = c.FeaturePosterior(Phi, lam, r), c.Posterior(Phi @ Phi.T + r.diag(), lam)
        for piece in np.array_split(np.arange(50), int(rng.integers(1, 51))):
            thin.observe(arms[piece], y[piece])
        full.observe(arms, y)
        assert_close(thin.mean, full.mean, rtol=1e-8, atol=1e-9)
        assert_close(thin.std, full.std, rtol=1e-8, atol=1e-9)
        assert thin.t == 50

def test_features_refuse():
    for bad in (torch.ones(3), torch.ones(2, 2, dtype=torch.long), torch.full((2, 2), float("nan")),
                torch.ones(0, 2)):
        with pytest.raises(ValueError, match="features"): c.FeaturePosterior(bad, 0.1)
    for bad in ([1.], [-1., 1.], [float("nan"), 1.]):
        with pytest.raises(ValueError, match="residual"):
            c.FeaturePosterior(torch.ones(2, 2), 0.1, torch.tensor(bad))

@pytest.mark.parametrize("name", list(c.RIDGES))
def test_diagonal_is_the_definition(name):
    rng = np.random.default_rng(7)
    S, arms, lam = torch.from_numpy(rng.random((12, 30))), rng.integers(5, size=20), 0.3
    post = c.DiagonalPosterior(S, lam, name).observe(arms, np.zeros(20))
    Z = {"lam": lam + S[arms].sum(0), "t*lam": lam + S[arms].sum(0)/21,
         "1/t": lam + S[arms].sum(0)/21}[name]
    assert_close(post.std**2, {"lam": lam, "t*lam": lam, "1/t": 1}[name]*(S/Z).sum(1))
    assert_close(c.DiagonalPosterior(S.float(), lam, name).observe(arms, np.zeros(20)).std,
                 post.std, rtol=1e-5, atol=0)
    assert not hasattr(post, "mean")

def test_diagonal_refuses():
    for bad in (-torch.ones(2, 2), torch.full((2, 2), float("nan")), torch.ones(2),
                torch.full((2, 2), float("inf"))):
        with pytest.raises(ValueError, match="squares"): c.DiagonalPosterior(bad, 0.1)

def test_many_arms():
    rng = np.random.default_rng(10)
    Phi = torch.from_numpy(rng.standard_normal((4000, 20))/math.sqrt(20))
    post = c.Posterior(Phi @ Phi.T, 0.1)
    arms, y = rng.integers(4000, size=150), rng.standard_normal(150)
    for a, v in zip(arms, y): post.observe(a, v)
    thin = c.FeaturePosterior(Phi, 0.1).observe(arms, y)
    assert_close(post.mean, thin.mean, rtol=1e-9, atol=1e-10)
    assert_close(post.std, thin.std, rtol=1e-8, atol=0)
    assert post._H.shape[0] < 300                     # memory follows the distinct arms

def beliefs(n=12):
    "One posterior of each kind, with the same pulls"
    rng = np.random.default_rng(20)
    Phi = torch.from_numpy(rng.standard_normal((n, 5)))/2
    K, (arms, y) = Phi @ Phi.T + 0.1*torch.eye(n, dtype=torch.float64), history(n, 30)
    r = torch.full((n,), 0.1)
    return [p.observe(arms, y) for p in (c.Posterior(K, 0.2), c.FeaturePosterior(Phi, 0.2, r),
                                         FittedBelief(Prior.kernel(K)))]

@pytest.mark.parametrize("i", range(3))
def test_what_every_posterior_offers(i):
    post = beliefs()[i]
    before = post.mean, post.std, post.evidence()
    dream = post.fantasy([0, 3, 3])
    assert_close(dream.mean, before[0], rtol=1e-9, atol=1e-9)
    assert (dream.std <= before[1] + 1e-12).all() and dream.std[3] < before[1][3]
    draws = torch.stack([post.draw(np.random.default_rng([1, k])) for k in range(2000)])
    assert (((draws.mean(0) - before[0]).abs())/(before[1]/2000**0.5) < 5).all()
    assert ((draws.std(0)/before[1] - 1).abs() < 5/4000**0.5).all()
    assert torch.equal(post.draw(np.random.default_rng(5)), post.draw(np.random.default_rng(5)))
    assert torch.equal(post.mean, before[0]) and torch.equal(post.std, before[1])
    assert post.evidence() == before[2]
    other = post.copy().observe(1, 2.)
    assert other.t == 31 and post.t == 30 and torch.equal(post.mean, before[0])
    assert post.reset().t == 0 and post.evidence() == 0
    for bad in (99, -1, [0, 0.5]):
        with pytest.raises(ValueError, match="integers"): post.fantasy(bad)
    with pytest.raises(ValueError, match="default_rng"): post.draw(None)

def kinds(n=12, lam=0.2, hidden=0.):
    "The same posterior from a matrix, from features, from rows and from a library"
    rng = np.random.default_rng(21)
    Phi = torch.from_numpy(rng.standard_normal((n, 5))).float().double()/2
    r = torch.from_numpy(rng.uniform(0, 1, n)*(rng.random(n) < 0.7)).float().double()
    K, own = Phi @ Phi.T + r.diag(), hidden*torch.eye(n).double()
    root = c.gram_root(K)
    draw = lambda rng: root @ torch.from_numpy(rng.standard_normal(n))
    return {"matrix": c.Posterior(K + own, lam),
            "features": c.FeaturePosterior(Phi, lam, r + hidden, hidden),
            "rows": c.RowsPosterior(lambda a: K[a], K.diagonal(), lam, draw, hidden, hidden),
            "library": LazyPosterior(Library.of(Phi, r), lam, 3, 2, hidden, hidden)}

ANSWERS = {"mean": lambda p: p.mean, "std": lambda p: p.std, "t": lambda p: p.t,
           "arms": lambda p: p.arms, "counts": lambda p: p.counts, "rewards": lambda p: p.rewards,
           "evidence": lambda p: p.evidence(), "block": lambda p: p.block(p.arms),
           "covariances": lambda p: p.covariances([3, 0, 3]), "none": lambda p: p.covariances([]),
           "covariance": lambda p: p.covariance([1, 7]), "all": lambda p: p.covariance(),
           "mean_for": lambda p: p.mean_for(torch.arange(len(p.arms)).double()),
           "trials": lambda p: p.mean_for(torch.arange(2.*len(p.arms)).view(-1, 2)),
           "fantasy": lambda p: p.fantasy([2, 9, 2]).std}

@pytest.mark.parametrize("ask", list(ANSWERS))
@pytest.mark.parametrize("kind", ["features", "rows", "library"])
def test_one_protocol(kind, ask):
    "Every kind gives the same answers, before any pull, after weighted batches, and after a reset"
    one, other, (arms, y) = kinds()["matrix"], kinds()[kind], history(9, 40)
    w = np.random.default_rng(3).uniform(0.3, 3, 40)
    close = lambda: assert_close(torch.as_tensor(ANSWERS[ask](other)),
                                 torch.as_tensor(ANSWERS[ask](one)), rtol=1e-5, atol=1e-5)
    close()
    for i in (*range(10), 10, 25):
        size = 1 if i < 10 else 15
        for p in (one, other): p.observe(arms[i:i + size], y[i:i + size], w[i:i + size])
        if i in (5, 9): other = other.copy()
    close()
    copied = other.copy().observe(0, 9.)
    assert copied.t == other.t + 1
    close()
    one.reset(), other.reset()
    close()

@pytest.mark.parametrize("kind", ["features", "rows", "library"])
def test_a_hidden_variance_is_missing_where_nothing_was_pulled(kind):
    hidden, (arms, y) = kinds(hidden=0.3), history(5, 12)
    full, post = (hidden[k].observe(arms, y) for k in ("matrix", kind))
    never = torch.ones(12).double().index_fill(0, full.arms, 0.)
    assert_close(post.mean, full.mean, rtol=1e-5, atol=1e-5)
    assert_close(post.std**2, full.std**2 - 0.3*never, rtol=1e-5, atol=1e-5)
    if kind == "library":                                # so do its suggestions
        assert_close(post.scores(range(12), 2.), post.mean + 2*post.std, rtol=1e-5, atol=1e-5)
        best = (post.mean + 2*post.std).argmax()
        assert post.best(1, 2.)[0].tolist() == [int(best)]
    draws = torch.stack([post.deviation(np.random.default_rng([2, k])) for k in range(2000)])
    assert ((draws.std(0)/post.std - 1).abs() < 5/4000**0.5).all()

@pytest.mark.parametrize("copies", [2, 10])
def test_draws_when_graphs_repeat(copies):
    K = gram(20).float().double().repeat(copies, copies)          # rounded: not positive definite
    post = c.Posterior(K - 1e-8*torch.eye(len(K)), 0.1).observe([1, 2, 3], [1., 0., 1.])
    for k in range(5):
        f = post.draw(np.random.default_rng(k)).view(copies, 20)
        assert f.isfinite().all() and (f - f[0]).abs().max() < 1e-2

def test_a_fitted_posterior_with_one_reward_or_equal_rewards():
    for arms, y in (([3], [7.]), ([3, 4, 5], [7., 7., 7.]), ([0, 1], [0., 0.])):
        post = FittedBelief(Prior.kernel(gram(9))).observe(arms, y)
        assert post.mean.isfinite().all() and (post.std > 0).all()
        assert math.isfinite(post.evidence())
        assert abs(float(post.mean[arms[0]]) - y[0]) < 1e-6 + abs(y[0])

@pytest.mark.parametrize("unit, level", [(1e-6, 0.), (1e6, -3e7), (-1., 5.)])
def test_units_of_the_rewards_do_not_matter(unit, level):
    K, (arms, y) = gram(30), history(30, 60)
    a, b = (FittedBelief(Prior.kernel(K)).observe(arms, v) for v in (y, unit*y + level))
    assert_close(b.mean, unit*a.mean + level, rtol=1e-5, atol=1e-5*abs(unit))
    assert_close(b.std, abs(unit)*a.std, rtol=1e-5, atol=0)

def test_evidence_is_the_density_of_all_pulls():
    stats = pytest.importorskip("scipy.stats")
    K, (arms, y), lam = gram(15), history(6, 40), 0.3
    C = K[arms][:, arms].numpy() + lam*np.eye(40)
    whole = stats.multivariate_normal.logpdf(y, np.zeros(40), C)
    np.testing.assert_allclose(c.Posterior(K, lam).observe(arms, y).evidence(), whole, rtol=1e-9)


def test_roots_of_singular_kernels():
    K = gram(20).float().double().repeat(3, 3) - 1e-7*torch.eye(60)
    for gram_matrix in (gram(20), K):
        R = c.gram_root(gram_matrix)
        assert_close(R @ R.T, gram_matrix, rtol=0, atol=1e-5)


def test_a_fitted_posterior_follows_from_its_pulls_alone():
    K, (arms, y) = gram(25), history(25, 70)
    once, single = (FittedBelief(Prior.kernel(K)) for _ in range(2))
    once.observe(arms, y)
    for k, (a, v) in enumerate(zip(arms, y), 1):
        single.observe(a, v)
        assert single.fit.t == fit_times(k)
    assert torch.equal(once.mean, single.mean) and torch.equal(once.std, single.std)


def test_evidence_prefers_the_truth():
    rng, K = np.random.default_rng(3), gram(40)
    f = c.gram_root(K) @ torch.from_numpy(rng.standard_normal(40))
    arms = rng.integers(40, size=120)
    y = f[arms].numpy() + 0.3*rng.standard_normal(120)
    scores = {lam: c.Posterior(K, lam).observe(arms, y).evidence() for lam in (0.001, 0.09, 10.)}
    assert max(scores, key=scores.get) == 0.09

@pytest.mark.parametrize("t", [1, 31, 32, 33, 64, 65, 200])
def test_waiting_updates_cannot_be_seen(t):
    K, (arms, y) = gram(30), history(30, t)
    late, prompt = c.Posterior(K, 0.05), c.Posterior(K, 0.05)
    for a, v in zip(arms, y):
        late.observe(a, v)
        prompt.observe(a, v)._flush(len(prompt.arms))
    assert late._waiting == t % c.PENDING and prompt._waiting == 0
    for a in (0, int(arms[-1]), 29):
        assert_close(late.column(a), prompt.column(a), rtol=0, atol=1e-12)
    assert_close(late.mean_for(late.rewards), prompt.mean, rtol=1e-9, atol=1e-11)
    assert_close(late.std, prompt.std, rtol=1e-10, atol=0)

@pytest.mark.parametrize("rho", [1e-3, 0.3, 20.])
def test_one_ridge(rho):
    "Gaussian process, kernel ridge regression and penalised least squares predict the same."
    rng = np.random.default_rng(3)
    Phi, (arms, y) = torch.from_numpy(rng.standard_normal((12, 7))), history(9, 25)
    t, K = 25, Phi @ Phi.T
    mean = c.Posterior(K, rho).observe(arms, y).mean
    alpha = np.linalg.solve(K[arms][:, arms].numpy() + rho*np.eye(t), y)
    np.testing.assert_allclose(mean, K[:, arms].numpy() @ alpha, rtol=1e-6, atol=1e-8)
    rows = np.vstack([Phi[arms].numpy()/math.sqrt(t), math.sqrt(rho/t)*np.eye(7)])
    w = np.linalg.lstsq(rows, np.concatenate([y/math.sqrt(t), np.zeros(7)]), rcond=None)[0]
    np.testing.assert_allclose(mean, Phi.numpy() @ w, rtol=1e-6, atol=1e-8)
