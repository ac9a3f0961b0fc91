"Near-ties and the other rules of the package that would bore a reader."
import numpy as np
import pytest
import torch

from gnn_bandits.core import NEAR, best_first, first_best


def shaken(scores, rng, size=1e-13):
    return scores*(1 + size*rng.standard_normal(len(scores)))


@pytest.mark.parametrize("unit, level", ((1, 0), (1e-9, 0), (1e9, 0), (1, 1e3)))
def test_rounding_does_not_reach_a_choice(unit, level):
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = level + unit*rng.integers(4, size=30)
        noisy = level + shaken(scores - level, rng)
        assert first_best(noisy) == int(scores.argmax())
        want = sorted(range(30), key=lambda i: (-scores[i], i))
        assert best_first(noisy).tolist() == want and best_first(scores).tolist() == want


def test_differences_above_the_rule_are_respected():
    for size in (10*NEAR, 1e-6, 1e-3):
        assert first_best([0., 1., 1 + size]) == 2 and best_first([0., 1., 1 + size])[0] == 2
    assert first_best([0., 1., 1 + NEAR/10]) == 1


def test_a_score_that_is_out_of_the_question_makes_no_others_equal():
    assert first_best([-1e18, -4., -3.9]) == 2 and best_first([-1e18, -4., -3.9])[0] == 2


def test_who_may_not_be_chosen_is_not_and_does_not_count_for_the_spread():
    scores = torch.tensor([1e12, 2., 2 + 1e-6, -1e12])
    assert first_best(scores.double(), torch.tensor([False, True, True, False])) == 2
    assert first_best([float("-inf")]*3, [False, True, True]) == 1
    assert first_best([float("nan"), 1., float("nan")]) == 1
    assert first_best([float("nan")]*2) == 0 and first_best([5.]) == 0
    with pytest.raises(ValueError, match="a candidate that may be chosen"): first_best([])


def test_the_whole_order_and_the_choice_agree():
    rng = np.random.default_rng(1)
    for _ in range(50):
        scores = shaken(rng.integers(3, size=10).astype(float), rng)
        assert first_best(scores) == best_first(scores)[0]
