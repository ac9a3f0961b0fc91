"The machinery of the ledger: verdicts, controls, comparisons, panels, tables read and written."
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from html_reader import Reader
from gnn_bandits.core import read_table
from gnn_bandits.paper import ledger as machinery
from gnn_bandits.paper.ledger import (VERDICTS, Claim, Comparison, Comparisons, Estimate, Finding,
                                      Panel, Runs, all_judgements, count_in_words, decide,
                                      exact_finding, holm, identity_finding, judge_claim,
                                      join_panels, ledger, overall, p_value, paired, panels,
                                      panels_markdown, register, require_committed, result_table,
                                      same_ledger, sample, slope_interval, sum_of_means, summary,
                                      verdict_table, with_control)

RESULTS = Path(__file__).parent.parent/"nbs"/"results"

Z = np.linspace(-1, 1, 21)
THREE, FOUR = ["holds", "contradicted", "inconclusive"], [
    "holds", "depends", "contradicted", "inconclusive"]


def judged(*comparisons, existential=False):
    "The verdict for some comparisons as a family of their own, and what is shown"
    return decide(all_judgements(comparisons), existential)


def toy_runs(rng, shift=-0.3, protocol="population", runs=12):
    "A table of two algorithms in one cell"
    rows, settings = [], ("cumulative", "best-observed", "paper")
    if protocol != "population": settings = ("paper",)
    for r in range(runs):
        base = 10 + rng.standard_normal()
        for a in ("A", "B"):
            value = base*(1 + shift*(a == "A")) + 0.1*rng.standard_normal()
            rows += [dict(protocol=protocol, settings=s, N=5, p=0.2, d=10, arms=200, T=500, run=r,
                          reward=r//3, algorithm=a, regret=value, found_at=100,
                          inference_regret=value, best_observed_regret=value) for s in settings]
    return pd.DataFrame(rows)


def toy_folder(folder, shifts):
    "Write tables in which A is lower than B by a share, in each protocol"
    rng = np.random.default_rng(0)
    toy_runs(rng, shifts[0]).to_csv(folder/"population.csv.gz", index=False)
    paper = [toy_runs(rng, s, name) for s, name in zip(shifts[1:], ("one reward", "many rewards"))]
    pd.concat(paper).to_csv(folder/"paper.csv.gz", index=False)


def toy_claim(**more):
    claims = []
    @register(claims, "experiment", "toy", "Section 1", "50_ledger.ipynb", "population.csv.gz",
              "paper.csv.gz", **more)
    def claim_toy(panel):
        "A is lower than B."
        a, b = (sample(panel, name, N=5, p=0.2, d=10, arms=200) for name in "AB")
        return Comparisons((Comparison("A against B", (paired(a, b),), b.mean()),))
    return claims[0]


def test_family_wise_error():
    "Without any effect, the rate of families with a false discovery stays at its level"
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(100):
        family = [Comparison("null", (rng.standard_normal(10),)) for _ in range(20)]
        wrong += bool((holm([p_value(c) for c in family]) <= 0.05).any())
    assert wrong/100 < 0.05 + 5*np.sqrt(0.05*0.95/100)


