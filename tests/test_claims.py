"The claims of the paper: verdicts in both directions on made-up worlds, controls, the registry."
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import worlds

from gnn_bandits.core import read_table, write_table
from gnn_bandits.paper import claims
from gnn_bandits.paper.claims import CLAIMS, CoverageSettings, paper_ledger
from gnn_bandits.paper.ledger import (HOW_TO_MAKE, SELECTION, VERDICTS, Panel, Runs,
                                      all_judgements, claim_sections, ledger, panels,
                                      selection_judgements, with_control)

ROOT = Path(__file__).parent.parent
RESULTS = ROOT/"nbs"/"results"
EXPERIMENTS = [c for c in CLAIMS if c.kind == "experiment"]
OTHERS = [c for c in CLAIMS if c.kind != "experiment"]
BY_KEY = {c.key: c for c in CLAIMS}


def make_world(folder, *keys, **options):
    "A made-up world, with what the selection of settings does to some claims; all if none is named"
    worlds.make(folder, **options)
    carry(folder, keys)


def carry(folder, keys=(), others=0.):
    "The table of the selection; a share of the resamples selects what was played by best-observed"
    kinds, table = ("cumulative", "best-observed"), pd.read_csv(folder/"population.csv.gz")
    runs = pd.concat([table[table["settings"] == kind].assign(settings=str(i))
                      for i, kind in enumerate(kinds)])
    pick = lambda i: dict.fromkeys((*claims.GNN, *claims.NN), i)
    picks = {kind: pd.DataFrame([pick(i)]*round(100*(1 - others)) + [pick(1)]*round(100*others))
             for i, kind in enumerate(kinds)}
    given = panels(folder, ["population.csv.gz"])[0].source
    write_table(folder/SELECTION, pd.DataFrame([
        row for c in CLAIMS if SELECTION in c.files and (not keys or c.key in keys)
        for row in selection_judgements(c, runs, picks, given)]))


@pytest.fixture(scope="module")
def true_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("true")
    make_world(folder)
    return folder


@pytest.fixture(scope="module")
def false_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("false")
    make_world(folder, true=False)
    return folder


@pytest.mark.parametrize("key", [c.key for c in EXPERIMENTS])
def test_both_worlds(true_world, false_world, key):
    "Every claim holds in every panel of the true world and is contradicted in every other one"
    for folder, expected in ((true_world, "holds"), (false_world, "contradicted")):
        table, sides = ledger([BY_KEY[key]], folder)
        assert table["verdict"][0] == expected and set(sides["verdict"]) == {expected}


def test_noisy_world_decides_nothing_wrongly(tmp_path):
    "With noise that hides everything most claims are inconclusive, and say what could be seen"
    keys = ("size-gnn-pe", "size-nn-pe", "density-gap", "density-nn", "density-ucb-mostly")
    make_world(tmp_path, *keys, noise=1., runs=6)
    table, sides = ledger([BY_KEY[k] for k in keys], tmp_path)
    assert "inconclusive" in set(table["verdict"]) and "contradicted" not in set(table["verdict"])
    open_ = table[table["verdict"] == "inconclusive"]
    assert (open_["detectable"].astype(float) > 0.1).all()
    assert open_["reason"].str.contains("could have seen").all()


def change(folder, name, edit):
    "A table with some of it changed"
    table = pd.read_csv(folder/name)
    changed = edit(table)
    (table if changed is None else changed).to_csv(folder/name, index=False)


