"The machinery of the ledger: verdicts, statistics, comparisons, tables read and written."
import numpy as np
import pandas as pd
import pytest

from gnn_bandits.core import read_table
from gnn_bandits.paper import ledger as machinery
from gnn_bandits.paper.ledger import (Claim, Comparison, Comparisons, Finding, difference_by_seed,
                                      exact_finding, ledger, paired_difference, register,
                                      require_committed, result_table, shares, summary)
from gnn_bandits.paper.ledger import decide, holm, p_value, same_ledger, slope_interval


def judged(*comparisons, level=0.95, **kwargs):
    "The finding for some comparisons as a family of their own"
    adjusted = holm([p_value(c) for c in comparisons])
    return decide(Comparisons(comparisons, **kwargs), adjusted, level)


def test_family_wise_error():
    "Without any effect, the rate of families with a false discovery stays at its level"
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(100):
        family = [Comparison("null", rng.standard_normal(10)) for _ in range(20)]
        wrong += bool((holm([p_value(c) for c in family]) <= 0.05).any())
    assert wrong/100 < 0.05 + 5*np.sqrt(0.05*0.95/100)


def test_holm_is_monotone_and_never_below_p():
    p = np.random.default_rng(2).random(50)
    adjusted = holm(p)
    assert (adjusted >= p).all() and (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()
    assert holm([0.2]).tolist() == [0.2]


def test_all_or_one_must_hold():
    good = Comparison("good", -0.5 + 0.01*np.arange(10.))
    bad = Comparison("bad", 0.5 + 0.01*np.arange(10.))
    strict, lenient = (judged(good, bad, level=0.99, all_must_hold=v) for v in (True, False))
    assert strict.verdict == "does not reproduce" and "bad" in strict.reason
    assert lenient.verdict == "holds" and "good" in lenient.reason
    assert strict.comparisons == 2
    with pytest.raises(ValueError, match="p-values"):
        decide(Comparisons((good,)), [0.1, 0.2], 0.95)


def test_undecided_comparisons():
    "An interval with zero and the margin decides nothing; one that excludes the margin refutes"
    z = np.linspace(-1, 1, 21)
    said = lambda values, **kwargs: judged(Comparison("x", np.asarray(values), **kwargs)).verdict
    assert said(-0.05 + 0.5*z) == "not testable here"
    assert said(0.01*z) == "does not reproduce"
    assert said(0.01*z - 0.02, margin=0.) == "holds"
    assert said(0*z, margin=0.) == "does not reproduce"      # equal in every run: no advantage
    assert said(0.6*z, claim="within") == "not testable here"
    assert said(-1 + 0.1*z, claim="within") == "does not reproduce"


def test_correction_needs_all_corrected_comparisons():
    z = np.linspace(-1, 1, 21)
    good, bad = Comparison("good", -0.5 + 0.1*z), Comparison("bad", 0.5 + 0.1*z)
    def said(*corrected):
        claim = Comparisons((bad,), corrected, "in another way")
        return decide(claim, holm([p_value(c) for c in claim]), 0.95)
    assert said(good).verdict == "holds with a correction"
    assert "true as: in another way" in said(good).reason
    assert said(good, bad).verdict == said().verdict == "does not reproduce"


def test_statistics_refuse():
    with pytest.raises(ValueError): paired_difference([1., np.nan, 2.])
    with pytest.raises(ValueError): Finding("x", np.nan, 0., 0., "holds", "")
    with pytest.raises(ValueError, match="kind"): Claim("k", "s", "w", "rumour", "p", (), print)
    assert paired_difference([0., 0., 0.]).p == 1.
    assert slope_interval([0, 1, 2, 3], [1, 3, 5, 7])[0] == pytest.approx(2)


def test_paired_difference_by_hand():
    "Against the textbook formula, at three levels and against a constant"
    from scipy.special import stdtr, stdtrit
    a, b = np.random.default_rng(3).standard_normal((2, 9))
    for x, y, level in ((a, b, 0.95), (a, b, 0.999), (a, 0.3, 0.5)):
        v = x - y
        error = v.std(ddof=1)/3
        half = stdtrit(8, (1 + level)/2)*error
        expected = [v.mean(), v.mean() - half, v.mean() + half, stdtr(8, v.mean()/error)]
        np.testing.assert_allclose(paired_difference(x, y, level), expected, rtol=1e-9)


def test_pairs_go_by_seed_not_by_place():
    a, b = pd.Series([1., 2, 3, 9], [0, 1, 2, 7]), pd.Series([30., 20, 10], [2, 1, 0])
    assert difference_by_seed(a, b).tolist() == [-9., -18., -27.]
    assert difference_by_seed(a, 1.).tolist() == [0., 1., 2., 8.]
    with pytest.raises(ValueError, match="in common"): difference_by_seed(a, b[:2])
    with pytest.raises(ValueError, match="finite"):          # a missing number is not dropped
        paired_difference(difference_by_seed(a.replace(2., np.nan), b))


def test_registry_keeps_order_and_long_docstrings():
    claims = []
    for key in ("a", "b", "a"):
        @register(claims, "theory", key, "Section 1", "25_ledger.ipynb")
        def claim_something(results):
            """A sentence that
            takes two lines."""
            return exact_finding("x", 1., "holds", "it is")
    assert [c.key for c in claims] == ["b", "a"]
    assert claims[0].statement == "A sentence that takes two lines."


def test_missing_folder_and_table_say_where_they_are(tmp_path):
    for missing in (tmp_path/"none", "none"):
        with pytest.raises(FileNotFoundError, match="nbs/results of the source"):
            result_table(missing, "regret.csv")
        with pytest.raises(FileNotFoundError, match="nbs/results of the source"):
            ledger([], missing)
    for name, how in machinery.HOW_TO_MAKE.items():
        with pytest.raises(FileNotFoundError, match=f"with: {how}; the committed one is in"):
            result_table(tmp_path, name)
        (tmp_path/name).write_text("a,b\n")
        with pytest.raises(ValueError, match="empty table; make it"): result_table(tmp_path, name)


def test_written_ledger_is_read_back(tmp_path):
    claims = []
    @register(claims, "theory", "small", "Section 1", "25_ledger.ipynb")
    def claim_small(results):
        "Small."
        return Finding("x, in words", 1e-7, -1/3, 2e5, "holds", "a \"quoted\" reason, with a comma")
    table, path = ledger(claims, tmp_path), tmp_path/"ledger.csv"
    assert list(table.loc[0, ["estimate", "low", "high"]]) == ["1e-07", "-0.3333", "2e+05"]
    with pytest.raises(AssertionError, match="rewritten"): require_committed(path, table)
    require_committed(path, table)
    assert path.read_text() == table.to_csv(index=False, lineterminator="\n")
    again = read_table(path)
    assert same_ledger(table, again) and summary(again) == summary(table)
    assert summary(again.to_dict("records")) == summary(table)
    for other in (table.assign(verdict="not testable here"), table.assign(estimate="2e-07"),
                  table.assign(low="-0.35"), pd.concat([table, table], ignore_index=True)):
        assert not same_ledger(other, again)
    assert same_ledger(table.assign(reason="other words"), again)


def test_unknown_part_and_measure_are_refused():
    runs = pd.DataFrame([dict(algorithm="A", seed=0, T=2, mean_gap=1., regret=1., half_regret=.2)])
    assert shares(runs, "A", "regret", "second half")[0] == pytest.approx(0.8)
    with pytest.raises(ValueError, match="part"): shares(runs, "A", "regret", "late")