def test_holm_is_monotone_and_never_below_p():
    p = np.random.default_rng(2).random(50)
    adjusted = holm(p)
    assert (adjusted >= p).all() and (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()
    assert holm([0.2]).tolist() == [0.2]


def test_universal_and_existential():
    good, bad, open_ = (Comparison(name, (v,)) for name, v in
                        (("good", -0.5 + 0.1*Z), ("bad", 0.5 + 0.1*Z), ("open", -0.05 + 3*Z)))
    assert judged(good, bad)[0] == "contradicted" and judged(good, bad)[1].name == "bad"
    assert judged(good, bad, existential=True)[0] == "holds"
    assert judged(good, open_)[0] == judged(bad, open_, existential=True)[0] == "inconclusive"
    assert judged(bad, open_)[0] == "contradicted" and judged(bad, existential=True)[0] == THREE[1]
    assert judged(good, good, existential=True)[1].name == "good"
    words = count_in_words(all_judgements([good, bad, open_]))
    assert words == "1 of 3 comparisons hold, 1 contradicted, 1 undecided"


def test_duplicates_count_once():
    one = Comparison("same", (-0.5 + 0.1*Z,))
    assert len(Comparisons((one, one, Comparison("other", (Z,)))).all) == 2
    assert len(Comparisons((one,), (one, one)).control) == 1


def test_three_forms():
    said = lambda values, **kwargs: judged(Comparison("x", (np.asarray(values),), **kwargs))[0]
    assert said(-0.05 + 0.5*Z) == said(0.01*Z) == said(0*Z) == "inconclusive"
    assert said(0.01*Z - 0.02) == "holds"                    # small but sure
    assert said(0.02 + 0.01*Z) == "contradicted"             # and so is the opposite
    assert [said(v, form="within") for v in (0.01*Z, -0.5 + 0.1*Z, -2 + 0.1*Z, 0.9*Z)] == FOUR
    assert [said(v, form="not above")
            for v in (-1 + 0.1*Z, 0.5 + 0.1*Z, 2 + 0.1*Z, 0.1 + 0.9*Z)] == FOUR
    assert said(0.5 + 0.1*Z, form="not above", gross=0.3) == "contradicted"
    assert said(0*Z, form="not above") == "holds"
    with pytest.raises(ValueError, match="form"): Comparison("x", (Z,), form="above")
    with pytest.raises(ValueError, match="scale"): Comparison("x", (Z,), 0.)
    with pytest.raises(ValueError, match="gross"): Comparison("x", (Z,), gross=0.05)


def test_families_that_depend():
    good, far = (Comparison(n, (v + 0.1*Z,), form="not above") for n, v in (("a", -1), ("b", 0.5)))
    worse = Comparison("c", (2 + 0.1*Z,), form="not above")
    assert judged(good, far)[0] == "depends" and judged(good, far, worse)[0] == "contradicted"
    assert judged(good, far, existential=True)[0] == "holds"
    assert judged(far, worse, existential=True)[0] == "depends"
    words = count_in_words(all_judgements([good, far]))
    assert words == "1 of 2 comparisons hold, 1 depend, 0 contradicted, 0 undecided"


def test_no_verdict_beside_an_interval_that_says_otherwise():
    "For random families: what holds has its interval on the side of the claim, and only that"
    rng = np.random.default_rng(8)
    for _ in range(100):
        family = [Comparison(str(i), (rng.standard_normal(12) + rng.choice([-2, -0.7, 0, 0.7]),))
                  for i in range(4)]
        for j in all_judgements(family):
            assert (j.verdict == "holds") == (j.high < 0)
            if j.verdict == "contradicted": assert j.low > 0
        for form in ("not above", "within"):
            for j in all_judgements([Comparison(c.name, (c.samples[0]/9,), form=form)
                                     for c in family]):
                inside = j.high < 0.1 and (form == "not above" or j.low > -0.1)
                assert (j.verdict == "holds") == inside


def test_log_rank_scores_against_scipy():
    "With censoring, ties and groups of different size; a group against itself; nothing found"
    rng = np.random.default_rng(9)
    for T in (3, 10, 40):
        a, b = rng.geometric(0.1, 30), rng.geometric(0.2, 21)
        scores = machinery.log_rank_scores(a, b, T)
        theta = sum(s.mean() for s in scores)
        z = stats.logrank(machinery.censored(a, T), machinery.censored(b, T)).statistic
        assert np.sign(theta) == -np.sign(z)
        V = (z/theta)**2
        assert sum(s.sum()*f for s, f in zip(scores, (-1, 1))) == pytest.approx(0, abs=1e-9)
        assert -scores[0].sum()*51*V/(30*21)/np.sqrt(V) == pytest.approx(z)       # (O - E)/√V
    same = machinery.log_rank_scores(a, a, T)
    assert sum(s.mean() for s in same) == pytest.approx(0, abs=1e-12)
    assert not np.any(machinery.log_rank_scores([9, 9, 9], [9, 9, 9], 5))
    assert machinery.median_steps([1, 2, 9, 9], 5) == 2
    assert machinery.median_steps([1, 9, 9, 9], 5) == np.inf


def test_time_of_looking_does_not_move_the_log_rank_estimate():
    "Censoring earlier costs precision and adds no bias; a mean of censored steps moves"
    rng = np.random.default_rng(10)
    a, b = rng.geometric(0.02, 4000), rng.geometric(0.01, 4000)
    late, early = (sum(s.mean() for s in machinery.log_rank_scores(a, b, T)) for T in (1000, 30))
    assert abs(late - early) < 0.15
    means = [np.log(np.minimum(a, T + 1).mean()/np.minimum(b, T + 1).mean()) for T in (1000, 30)]
    assert abs(means[0] - means[1]) > 0.4


def test_level_of_the_test():
    "A one-sided p-value of 0.04 is enough, 0.06 is not; beside an equal one half of it is needed"
    def values(p): return 5*(Z + stats.t.ppf(p, 20)*stats.sem(Z))
    for p, k, expected in ((0.04, 1, "holds"), (0.06, 1, "inconclusive"), (0.024, 2, "holds"),
                           (0.026, 2, "inconclusive")):
        family = [Comparison(str(i), (values(p),)) for i in range(k)]
        assert p_value(family[0]) == pytest.approx(p) and judged(*family)[0] == expected


def test_margin_is_relative_to_the_rival():
    "The same difference matters beside a small rival and not beside a large one"
    difference = -1.5 + 3*Z
    assert judged(Comparison("x", (difference,), 10., "within"))[0] == "inconclusive"
    assert judged(Comparison("x", (difference,), 100., "within"))[0] == "holds"
    found = all_judgements([Comparison("x", (difference,), 10.)])[0]
    assert found.estimate == pytest.approx(-0.15)


def test_intervals_are_simultaneous():
    values = -0.3 + Z
    one = all_judgements([Comparison("x", (values,))])[0]
    many = all_judgements([Comparison(str(i), (values,)) for i in range(10)])[0]
    assert one.verdict == "holds" and many.verdict == "inconclusive"
    for found, level in ((one, 0.9), (many, 1 - 0.05/10)):           # of the test; simultaneous
        expected = stats.t.interval(level, 20, values.mean(), stats.sem(values))
        np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-9)
    assert many.detectable > one.detectable > 0


