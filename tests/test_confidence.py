"What would bore a reader of nbs/09_confidence.ipynb: multiplier by hand, draws, singular kernels."
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits import confidence as c
from gnn_bandits.core import NOISES

def gram(n, seed=0, d=3, scale=2.):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return torch.from_numpy(np.exp(-((X[:, None] - X)**2).sum(-1)/scale))

def test_the_posteriors_are_still_found_here():
    from gnn_bandits import posterior
    for name in ("Posterior", "FeaturePosterior", "DiagonalPosterior"):
        assert getattr(c, name) is getattr(posterior, name)

def test_beta_by_hand():
    assert math.isclose(c.beta(2, 0.5, 0.25, 0.1, 100, norm_factor=1),
                        2 + math.sqrt(2*math.log(2000)))
    assert math.isclose(c.beta(2, 0, 0.25, 0.1, 100), 2*math.sqrt(2))
    full = c.beta(2, 0.5, 0.25, 0.1, 100, m=64, eta=0.01, J=3)
    assert math.isclose(full - c.beta(2, 0.5, 0.25, 0.1, 100),
                        math.sqrt(4/0.16)*(math.sqrt(2) + 0.84**1.5))
    assert c.beta(2, 0.5, 0.25, 0.1, 100, log_factor=4) > c.beta(2, 0.5, 0.25, 0.1, 100)
    assert math.isclose(c.epsilon(2, 0.5, 16, 3, C=0.1),
                        0.1*27*0.25**(2/3)*math.sqrt(16*math.log(16)))
    assert math.isclose(c.sharp_beta(3, 0.5, 0.25, 0.1, 100), math.sqrt(9 + 2*math.log(2000)))
    with pytest.raises(ValueError, match="expected m to be"):
        c.beta(2, 0.5, 0.25, 0.1, 100, eta=0.01)

def test_third_term_in_posterior_deviations():
    "By hand at t = 1, linear in t for many observations, and falling with the steps."
    assert math.isclose(c.descent_term(4, 0.5, 1, 2, C=0.5), 2*math.sqrt(4*2.5/0.5)/0.5)
    assert math.isclose(c.descent_term(1, 0.5, 1, 2, C=0.5, J=2),
                        math.sqrt(2/(0.1*0.5))*(math.sqrt(2) + 0.9))
    far = c.descent_term(1, 0.01, 10**6, 3)/c.descent_term(1, 0.01, 10**5, 3)
    assert math.isclose(far, 10, rel_tol=1e-6)
    steps = [c.descent_term(1, 0.1, 5, 2, J=J) for J in (1, 10, 1000, math.inf)]
    assert steps == sorted(steps, reverse=True)

def test_draws_are_reproducible():
    K = gram(20)
    for draw in (lambda r: c.rkhs_sphere(K, 2., 5, r),
                 *(lambda r, k=k: c.subgaussian(k, 0.5, (4, 3), r) for k in NOISES)):
        assert torch.equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(1)))
        assert not torch.equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(2)))
        with pytest.raises(ValueError, match="default_rng"): draw(None)

def test_sphere_of_a_singular_kernel():
    Phi = torch.from_numpy(np.random.default_rng(8).standard_normal((15, 4)))
    f = c.rkhs_sphere(Phi @ Phi.T, 3., 7, np.random.default_rng(9))
    w = torch.linalg.lstsq(Phi, f).solution
    assert_close(Phi @ w, f)
    assert_close(w.norm(dim=0), torch.full((7,), 3., dtype=torch.float64))

@pytest.mark.parametrize("B", [0.1, 1., 7.])
@pytest.mark.parametrize("sigma", [0., 0.3, 4.])
def test_the_smaller_beta_lies_between_its_terms_and_their_sum(B, sigma):
    both, one = c.beta(B, sigma, 0.5, 0.1, 40, norm_factor=1), c.sharp_beta(B, sigma, 0.5, 0.1, 40)
    assert max(B, both - B) <= one*(1 + 1e-12) and one <= both*(1 + 1e-12)
    assert both/one <= math.sqrt(2)*(1 + 1e-12)
