"Information gain: invariants, refusals, bounds over domains, depths and noise levels."
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.infogain import (finite_bound, gain_ceiling, gain_path, greedy_gain,
                                  head_dimension, information_gain, max_information_gain,
                                  mig_bound)
from gnn_bandits.ntk import ntk
from gnn_bandits.spectrum import multiplicity


pytestmark = pytest.mark.usefixtures("one_thread")


def random_gram(n, rank, seed):
    A = np.random.default_rng(seed).standard_normal((n, rank))
    return A @ A.T


@pytest.mark.parametrize("n, rank", ((1, 1), (5, 2), (40, 40), (60, 7)))
@pytest.mark.parametrize("lam", (1e-4, 0.1, 1, 50.))
def test_gain_is_half_a_log_determinant(n, rank, lam):
    K = random_gram(n, rank, n)
    want = 0.5*np.linalg.slogdet(np.eye(n) + K/lam)[1]
    assert math.isclose(information_gain(K, lam), want, rel_tol=1e-9)
    path = gain_path(K, lam)
    for t in (1, n//2 + 1, n):
        assert math.isclose(path[t - 1], information_gain(K[:t, :t], lam), rel_tol=1e-9)
    order = np.random.default_rng(0).permutation(n)
    assert math.isclose(information_gain(K[order][:, order], lam), want, rel_tol=1e-9)


@pytest.mark.parametrize("make", (np.asarray, torch.tensor, lambda K: K.tolist(),
                                  lambda K: K.astype(np.float32)))
def test_inputs_of_any_kind(make):
    K = random_gram(4, 4, 0)
    got = information_gain(make(K), 0.5)
    assert type(got) is float and math.isclose(got, information_gain(K, 0.5), rel_tol=1e-5)
    assert type(max_information_gain(make(K), 3, 0.5)) is float


def test_the_gram_matrix_is_not_changed():
    K = torch.tensor(random_gram(6, 6, 1))
    before = K.clone()
    information_gain(K, 0.1), max_information_gain(K, 10, 0.1)
    assert torch.equal(K, before)


def test_zero_kernel_gains_nothing():
    assert information_gain(np.zeros((3, 3)), 0.1) == 0
    assert max_information_gain(np.zeros((3, 3)), 5, 0.1) == 0


@pytest.mark.parametrize("lam", (1e-3, 0.1, 2.))
@pytest.mark.parametrize("T", (1, 7, 60))
def test_greedy_gains_are_those_of_its_arms(lam, T):
    K = torch.tensor(random_gram(20, 8, 3))
    arms, gains = greedy_gain(K, T, lam)
    assert_close(gains, gain_path(K[arms][:, arms], lam), rtol=1e-8, atol=1e-10)
    steps = gains.diff(prepend=torch.zeros(1))
    assert (steps.diff() <= 1e-6*steps[:-1]).all()  # submodular: steps never grow
    assert gain_ceiling(gains) >= gains[-1] - 1e-9
    rows = greedy_gain(lambda i: K[i].numpy(), T, lam, diag=K.diagonal())
    assert rows.arms == arms
    assert_close(rows.gains, gains, rtol=0, atol=0)


def test_one_arm_for_ever():
    gains = greedy_gain([[2.]], 500, 0.3).gains
    np.testing.assert_allclose(gains, 0.5*np.log1p(np.arange(1, 501)*2/0.3), rtol=1e-10)


def test_more_steps_extend_the_path_and_more_arms_never_hurt_the_first():
    K = torch.tensor(random_gram(30, 10, 5))
    short, long = greedy_gain(K, 10, 0.2), greedy_gain(K, 25, 0.2)
    assert long.arms[:10] == short.arms
    assert_close(long.gains[:10], short.gains, rtol=0, atol=0)


@pytest.mark.parametrize("L", (1, 2, 3))
@pytest.mark.parametrize("d, N", ((2, 4), (3, 7), (10, 5)))
def test_bound_holds_on_graphs_to_a_thousand_steps(L, d, N):
    X = GraphDomain.erdos_renyi(80, N, 0.3, d, np.random.default_rng([L, d, N]))
    K = gntk(X, L=L)
    for lam in (1., 0.1, 0.005):
        gains = greedy_gain(K, 1000, lam).gains
        for T in (1, 3, 10, 50, 250, 1000):
            assert gains[T - 1] <= mig_bound(T, d, L, lam, sharp=True) + 1e-9
            assert gains[T - 1] <= mig_bound(T, d, L, lam) + 1e-9
    assert max_information_gain(K, 100, 0.1) <= mig_bound(100, d, L, 0.1)


@pytest.mark.parametrize("n", (1, 4, 25))
@pytest.mark.parametrize("lam", (0.01, 1., 30.))
def test_the_bound_of_a_finite_domain(n, lam):
    "Reached by unrelated arms pulled equally often, never exceeded by related ones."
    for rounds in (1, 2, 9):
        counts = np.repeat(np.arange(n), rounds)
        same = (counts[:, None] == counts).astype(float)
        want = 0.5*np.linalg.slogdet(np.eye(len(counts)) + same/lam)[1]
        assert math.isclose(finite_bound(n*rounds, n, lam), want, rel_tol=1e-9)
    K = random_gram(n, 3, n)
    K = K/K.diagonal().max()
    gains = greedy_gain(K, 100, lam).gains
    for T in range(1, 101): assert gains[T - 1] <= finite_bound(T, n, lam)*(1 + 1e-9)
    assert finite_bound(7, 1000, lam) == finite_bound(7, 7, lam)
    values = [finite_bound(T, n, lam) for T in (1, 2, 10, 1000)]
    assert values == sorted(values)


@pytest.mark.parametrize("d", (2, 3, 6))
def test_bound_holds_on_adversarial_points(d):
    "Opposite, equal and orthogonal points, where P_r is 1 or -1."
    x = np.concatenate([np.eye(d), -np.eye(d), np.eye(d)[:1].repeat(5, 0)])
    K = ntk(x @ x.T, 2)
    for lam in (1., 0.01):
        gains = greedy_gain(K, 300, lam).gains
        for T in (1, 2, 4, 20, 300):
            assert gains[T - 1] <= mig_bound(T, d, 2, lam, sharp=True) + 1e-9


@pytest.mark.parametrize("sharp", (False, True))
def test_bound_is_monotone(sharp):
    values = [mig_bound(T, 3, 2, 0.1, sharp) for T in (1, 2, 5, 10, 100, 1000)]
    assert values == sorted(values)
    values = [mig_bound(100, 3, 2, lam, sharp) for lam in (10., 1., 0.1, 0.01)]
    assert values == sorted(values)
    for T in (1, 10, 1000): assert mig_bound(T, 3, 2, 0.1, sharp) <= T/2*math.log1p(10) + 1e-12
    assert type(mig_bound(10, 3, 2, 0.1, sharp)) is float
    assert mig_bound(1000, 2, 2, 0.1, sharp, degrees=8) >= mig_bound(1000, 2, 2, 0.1, sharp)


def test_bound_by_hand():
    "T = 50, d = 3, only the constant in the head: one feature, the rest of the variance as noise."
    from gnn_bandits.spectrum import eigenvalues
    first = float(eigenvalues(2, 3, 0)[0])
    want = min(25*math.log1p(1/0.2), 0.5*math.log1p(50/0.2) + 25*math.log1p((1 - first)/0.2))
    assert math.isclose(mig_bound(50, 3, 2, 0.2, degrees=0), want, rel_tol=1e-12)
    sharp = 0.5*math.log1p(50*first/0.2) + 25*math.log1p((1 - first)/0.2)
    assert math.isclose(mig_bound(50, 3, 2, 0.2, True, degrees=0), sharp, rel_tol=1e-12)


def test_head_dimension():
    for d in range(2, 12):
        for D in range(12):
            assert head_dimension(d, D) == sum(multiplicity(d, r) for r in range(D + 1))


BAD_GRAMS = (np.ones((2, 3)), np.ones(3), np.empty((0, 0)), [[1, np.nan], [np.nan, 1]], [[np.inf]],
             [[1, 0.5], [0.2, 1]], [[-1.]])

@pytest.mark.parametrize("K", BAD_GRAMS)
def test_bad_grams(K):
    with pytest.raises(ValueError): information_gain(K, 0.1)
    with pytest.raises(ValueError): max_information_gain(K, 3, 0.1)


def test_indefinite_gram():
    with pytest.raises(ValueError): information_gain([[1., 2.], [2., 1.]], 0.1)
    with pytest.raises(ValueError): max_information_gain([[1., 2.], [2., 1.]], 3, 0.1)
    with pytest.raises(ValueError):
        greedy_gain(lambda i: np.full(2, np.nan), 3, 0.1, diag=np.ones(2))
    for diag in (None, [np.nan, 1], [-1., 1], np.ones((2, 2)), []):
        with pytest.raises(ValueError): greedy_gain(lambda i: np.eye(2)[i], 3, 0.1, diag=diag)


@pytest.mark.parametrize("lam", (0, -1, float("nan"), float("inf"), None, "0.1", True))
def test_bad_noise(lam):
    with pytest.raises(ValueError): information_gain(np.eye(2), lam)
    with pytest.raises(ValueError): max_information_gain(np.eye(2), 3, lam)
    with pytest.raises(ValueError): mig_bound(10, 3, 2, lam)


@pytest.mark.parametrize("T", (0, -1, 1.5, None, True, float("nan")))
def test_bad_steps(T):
    with pytest.raises(ValueError): max_information_gain(np.eye(2), T, 0.1)
    with pytest.raises(ValueError): mig_bound(T, 3, 2, 0.1)


@pytest.mark.parametrize("d, L", ((1, 2), (0, 2), (2.5, 2), (3, 0), (3, -1), (3, 1.5)))
def test_bad_shapes_of_the_bound(d, L):
    with pytest.raises(ValueError): mig_bound(10, d, L, 0.1)


def test_too_many_steps_are_refused():
    with pytest.raises(ValueError, match="fewer steps"): greedy_gain(np.eye(20), 10**12, 0.1)


def test_tracked_tensors_are_detached():
    K = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert not greedy_gain(K, 2, 0.1).gains.requires_grad and information_gain(K, 0.1) > 0
    rows = greedy_gain(lambda i: K[i].detach(), 2, 0.1, diag=K.diagonal())
    assert not rows.gains.requires_grad


def test_the_number_of_threads_changes_no_bit():
    K, threads, seen = torch.tensor(random_gram(300, 300, 1)), torch.get_num_threads(), []
    try:
        for k in (1, 2):
            torch.set_num_threads(k)
            seen.append((greedy_gain(K, 200, 0.1).gains, gain_path(K, 0.1)))
    finally: torch.set_num_threads(threads)
    for a, b in zip(*seen): assert torch.equal(a, b)


def test_integers_of_numpy_are_integers():
    assert mig_bound(np.int64(10), np.int64(3), np.int64(2), 0.1) == mig_bound(10, 3, 2, 0.1)
    assert head_dimension(np.int64(5), np.int64(3)) == head_dimension(5, 3)