def test_sum_of_means_by_hand():
    a, b = np.random.default_rng(3).standard_normal((2, 9))
    found, t = sum_of_means([a, -b]), stats.ttest_ind(a, b, equal_var=False)
    np.testing.assert_allclose(found.interval(0.9), t.confidence_interval(0.9), rtol=1e-9)
    assert sum_of_means([[0., 0, 0]]) == Estimate(0., 0., np.inf)
    assert [sum_of_means([[v]*3]).p_below(0) for v in (-1., 1.)] == [0., 1.]
    for bad in ([1., np.nan, 2.], [1., 2.]):
        with pytest.raises(ValueError, match="three finite"): sum_of_means([bad])
    assert slope_interval([0, 1, 2, 3], [1, 3, 5, 7])[0] == pytest.approx(2)


def test_controls_have_to_come_out_the_other_way():
    def claim(value, broken_value):
        def test(results, broken=False):
            return identity_finding(broken_value if broken else value, 1e-9, "x")
        return Claim("k", "s", "w", "theory", "p", (), test, control="broken")
    assert with_control(claim(0, 1), "").control.startswith("broken: 1, contradicted")
    assert with_control(claim(1, 0), "").control.startswith("broken: 0, holds")
    for value in (0, 1):
        with pytest.raises(AssertionError, match="does no work"):
            with_control(claim(value, value), "")


def test_findings_and_kinds_refuse():
    with pytest.raises(ValueError): Finding("x", np.nan, 0., 0., "holds", "")
    with pytest.raises(ValueError, match="verdict"):
        Finding("x", 0., 0., 0., "does not reproduce", "")
    with pytest.raises(ValueError, match="kind"): Claim("k", "s", "w", "rumour", "p", (), print)