def test_a_flip_in_one_protocol_is_a_correction(tmp_path):
    "GNN-UCB worse than NN-UCB in one domain of the population, by cumulative regret"
    make_world(tmp_path, "gnn-beats-nn")
    def worse(table):
        here = (table.algorithm == "GNN-UCB") & (table.N == 5) & (table.p == 0.95)
        table.loc[here & (table.settings == "cumulative"), "regret"] += 100
    change(tmp_path, "population.csv.gz", worse)
    table, sides = ledger([BY_KEY["gnn-beats-nn"]], tmp_path)
    assert table["verdict"][0] == "holds with a correction"             # in a panel that is none
    against = sides[sides["verdict"] == "contradicted"]
    assert list(against["protocol"]) == ["settings as given"] and against["hold"].item() == 17
    carry(tmp_path, ["gnn-beats-nn"])
    table, sides = ledger([BY_KEY["gnn-beats-nn"]], tmp_path)
    assert table["verdict"][0] == "depends"
    assert "contradicted in: population, cumulative regret" in table["reason"][0]
    carry(tmp_path, ["gnn-beats-nn"], others=0.5)              # half of the time it is not so bad
    table, sides = ledger([BY_KEY["gnn-beats-nn"]], tmp_path)
    here = sides.set_index(["protocol", "regret"])["verdict"]
    assert here["population", "cumulative regret"] == "inconclusive"
    assert here["settings as given", "cumulative regret"] == "contradicted"


def test_a_selection_of_other_comparisons_is_refused(tmp_path):
    make_world(tmp_path, "density-gap")
    change(tmp_path, SELECTION, lambda t: t.assign(margin=0.2))
    with pytest.raises(ValueError, match="delete the table and run python scripts/tables.py"):
        ledger([BY_KEY["density-gap"]], tmp_path)


def test_fresh_runs_take_the_place_of_older_ones(tmp_path):
    "Only in their cells and settings"
    make_world(tmp_path, "gnn-beats-nn")
    def worse(table): table.loc[table.algorithm == "GNN-UCB", "regret"] += 500
    change(tmp_path, "fresh_dense.csv.gz", worse)
    sides = ledger([BY_KEY["gnn-beats-nn"]], tmp_path)[1].set_index(["protocol", "regret"])
    assert sides.loc[("settings as given", "cumulative regret"), "contradicted"] == 2
    assert sides.loc[("settings as given", "best-observed regret"), "contradicted"] == 0


def test_transfer_reads_both_selections(tmp_path):
    "A cost beyond the margin depends, a doubling contradicts; other random pulls change nothing"
    worlds.make(tmp_path)
    def costly(pulls, factor):
        def edit(table):
            pair = np.array([worlds.SELECTED.get(a) == (lam, b) for a, lam, b
                             in zip(table.algorithm, table.lam, table.beta)])
            table.loc[pair & (table.random_pulls == pulls), list(worlds.REGRETS)] *= factor
        change(tmp_path, "tuning.csv.gz", edit)
        return ledger([BY_KEY["out-of-the-box"]], tmp_path)[0]
    assert costly(0, 9.)["verdict"][0] == "holds"
    found = costly(40, 1.5)
    assert found["verdict"][0] == "depends" and "worst" in found["control"][0]
    assert costly(40, 2.)["verdict"][0] == "contradicted"


def test_censored_steps_are_not_averaged(tmp_path):
    "Runs that never find the optimum count as censored, whatever number stands for them"
    make_world(tmp_path, "density-gnn-ucb")
    said = lambda: ledger([BY_KEY["density-gnn-ucb"]], tmp_path)
    def lost(number):
        def edit(table):
            here = (table.algorithm == "GNN-UCB") & (table.N == 20) & (table.p == 0.05)
            table.loc[here & (table.run % 4 == 0), "found_at"] = number
        for name in ("population.csv.gz", "paper.csv.gz"): change(tmp_path, name, edit)
        carry(tmp_path, ["density-gnn-ucb"])
        return said()[1]["estimate"].tolist()
    assert said()[0]["verdict"][0] == "holds" and lost(501) == lost(10**6)


def test_pulls_at_random_do_not_make_a_regret_sublinear(tmp_path):
    "A policy that is equally bad after its random pulls does not pass, one that gets worse fails"
    make_world(tmp_path, "sublinear")
    def constant(table):
        here, rng = table.algorithm.isin(claims.GNN), np.random.default_rng(0)
        pulls, half = table.random_pulls[here], table["T"][here]/2
        cost = 0.2 + 0.001*rng.standard_normal((2, here.sum()))
        table.loc[here, "half_regret"] = pulls + (half - pulls)*cost[0]
        table.loc[here, "regret"] = table.half_regret[here] + half*cost[1]
    def worse(table): table.loc[table.algorithm.isin(claims.GNN), "regret"] += 5
    for edit, expected in ((constant, "inconclusive"), (worse, "contradicted")):
        for name in ("population.csv.gz", "paper.csv.gz"): change(tmp_path, name, edit)
        carry(tmp_path, ["sublinear"])
        assert ledger([BY_KEY["sublinear"]], tmp_path)[0]["verdict"][0] == expected


