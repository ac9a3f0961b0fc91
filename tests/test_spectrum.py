"The spectrum: invariants over depths and dimensions, refusals, reproducibility."
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.ntk import ntk
from gnn_bandits.spectrum import (eigenvalues, funk_hecke, gauss_legendre, legendre, multiplicity,
                                  shares)


@pytest.mark.parametrize("d", range(2, 30))
def test_multiplicities_add_up_to_polynomials(d):
    "Degrees r, r-2, ... together are the homogeneous polynomials of degree r."
    for r in range(25):
        count = sum(multiplicity(d, k) for k in range(r, -1, -2))
        assert count == math.comb(d + r - 1, r)
        assert isinstance(multiplicity(d, r), int)
        if r: assert multiplicity(d, r)*r == (2*r + d - 2)*math.comb(r + d - 3, d - 2)


@pytest.mark.parametrize("L", (1, 2, 3, 4))
@pytest.mark.parametrize("d", (2, 3, 6, 10, 30))
def test_positive_decreasing_and_summing_to_the_kernel(L, d):
    lam, share = eigenvalues(L, d, 40), shares(L, d, 40)
    assert lam.dtype == torch.float64 and lam.shape == (41,)
    assert (lam[::2].diff() < 0).all() and (lam[1:4:2].diff() < 0).all()   # within each parity
    if L > 1: assert (lam[1::2].diff() < 0).all()
    if L > 1: assert (lam > 0).all()
    else: assert (lam[3::2] == 0).all() and (lam[::2] > 0).all() and lam[1] > 0
    assert 0 < 1 - share.sum() < 0.2
    u = torch.linspace(-1, 1, 201, dtype=torch.float64)
    gap = (ntk(u, L) - (share[:, None]*legendre(d, 40, u)).sum(0)).abs()
    assert gap.max() <= 1 - share.sum() + 1e-13


@pytest.mark.parametrize("L, d, R", ((1, 2, 60), (2, 3, 60), (3, 100, 60), (8, 4, 30), (20, 10, 20),
                                     (2, 300, 2)))
def test_more_nodes_and_more_bits_change_nothing(L, d, R):
    lam = eigenvalues(L, d, R).numpy()
    bits = multiplicity(d, R).bit_length() + 2*R.bit_length() + 160
    np.testing.assert_allclose(funk_hecke(L, d, R, 2*(R + d) + bits//2, bits), lam, rtol=1e-13,
                               atol=0)


@pytest.mark.parametrize("L, d", ((2, 3), (1, 7), (3, 50)))
def test_a_shorter_list_is_the_beginning_of_a_longer_one(L, d):
    assert_close(eigenvalues(L, d, 9), eigenvalues(L, d, 40)[:10], rtol=1e-14, atol=0)


def test_the_answer_is_the_callers_own():
    first = eigenvalues(2, 3, 4)
    first.zero_()
    assert (eigenvalues(2, 3, 4) > 0).all()


@pytest.mark.parametrize("L", (1, 2, 3))
def test_two_dimensions_are_fourier_series(L):
    "On the circle the eigenvalues are cosine coefficients; here from a long trapezoidal rule."
    theta = torch.linspace(0, math.pi, 200_001, dtype=torch.float64)
    w = torch.ones_like(theta); w[[0, -1]] = 0.5
    k = ntk(theta.cos(), L)
    direct = torch.stack([(w*k*(r*theta).cos()).sum()/(len(theta) - 1) for r in range(8)])
    assert_close(eigenvalues(L, 2, 7), direct, rtol=0, atol=1e-9)


def test_large_dimension_tends_to_taylor_coefficients():
    "As d grows P_r(u) tends to u^r, so the shares tend to Taylor coefficients."
    share = shares(1, 1000, 4)
    expect = torch.tensor([1/(2*math.pi), 0.5, 3/(4*math.pi), 0, 5/(48*math.pi)],
                          dtype=torch.float64)
    assert_close(share, expect, rtol=0, atol=5e-3)


def test_quadrature_weights():
    for n in (1, 2, 7, 50):
        x, w = gauss_legendre(n, 120)
        ref_x, ref_w = np.polynomial.legendre.leggauss(n)
        np.testing.assert_allclose(np.array([v/2**120 for v in x]), ref_x, atol=1e-14)
        np.testing.assert_allclose(np.array([v/2**120 for v in w]), ref_w, atol=1e-13)


@pytest.mark.parametrize("d", (2, 3, 4, 9, 50))
def test_legendre_bounds_and_ends(d):
    P = legendre(d, 40, torch.linspace(-1, 1, 301, dtype=torch.float64))
    assert P.abs().max() <= 1 + 1e-12
    assert_close(P[:, -1], torch.ones(41, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_close(P[:, 0], (-1.)**torch.arange(41, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_legendre_keeps_dtype_and_shape(dtype):
    P = legendre(3, 5, torch.zeros(2, 4, dtype=dtype))
    assert P.dtype == dtype and P.shape == (6, 2, 4)
    assert legendre(3, 0, 0.5).shape == (1,)


@pytest.mark.parametrize("bad", ((0, 3, 4), (-1, 3, 4), (1.5, 3, 4), (None, 3, 4), (True, 3, 4),
                                 (2, 1, 4), (2, 0, 4), (2, 2.5, 4), (2, "3", 4), (2, 3, -1),
                                 (2, 3, 1.5), (2, 3, None),
                                 (2, 3, float("nan")), (2, 1000, 1000)))
def test_refusals(bad):
    with pytest.raises(ValueError): eigenvalues(*bad)
    with pytest.raises(ValueError): shares(*bad)
    if bad != (2, 1000, 1000):
        with pytest.raises(ValueError): eigenvalues(*bad, exact=False)


def test_refusals_of_the_others():
    for bad in ((0, 2), (3, -1), (3, 1.5), (None, 1)):
        with pytest.raises(ValueError): multiplicity(*bad)
        with pytest.raises(ValueError): legendre(*bad, 0.5)
    with pytest.raises(ValueError): legendre(1, 2, 0.5)
    with pytest.raises(ValueError): legendre(3, 2, 1.5)
    with pytest.raises(ValueError): legendre(3, 2, float("nan"))


def test_numpy_integers_are_integers():
    assert multiplicity(np.int64(5), np.int32(3)) == multiplicity(5, 3)
    assert_close(eigenvalues(np.int64(2), np.int64(3), np.int64(4)), eigenvalues(2, 3, 4), rtol=0,
                 atol=0)


@pytest.mark.parametrize("L, d, R", ((1, 2, 5), (2, 3, 40), (3, 10, 8), (2, 100, 3), (2, 2000, 2)))
def test_fast_eigenvalues_are_right_in_the_absolute(L, d, R):
    assert_close(eigenvalues(L, d, R, exact=False), eigenvalues(L, d, R), rtol=0, atol=5e-14)


def test_in_one_dimension_there_are_two_harmonics():
    assert [multiplicity(1, r) for r in range(5)] == [1, 1, 0, 0, 0]


def test_fast_eigenvalues_are_the_callers_own():
    eigenvalues(2, 3, 4, exact=False).zero_()
    assert (eigenvalues(2, 3, 4, exact=False) > 0).all()