def test_rule_for_the_panels():
    "Against the rule in words, for every combination of three panels"
    for a in FOUR:
        for b in FOUR:
            for c in FOUR:
                said = overall((a, b), (a, b, c))
                if (a, b) == ("holds", "holds") and c != "contradicted": assert said == "holds"
                elif "depends" in (a, b) or {a, b} == {"holds", "contradicted"}:
                    assert said == "depends"
                elif "holds" in (a, b): assert said == "holds with a correction"
                elif "contradicted" in (a, b): assert said == "contradicted"
                else: assert said == "inconclusive"


@pytest.mark.parametrize("shifts,expected", [
    ((-0.3, -0.3, -0.3), "holds"), ((0.3, 0.3, 0.3), "contradicted"),
    ((-0.3, 0.3, -0.3), "holds with a correction"), ((-0.3, -0.3, 0.3), "depends"),
    ((0.3, -0.3, -0.3), "depends")])
def test_panels_of_a_claim(tmp_path, shifts, expected):
    toy_folder(tmp_path, shifts)
    found = judge_claim(toy_claim(), tmp_path)
    assert len(found) == 9 and join_panels(toy_claim(), found).verdict == expected
    table, sides = ledger([toy_claim()], tmp_path)
    assert list(sides["primary"]) == ["yes"] + ["no"]*7 + ["yes"]
    by_protocol = sides.groupby("protocol", sort=False)["verdict"].first()
    assert list(by_protocol) == ["holds" if s < 0 else "contradicted" for s in shifts]
    assert len(panels_markdown(sides).splitlines()) == 3
    if expected in VERDICTS[1:3]: assert "contradicted in: " in table["reason"][0]


def test_new_tables_are_read_again(tmp_path):
    for shift, expected in ((-0.3, "holds"), (0.3, "contradicted")):
        toy_folder(tmp_path, (shift,)*3)
        assert ledger([toy_claim()], tmp_path)[0]["verdict"][0] == expected


def test_one_primary_panel_decides_alone_and_none_is_an_error(tmp_path):
    toy_folder(tmp_path, (-0.3, -0.3, -0.3))
    claim = toy_claim()
    only = lambda *protocols: Claim(**vars(claim) | dict(
        test=lambda p: claim.test(p) if p.protocol in protocols else Comparisons(())))
    assert len(judge_claim(only("population"), tmp_path)) == 3
    assert join_panels(claim, judge_claim(only("population"), tmp_path)).verdict == "holds"
    with pytest.raises(ValueError, match="primary panel"): judge_claim(only("one reward"), tmp_path)


def test_measures_choose_the_primary_panels(tmp_path):
    toy_folder(tmp_path, (-0.3, -0.3, -0.3))
    claim = toy_claim(measures=("inference_regret",))
    _, sides = ledger([claim], tmp_path)
    assert list(sides["primary"]) == ["yes", "no", "yes"]
    assert set(sides["regret"]) == {"inference regret"}


def test_control_of_an_experiment_must_not_pass(tmp_path):
    toy_folder(tmp_path, (-0.3, -0.3, -0.3))
    claim = toy_claim(control="something")
    with_idle = lambda panel: Comparisons(claim.test(panel).all, claim.test(panel).all)
    with pytest.raises(AssertionError, match="control of toy passes"):
        ledger([Claim(**vars(claim) | dict(test=with_idle))], tmp_path)


def test_unit_of_replication():
    "Runs of one reward are averaged where rewards are many, and only there"
    table = toy_runs(np.random.default_rng(4), protocol="many rewards")
    cell = dict(N=5, p=0.2, d=10, arms=200)
    for protocol, units in (("many rewards", 4), ("one reward", 12)):
        panel = Panel(protocol, "regret", Runs(table, {}))
        assert len(panel.find(**cell)) == 24
        panel = Panel(protocol, "regret", Runs(table, dict(iter(table.groupby(machinery.GROUPS)))))
        values = sample(panel, "A", **cell)
        assert len(values) == units
        np.testing.assert_allclose(values.mean(), table[table.algorithm == "A"].regret.mean())