def test_share_of_good_configurations_by_hand():
    "A grid in which exactly a quarter of the configurations is near the best"
    rows = [dict(algorithm="GNN-PE", lam=lam, beta=b, random_pulls=k, N=5, p=0.2, d=10, run=r,
                 regret=(10 + r)*(1 if b == 0 else 2) + 5*k)
            for lam in (0.1, 1.) for b in range(4) for k in (0, 1) for r in range(16)]
    panel = Panel("population", "regret", Runs(pd.DataFrame(rows), {}))
    np.testing.assert_allclose(claims.good_fraction(panel, "GNN-PE"), 0.25)
    rival = [r | dict(algorithm="NN-PE", regret=1.5*(10 + r["run"])) for r in rows]
    panel = Panel("population", "regret", Runs(pd.DataFrame(rows + rival), {}))
    np.testing.assert_allclose(claims.better_fraction(panel, "GNN-PE", "NN-PE"), 0.25)
    np.testing.assert_allclose(claims.better_fraction(panel, "NN-PE", "GNN-PE"), 0.)


def test_missing_tables_stop_the_ledger(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it with: python scripts/"):
        paper_ledger(tmp_path, experiments=False)
    for c in CLAIMS:
        if not c.files: continue
        for where, message in ((tmp_path, "make it with"), ("none", "nbs/results of the source")):
            with pytest.raises(FileNotFoundError, match=message): ledger([c], where)
    for name in {f for c in CLAIMS for f in c.files}:
        pd.DataFrame(columns=["a", "b"]).to_csv(tmp_path/name, index=False)
    for c in CLAIMS:
        if c.files:
            with pytest.raises(ValueError, match="empty table"): ledger([c], tmp_path)


def test_incomplete_tables_are_refused(tmp_path):
    worlds.make(tmp_path, runs=2)
    with pytest.raises(ValueError, match="three"): ledger([BY_KEY["gnn-beats-nn"]], tmp_path)
    worlds.make(tmp_path)
    def fewer(table): return table[table.algorithm != "NN-UCB"]
    change(tmp_path, "population.csv.gz", fewer)
    with pytest.raises(ValueError, match="sweep complete"):
        ledger([BY_KEY["gnn-beats-nn"]], tmp_path)
    panel = panels(tmp_path, ["tuning.csv.gz"])[0]
    with pytest.raises(ValueError, match="got none"): claims.good_fraction(panel, "GNN-EI")
    with pytest.raises(ValueError, match="share two"): claims.good_fraction(panel, "GNN-PE", 10**4)


def test_registry():
    keys = [c.key for c in CLAIMS]
    assert len(keys) == len(set(keys)) >= 60
    assert {c.kind for c in CLAIMS} == {"theory", "explanation", "published", "experiment"}
    for c in CLAIMS: assert getattr(claims, c.test.__name__) is c.test and c.statement.endswith(".")
    pages = {p.name for p in RESULTS.parent.glob("*.ipynb")}
    assert {c.evidence for c in CLAIMS} <= pages, {c.evidence for c in CLAIMS} - pages
    assert {f for c in CLAIMS for f in c.files} == set(HOW_TO_MAKE)
    assert [c.key for c in CLAIMS if c.existential] == ["nn-may-fail"]
    assert not {f for c in CLAIMS for f in c.files} & {"regret.csv", "hyper.csv"}


def test_the_page_leads_to_every_claim():
    "The table that is stored in the notebook has an anchor, a verdict and a section for each claim"
    page = RESULTS.parent/"32_claims.ipynb"
    sections, committed = claim_sections(page), read_table(RESULTS/"claims.csv")
    assert list(sections) == list(committed["key"])
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    prose = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for anchor in {anchor for anchor, _ in sections.values()}:
        assert prose.count(f"{{#{anchor}}}") == 1, anchor
    shown = ["".join(o["data"]["text/html"]) for c in cells if c["cell_type"] == "code"
             for o in c["outputs"] if "ledger-claims" in str(o.get("data", {}).get("text/html"))]
    assert len(shown) == 1
    rows = re.findall(r'<tr id="claim-([\w-]+)" data-verdict="([^"]+)"', shown[0])
    assert rows == list(zip(committed["key"], committed["verdict"]))
    for anchor, _ in sections.values(): assert f'href="#{anchor}"' in shown[0]


def test_every_theory_row_has_a_control():
    for c in CLAIMS:
        if c.kind in ("theory", "explanation") and c.key != "table-neural": assert c.control, c.key


@pytest.mark.parametrize("key", [c.key for c in OTHERS if c.control])
def test_controls_really_run(key):
    "The control of each claim comes out the other way, with a number"
    found = with_control(BY_KEY[key], RESULTS)
    assert found.control.startswith(BY_KEY[key].control + ": ")
    assert any(f", {v} (" in found.control for v in VERDICTS)


def test_what_is_printed_is_contradicted():
    "Not corrected: factorial and third-term; the theorems are tested as corrected, and say so"
    said = lambda key: BY_KEY[key].test(RESULTS).verdict
    for key in ("factorial", "third-term", "diagonal-negligible"):
        assert said(key) == "contradicted", key
    for key in ("coverage-trained", "coverage-linearised", "coverage-kernel", "variance-bound",
                "keeps-optimum", "regret-bound"):
        found = BY_KEY[key].test(RESULTS)
        assert found.verdict == "holds with a correction" and "as corrected" in found.reason
    assert said("smoother-samples") == "depends"
    assert said("not-in-rkhs") == "holds with a correction"
    assert said("table-neural") == "not testable here"


def test_every_sentence_once():
    keys = [k for *_, keys, _ in claims.SENTENCES for k in keys.split()]
    assert len(keys) == len(set(keys)) and set(keys) <= set(BY_KEY)
    rest = {c.key for c in CLAIMS if c.kind != "theory"} - set(keys)
    assert rest == {"nn-sets-larger", "nn-less-accurate"}
    errata = set(read_table(RESULTS/"errata.csv")["key"])
    for _, sentence, keys, note in claims.SENTENCES:
        assert sentence and (keys or note)
        if "errata: " in note: assert set(note.split("errata: ")[1].split(", ")) <= errata, note


def test_committed_ledger_is_what_the_code_says(tmp_path):
    "One row for each claim it covers, verdicts of the right kind, functions that exist"
    table = pd.read_csv(RESULTS/"claims.csv", dtype=str, keep_default_na=False)
    assert len(table) >= 40 and table["verdict"].isin(VERDICTS).all()
    modules, names = zip(*(name.rsplit(".", 1) for name in table["function"]))
    assert set(modules) == {"gnn_bandits.paper.claims"} and all(hasattr(claims, n) for n in names)
    covered = set(table["key"])
    assert list(table["key"]) == [c.key for c in CLAIMS if c.key in covered]
    assert {c.statement for c in CLAIMS if c.key in covered} == set(table["statement"])
    again = write_table(tmp_path/"again.csv", table)
    assert again.read_bytes() == (RESULTS/"claims.csv").read_bytes()


def test_readings_say_what_the_panels_show():
    "Where a reading says that a claim holds with the settings as given, it does, and not with all"
    sides = read_table(RESULTS/"claims_panels.csv").set_index(["key", "protocol", "regret"])
    for key in ("gnn-beats-nn", "density-nn-ucb", "density-gap", "density-ucb-mostly",
                "size-gnn-pe"):
        verdicts = sides.loc[key].xs("cumulative regret", level="regret")["verdict"]
        assert verdicts["settings as given"] == "holds" and verdicts["population"] != "holds"
        assert "settings as given" in (claims.READINGS[key].flips + claims.READINGS[key].why) or (
            "left out" in claims.READINGS[key].flips)
    best = sides.loc["best-everywhere"]["contradicted"]
    assert best["population", "cumulative regret"] == 0
    assert best["population", "best-observed regret"] > 0
    assert best["many rewards", "best-observed regret"] > 0


def check_script(folder):
    return subprocess.run([sys.executable, ROOT/"scripts"/"check_verdicts.py", "--results", folder],
                          capture_output=True, text=True)


def test_independent_script_agrees_and_can_disagree(tmp_path):
    "Five verdicts, in a world with some noise, without a line of this package"
    keys = ("gnn-beats-nn", "density-gap", "nn-may-fail", "density-gnn-ucb", "out-of-the-box")
    make_world(tmp_path, *keys, noise=0.5, runs=6)
    table, sides = ledger([BY_KEY[k] for k in keys], tmp_path)
    write_table(tmp_path/"claims.csv", table), write_table(tmp_path/"claims_panels.csv", sides)
    assert check_script(tmp_path).returncode == 0
    for name, made in (("claims.csv", table), ("claims_panels.csv", sides)):
        turned = made.copy()
        turned.loc[1, "verdict"] = "not testable here"
        write_table(tmp_path/name, turned)
        assert check_script(tmp_path).returncode == 1
        write_table(tmp_path/name, made)
    source = (ROOT/"scripts"/"check_verdicts.py").read_text()
    assert "import gnn_bandits" not in source and "from gnn_bandits" not in source


def test_published_verdicts_follow_the_table(tmp_path):
    "Were GNN-PE lowest in every panel, the claim would hold"
    table = read_table(RESULTS/"published.csv")
    table.loc[(table["algorithm"] == "GNN-PE") & (table["figure"] != "hyper"), "final"] = 1e-3
    write_table(tmp_path/"published.csv", table)
    assert claims.claim_published_best(tmp_path).verdict == "holds"
    assert claims.claim_published_best(RESULTS).verdict == "holds with a correction"
    worse = (table["algorithm"] == "GNN-PE") & (table["figure"] == "performance")
    write_table(tmp_path/"published.csv", table.assign(final=table["final"].where(~worse, 1e3)))
    assert claims.claim_published_best(tmp_path).verdict == "contradicted"
    table["final"] = 1.
    write_table(tmp_path/"published.csv", table)
    for test in (claims.claim_published_gnn, claims.claim_published_density,
                 claims.claim_published_longer):
        assert test(RESULTS).verdict == "holds with a correction"
        assert test(tmp_path).verdict == "contradicted"


@pytest.mark.parametrize("name,change,key", [
    ("coverage.csv", dict(covered=2000, trials=4000, low=0.48, high=0.52), "coverage-kernel"),
    ("width_limit.csv", dict(distance="m"), "width-limit"),
    ("width_limit.csv", dict(distance=1000.), "gram-concentration"),
    ("taylor_error.csv", dict(remainder="m"), "taylor"),
    ("taylor_error.csv", dict(distance="m"), "linearisation"),
    ("taylor_error.csv", dict(movement="m"), "lazy"),
    ("stopping.csv", dict(J40=1), "steps-grow"),
    ("elimination.csv", dict(survived=0), "keeps-optimum"),
    ("elimination.csv", dict(R511=1e5), "regret-bound")])
def test_theory_verdicts_follow_the_tables(tmp_path, name, change, key):
    "A table that contradicts the claim turns the verdict; `m`: a column that grows with the width"
    test = BY_KEY[key].test
    assert test(RESULTS).verdict.startswith("holds")
    table = read_table(RESULTS/name)
    for column, value in change.items():
        if isinstance(value, str): value = table[value]*(1 + np.arange(len(table)) % 3/10)
        table[column] = value
    write_table(tmp_path/name, table)
    assert test(tmp_path).verdict == "contradicted"


def test_coverage_does_not_depend_on_the_number_of_processes():
    small = CoverageSettings(arms=10, nodes=3, m=16, pulls=6, trials=20, networks=2)
    one, two = (pd.DataFrame(claims.coverage_rows(3, jobs, small)) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert list(one) == list(read_table(RESULTS/"coverage.csv")) and len(one) == 27
    with pytest.raises(ValueError, match="trained"): list(claims.coverage_rows(trained=0))


@pytest.mark.skipif(not (RESULTS/"claims_panels.csv").exists(), reason="no table of panels yet")
def test_independent_script_agrees_with_the_committed_ledger():
    done = check_script(RESULTS)
    assert done.returncode == 0, done.stdout + done.stderr
    covered = pd.read_csv(RESULTS/"claims.csv")["key"]
    assert list(covered) == [c.key for c in CLAIMS]


def paper_source():
    "The LaTeX of the paper: PAPER_TEX, or in a folder `paper` near this project; None if neither"
    if given := os.environ.get("PAPER_TEX"): return Path(given)
    name = "graph_neural_network_bandits.tex"
    near = (p for folder in (ROOT, *ROOT.parents) for p in folder.glob(f"*/paper/{name}"))
    return next((p for p in (ROOT/"paper"/name, *near) if p.is_file()), None)


def section_of(lines, line):
    "The number of the section in which a line stands, counted from the commands above it"
    part, numbers = "Section", [0, 0]
    for text in lines[:line]:
        if re.match(r"\s*\\appendix", text): part, numbers = "App.", [0, 0]
        if re.match(r"\s*\\section\{", text): numbers = [numbers[0] + 1, 0]
        if re.match(r"\s*\\subsection\{", text): numbers[1] += 1
    first = chr(64 + numbers[0]) if part == "App." else str(numbers[0])
    return f"{part} {first}" + f".{numbers[1]}"*bool(numbers[1])


def test_every_row_quotes_the_paper():
    table = read_table(RESULTS/"claims.csv").astype(object).fillna("")
    assert (table["quotation"] != "").all() and (table["line"] > 0).all()
    assert table["quotation"].str.len().max() < 100
    if (source := paper_source()) is None:
        pytest.skip("the LaTeX of the paper is not part of this project; PAPER_TEX may say where")
    lines = source.read_text(encoding="utf-8").split("\n")
    for r in table.itertuples():
        assert r.quotation in lines[r.line - 1], (r.key, r.line)
        assert r.section == section_of(lines, r.line), r.key


def test_quotations_that_are_not_in_the_paper_would_be_seen():
    "The lists are read as they stand; a missing line is an error"
    found = claims.read_quotations("a, Section 1, 3\n    some words\nb, App. C.2, 9\n    more\n")
    assert found["b"] == ("App. C.2", 9, "more") and found["a"].words == "some words"
    with pytest.raises(ValueError): claims.read_quotations("a, Section 1, 3\n")


def test_changed_verdicts_say_why_and_contradictions_what_to_grant():
    table = read_table(RESULTS/"claims.csv").astype(object).fillna("").set_index("key")
    before = read_table(RESULTS/"verdicts_before.csv").set_index("key")
    assert list(before.index) == list(table.index) == [c.key for c in CLAIMS]
    for key in table.index[table["verdict"] != before["verdict"]]:
        reading = claims.READINGS[key]
        assert reading.means and reading.flips and reading.why, key
    granted = table["granted"] != ""
    assert (granted == (table["verdict"] == "contradicted")).all()
    assert (table["verdict"] == "contradicted").sum() < (before["verdict"] == "contradicted").sum()
    assert set(claims.READINGS) <= set(table.index)


def test_what_the_authors_have_to_grant_about_the_best_algorithm():
    "At N = 20, p = 0.2 and 200 arms GNN-UCB is clearly below GNN-PE in every panel"
    claim, cell = BY_KEY["best-everywhere"], "GNN-PE against GNN-UCB, N = 20, p = 0.2, arms = 200"
    found = [j for panel in panels(RESULTS, claim.files, claim.measures)
             for j in all_judgements(claim.test(panel).all) if j.name == cell]
    assert len(found) == 9 and {j.verdict for j in found} == {"contradicted"}
    ends = claims.published_endpoints(RESULTS, "performance", "domains")
    assert claims.ends_below(ends, "GNN-UCB", "GNN-PE")[0] > len(ends)/2
