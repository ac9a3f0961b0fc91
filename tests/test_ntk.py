"Invariants of the NTK over depths and precisions."
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.ntk import STRIP, kappa0, kappa1, ntk

DEPTHS = [1, 2, 3, 7]


def unit(n, d, seed=0):
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d)))
    return x/x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("L", DEPTHS)
def test_positive_semidefinite_and_bounded(L):
    x = unit(300, 4)
    u = x @ x.T
    K = ntk((u + u.T)/2, L)
    # equal cosines in the middle and at the end of a strip: a polynomial of 24 terms a layer
    assert_close(K, K.T, rtol=0, atol=24*(L + 1)*torch.finfo(torch.float64).eps)
    assert torch.linalg.eigvalsh(K).min() > -1e-7     # rounding at u = 1 is a square root of eps
    assert K.max() <= 1 + 1e-12


@pytest.mark.parametrize("L", DEPTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_follows_the_input(L, dtype):
    u = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    k = ntk(u.to(dtype), L)
    assert k.dtype == dtype
    torch.testing.assert_close(k.double(), ntk(u, L), rtol=0,
                               atol=1e-3 if dtype == torch.float32 else 0)
    assert k[-1] == 1


@pytest.mark.parametrize("n", [0, 1, STRIP - 1, STRIP, STRIP + 1, 64*STRIP + 3])
def test_strips_join(n):
    u = torch.linspace(-1, 1, n, dtype=torch.float64)
    whole = ntk(u, 2)
    assert len(whole) == n
    for i in range(0, n, max(1, n//50)):
        assert abs(float(whole[i] - ntk(u[i], 2))) < 1e-15    # an ulp: scalar code paths


def test_input_is_untouched_and_shape_kept():
    u = torch.linspace(-1, 1, 24, dtype=torch.float64).view(2, 3, 4)
    before = u.clone()
    assert ntk(u, 2).shape == (2, 3, 4) and torch.equal(u, before)
    assert ntk(u.transpose(0, 2), 2).shape == (4, 3, 2)
    assert ntk(np.array([0.1, 0.2]), 1).dtype == torch.float64 and ntk(1, 1) == 1


def test_rounding_beyond_one_is_forgiven():
    over = torch.tensor([1 + 1e-15, -1 - 1e-15], dtype=torch.float64)
    ends = torch.tensor([1., 0.], dtype=torch.float64)
    for f in (kappa0, kappa1): torch.testing.assert_close(f(over), ends, rtol=0, atol=1e-14)
    assert abs(float(ntk(over, 3)[0]) - 1) < 1e-14


@pytest.mark.parametrize("bad", [[1.1], [float("nan")], [float("inf")], [-2.0, 0.5]])
def test_bad_cosines(bad):
    for f in (kappa0, kappa1, lambda u: ntk(u, 2)):
        with pytest.raises(ValueError, match="cosines"): f(bad)


def test_tracked_gradients_are_refused():
    with pytest.raises(ValueError, match="detach"): ntk(torch.tensor([0.5], requires_grad=True), 2)


@pytest.mark.parametrize("L", DEPTHS)
def test_the_angle_form_is_the_same_kernel(L):
    from gnn_bandits.ntk import ntk_of_angle
    theta = np.linspace(0.05, np.pi - 0.05, 500)
    np.testing.assert_allclose(ntk_of_angle(theta, L), ntk(np.cos(theta), L), rtol=0, atol=1e-13)
