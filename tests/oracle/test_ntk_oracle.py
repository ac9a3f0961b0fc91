"Live comparisons with neural-tangents; run by `make oracle` in an environment that has it."
import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT/"scripts"))
pytest.importorskip("neural_tangents",
                    reason="needs the oracle extra: pip install 'gnn_bandits[oracle]'")
from gnn_bandits.ntk import ntk  # noqa: E402
from paper_tables import neural_tangents  # noqa: E402


def rounding(u, L):
    "What `series_of` may drop, and the rounding of a cosine, amplified by every layer"
    return np.finfo(float).eps*(L + 1)*(32 + L/np.sqrt(np.maximum(1 - u**2, 1e-12)))


@pytest.mark.parametrize("L", [1, 2, 3, 4, 6])
def test_recursion_equals_the_library(L):
    u = np.random.default_rng(L).uniform(-1, 1, 2000)
    off = np.abs(ntk(u, L, normalize=False).numpy() - neural_tangents(u, L))
    assert (off <= rounding(u, L)).all()


@pytest.mark.parametrize("L", [1, 2, 3, 4])
def test_normalised_at_the_ends(L):
    u = np.array([1.0, 0.0, -1.0])
    theirs = neural_tangents(u, L)
    np.testing.assert_allclose(ntk(torch.tensor([1., 0., -1.]), L), theirs/theirs[0],
                               rtol=0, atol=1e-6)
    assert ntk(1., L, normalize=False) == L + 1


def test_the_committed_table_is_what_the_library_says():
    with (ROOT/"nbs/results/ntk_oracle.csv").open() as f:
        rows = [(float(r["u"]), int(r["L"]), float(r["ntk"])) for r in csv.DictReader(f)]
    for L in (1, 2, 3, 4):
        u, values = np.array([(u, v) for u, l, v in rows if l == L]).T
        np.testing.assert_allclose(neural_tangents(u, L), values, rtol=0, atol=1e-12)