def test_settings_of_the_panels(tmp_path):
    toy_folder(tmp_path, (-0.3,)*3)
    table = pd.read_csv(tmp_path/"population.csv.gz")
    table["best_observed_regret"] = table["regret"] = table["settings"].map(
        {"cumulative": 1., "best-observed": 2., "paper": 3.})
    table.to_csv(tmp_path/"population.csv.gz", index=False)
    by_measure = {p.measure: p for p in panels(tmp_path, ["population.csv.gz"])}
    cell = dict(N=5, p=0.2, d=10, arms=200)
    assert (sample(by_measure["regret"], "A", **cell) == 1).all()
    assert (sample(by_measure["best_observed_regret"], "A", **cell) == 2).all()
    assert (sample(by_measure["regret"], "A", settings="paper", **cell) == 3).all()


def test_pairs_go_by_run_not_by_place():
    a, b = pd.Series([1., 2, 3, 9], [0, 1, 2, 7]), pd.Series([30., 20, 10], [2, 1, 0])
    assert paired(a, b).tolist() == [-9., -18., -27.]
    with pytest.raises(ValueError, match="in common"): paired(a, b[:2])


def test_incomplete_and_doubled_runs_are_refused(tmp_path):
    toy_folder(tmp_path, (-0.3,)*3)
    panel = panels(tmp_path, ["population.csv.gz"])[0]
    with pytest.raises(ValueError, match="sweep complete"): sample(panel, "C")
    table = pd.concat([panel.runs, panel.runs])
    with pytest.raises(ValueError, match="got two"): sample(Panel("population", "regret",
                                                                  Runs(table, {})), "A")
    pd.read_csv(tmp_path/"paper.csv.gz").query("protocol == 'one reward'").to_csv(
        tmp_path/"paper.csv.gz", index=False)
    with pytest.raises(ValueError, match="runs of 'many rewards'"):
        panels(tmp_path, ["paper.csv.gz"])


def test_registry_keeps_order_and_long_docstrings():
    claims = []
    for key in ("a", "b", "a"):
        @register(claims, "theory", key, "Section 1", "50_ledger.ipynb")
        def claim_something(results):
            """A sentence that
            takes two lines."""
            return exact_finding("x", 1., "holds", "it is")
    assert [c.key for c in claims] == ["b", "a"]
    assert claims[0].statement == "A sentence that takes two lines."


def test_missing_folder_and_table_say_where_they_are(tmp_path):
    for missing in (tmp_path/"none", "none"):
        with pytest.raises(FileNotFoundError, match="nbs/results of the source"):
            result_table(missing, "coverage.csv")
        with pytest.raises(FileNotFoundError, match="nbs/results of the source"):
            ledger([], missing)
    for name, how in machinery.HOW_TO_MAKE.items():
        with pytest.raises(FileNotFoundError, match=f"with: {how}; the committed one is in"):
            result_table(tmp_path, name)
        pd.DataFrame(columns=["a", "b"]).to_csv(tmp_path/name, index=False)
        with pytest.raises(ValueError, match="empty table; make it"): result_table(tmp_path, name)


def test_written_ledger_is_read_back(tmp_path):
    claims = []
    @register(claims, "theory", "small", "Section 1", "50_ledger.ipynb")
    def claim_small(results):
        "Small."
        return Finding("x, in words", 1e-7, -1/3, 2e5, "holds", "a \"quoted\" reason, with a comma")
    table, path = ledger(claims, tmp_path)[0], tmp_path/"ledger.csv"
    assert list(table.loc[0, ["estimate", "low", "high"]]) == ["1e-07", "-0.3333", "2e+05"]
    with pytest.raises(AssertionError, match="rewritten"): require_committed(path, table)
    require_committed(path, table)
    assert path.read_text() == table.to_csv(index=False, lineterminator="\n")
    again = read_table(path)
    assert same_ledger(table, again) and summary(again) == summary(table)
    assert summary(again.to_dict("records")) == summary(table)
    for other in (table.assign(verdict=VERDICTS[-1]), table.assign(estimate="2e-07"),
                  table.assign(low="-0.35"), pd.concat([table, table], ignore_index=True)):
        assert not same_ledger(other, again)
    assert same_ledger(table.assign(reason="other words"), again)


