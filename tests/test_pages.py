"""What every page has: a question at the top, a summary at the end, links that lead somewhere."""
import base64, gzip, json, os, re, subprocess, sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT/"nbs").glob("[0-9][0-9]_*.ipynb"))
LINK = re.compile(r"\]\(([\w./-]+\.ipynb)(?:#([\w.-]+))?\)")


def prose(path):
    "The text of a notebook, cell by cell, computed text included."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "markdown": yield "".join(cell["source"])
        for out in cell.get("outputs", []):
            yield "".join(out.get("data", {}).get("text/markdown", []))


def anchors(path):
    "The names that can be linked to in a notebook, as far as the text gives them."
    return re.findall(r"^#+ .*\{#([\w.-]+)", "\n".join(prose(path)), re.M)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_page_says_what_it_answers_and_what_it_showed(path):
    cells = [text for text in prose(path) if text.strip()]
    title, *rest = filter(None, cells[0].splitlines())
    # nbdev makes title and description of the first cell and drops whatever else it holds
    assert title.startswith("# ") and len(rest) == 1 and rest[0].startswith("> "), cells[0]
    beginning = "\n".join(cells[1:3])
    for lead in ("What this page answers", "What you need to know", "What you will be able to do"):
        assert f"**{lead}" in beginning, f"{path.name} does not begin with '{lead}'"
    end = "\n".join(cells).rsplit("\n## ", 1)[-1]
    assert end.startswith("What was shown") and "**Next" in end, f"{path.name}: no summary"


def test_ten_questions_a_page():
    "Of the pages that were shortened; one of them is what the page is opened for"
    text = (ROOT/"tests"/"data"/"questions.yml").read_text(encoding="utf-8")
    for page, asked in yaml.safe_load(text).items():
        assert page == "index" or any(p.stem[3:] == page for p in NOTEBOOKS), page
        assert len(asked) == len({q for q, *_ in asked}) == 10, page
        assert [more for _, _, *more in asked if more] == [["first"]], page


def test_shell_tutorial_runs_as_shown(tmp_path):
    "Its lines, typed into a shell in an empty folder, print what the page shows"
    text = "\n".join(prose(ROOT/"nbs"/"26_cli.ipynb"))
    part = text.split("{#cli-tutorial}")[1].split("\n## ")[0]
    blocks = re.findall(r"```(sh|text)\n(.*?)\n```", part, re.S)
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "COLUMNS": "88"}
    first = lambda said: re.sub(r"[\d.]+", "#", said.strip().partition("\n")[0])
    said, played = None, 0
    for kind, block in blocks:
        if kind == "text":
            assert first(said) == first(block)
            continue
        lines = f'gnn_bandits() {{ "$PYTHON" -m gnn_bandits "$@"; }}\n{block}'
        done = subprocess.run(["bash", "-ec", lines], cwd=tmp_path, env=env, capture_output=True,
                              text=True)
        assert done.returncode == 0, (block, done.stderr)
        said, played = done.stdout, played + 1
    assert played > 8 and (tmp_path/"boiling"/"report.html").is_file()


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT/"nbs"/"index.ipynb"], ids=lambda p: p.stem)
def test_links_lead_to_pages_and_words(path):
    words = anchors(ROOT/"nbs"/"37_glossary.ipynb")
    for name, anchor in LINK.findall("\n".join(prose(path))):
        assert (path.parent/name).is_file(), f"{path.name} links to {name}"
        if name == "37_glossary.ipynb" and anchor:
            assert anchor in words, f"{path.name} links to the word {anchor}"


def test_anchors_are_unique():
    # Sphinx has one list of labels for the whole site
    known = Counter(a for path in NOTEBOOKS for a in anchors(path))
    assert not [a for a, k in known.items() if k > 1]


def test_one_number_a_notebook():
    numbers = [int(p.name[:2]) for p in NOTEBOOKS]
    assert numbers == list(range(len(numbers)))


def test_readme_is_short():
    assert len((ROOT/"README.md").read_text(encoding="utf-8").split()) <= 700


def test_readme_says_the_distance_after_100_measurements():
    "The number after which it says 'after 100 measurements', from the table that it links to"
    labs = pd.read_csv(ROOT/"nbs"/"results"/"laboratories.csv")
    labs = labs[(labs["population"] == "qm9") & (labs["batch"] == 1)]
    pools = labs.groupby(["recipe", "seed"])["gap_100"].mean().unstack()
    text = (ROOT/"README.md").read_text(encoding="utf-8")
    worth = " ".join(text[text.index("What is it worth?"):].split("##")[0].split())
    told = re.search(r"After 100 measurements the best one so far is (.*?) at random", worth)[1]
    numbers = [f"{pools.loc[r].mean():.2f} ± {pools.loc[r].sem():.2f}"
               for r in ("ucb", "tanimoto ucb", "paper GNN-UCB", "random")]
    assert re.findall(r"\d+\.\d\d ± \d+\.\d\d", told) == numbers
    assert "campaigns.html#laboratories" in worth
    assert "laboratories" in anchors(ROOT/"nbs"/"13_campaigns.ipynb")


def test_landing_page_shows_the_run_with_the_median_advantage():
    from gnn_bandits.watch import duel, typical_seed
    runs = pd.read_csv(ROOT/"nbs"/"results"/"landing.csv").set_index("seed")
    advantage = runs["NN-PE"] - runs["GNN-PE"]
    assert len(runs) % 2 and list(runs.index) == list(range(len(runs)))    # no seed was left out
    middle = typical_seed(runs.index.to_numpy(), advantage.to_numpy())
    assert advantage[middle] == advantage.median() > 0
    text = " ".join((ROOT/"README.md").read_text(encoding="utf-8").split())
    ours, plain = runs.loc[middle, ["GNN-PE", "NN-PE"]]
    assert (f"median advantage of {len(runs)}: a regret of {ours:.1f} against {plain:.1f}. The "
            f"graph network is ahead in {(advantage > 0).sum()}.") in text
    players, env = duel(middle)
    ours, plain = (float(env.gaps[p.arms].sum()) for p in players)
    assert ours < plain
    # the slider of the page ends with the regret of these runs
    cells = json.loads((ROOT/"nbs"/"index.ipynb").read_text(encoding="utf-8"))["cells"]
    pictures = ["".join(out["data"]["text/html"]) for c in cells for out in c.get("outputs", [])
                if "gb-watch" in "".join(out.get("data", {}).get("text/html", ""))]
    assert len(pictures) == 1
    packed = re.search(r'data-watch="([^"]+)"', pictures[0])[1]
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    said = [float(re.search(r"regret ([\d.]+)\.$", run["say"][-1])[1]) for run in data["runs"]]
    np.testing.assert_allclose(said, runs.loc[middle, ["GNN-PE", "NN-PE"]], atol=0.0051)