def test_does_not_reproduce_is_gone():
    assert len(VERDICTS) == 6 and "does not reproduce" not in VERDICTS


# the table as HTML

def test_hostile_text_stays_text():
    "In every column that holds text, in the code of a test and in the title of a section"
    nasty = "</script><img src=x onerror='alert(1)'>\" onload=\"alert(2)"
    table = read_table(RESULTS/"claims.csv").head(3)
    words = ["statement", "where", "statistic", "reason", "control", "files", "estimate",
             "quotation", "section", "means", "flips", "granted"]
    hostile = table.assign(key=nasty, evidence=f"01_{nasty}.ipynb", **dict.fromkeys(words, nasty))
    hostile = verdict_table(hostile, {nasty: (nasty, nasty)}, {nasty: nasty})
    plain, page = Reader(verdict_table(table)), Reader(hostile)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1 and "img" not in names
    assert not {k for _, a in page.tags for k in a} - {k for _, a in plain.tags for k in a} - {
        "tabindex"}
    assert page.text.count(nasty) >= 3*len(words)


# the table in a browser

def table_page(folder, **more):
    "The committed ledger as a page of its own, twice, to see that two tables do not meddle"
    committed = read_table(RESULTS/"claims.csv")
    few = committed.head(3).assign(key=["one", "two", "three"])
    parts = verdict_table(committed, **more) + verdict_table(few, name="other")
    (folder/"page.html").write_text('<!doctype html><html lang="en"><meta charset="utf-8">'
                                    '<meta name="viewport" content="width=device-width">'
                                    f"<title>Ledger</title><main>{parts}</main>", encoding="utf-8")
    return committed, (folder/"page.html").as_uri()


def test_table_filters_and_sorts(browser, tmp_path):
    committed, page = table_page(tmp_path)
    tab, errors = browser.new_page(), []
    tab.on("pageerror", lambda e: errors.append(str(e)))
    tab.goto(page)
    box = tab.locator("#ledger-claims")
    rows = box.locator("tbody tr:visible")
    assert rows.count() == len(committed)
    box.get_by_label("verdict").select_option("contradicted")
    assert rows.count() == (committed["verdict"] == "contradicted").sum()
    box.get_by_label("kind").select_option("theory")
    few = committed.query("verdict == 'contradicted' and kind == 'theory'")
    assert rows.count() == len(few) > 0
    box.get_by_label("words").fill("base KERNELS")
    assert rows.count() == 1 and rows.first.get_attribute("id") == "claim-factorial"
    assert f"1 of {len(committed)}" in box.locator("output").inner_text()
    box.get_by_role("button", name="Show all").click()
    tab.wait_for_function("!document.querySelector('#ledger-claims tbody tr[hidden]')")
    button = box.get_by_role("button", name="verdict")
    for direction, first in (("ascending", "holds"), ("descending", "not testable here")):
        button.focus()
        tab.keyboard.press("Enter")
        assert box.locator("th[aria-sort]").get_attribute("aria-sort") == direction
        assert rows.first.get_attribute("data-verdict") == first
    assert tab.locator("#ledger-other tbody tr:visible").count() == 3 and not errors
    tab.close()


def test_table_opens_at_an_anchor_and_fits_a_phone(browser, tmp_path):
    "A claim that a link leads to is shown with its evidence, also if the filter had hidden it"
    committed, page = table_page(tmp_path, code={"third-term": "def test(): ..."})
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.goto(page + "#claim-third-term")
    assert tab.locator("#claim-third-term details[open]").count() == 1
    assert "def test()" in tab.locator("#claim-third-term pre").inner_text()
    width, screen = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= screen + 1
    tab.locator("#ledger-claims").get_by_label("verdict").select_option("holds")
    assert not tab.locator("#claim-factorial").is_visible()
    tab.evaluate("location.hash = '#claim-factorial'")
    tab.wait_for_selector("#claim-factorial", state="visible")
    tab.close()


def test_table_without_javascript_is_plain(browser, tmp_path):
    committed, page = table_page(tmp_path)
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page)
    assert tab.locator("#ledger-claims tbody tr").count() == len(committed)
    assert not tab.locator("form:visible, th button").count()
    context.close()
