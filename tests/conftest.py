"What several test files share."
import os
import shutil

import pytest
import torch

from gnn_bandits.project.site import BROWSERS

FLAGS = ("--no-sandbox --headless --disable-gpu --disable-background-networking "
         "--disable-component-update --disable-sync --no-first-run").split()


# With several processes each file goes to one of them: the longest first, so that none waits
LONGEST = ["test_site", "test_package", "test_claims", "test_sweep", "test_bandits", "test_cli"]


def pytest_collection_modifyitems(items):
    order = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="module")
def one_thread():
    "For files whose matrices are tiny: threads would only wait for each other."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def no_browser(reason):
    if os.environ.get("REQUIRE_BROWSER") == "1": pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    "A real browser, one for all files: a second one beside it would be refused."
    if os.environ.get("REQUIRE_BROWSER") == "0": pytest.skip("no browser is wanted here")
    try: from playwright.sync_api import sync_playwright
    except ImportError: no_browser("without playwright nothing was opened in a browser")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not chromium: no_browser("no chromium on the PATH, so nothing was opened in a browser")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# formulas have the colour of the text around them; the page "site" computes the colours of code
SKIPPED = ["mjx-container", ".highlight pre span"]


@pytest.fixture(scope="session")
def axe():
    "A function that lists what axe-core objects to on an open page, by rule"
    try: from axe_playwright_python import base
    except ImportError: no_browser("without axe-playwright-python nobody looked at accessibility")
    script = base.AXE_FILE_PATH.read_text(encoding="utf-8")
    def violations(tab):
        tab.evaluate(script + ";0")
        found = tab.evaluate("([rules, skipped]) => axe.run({exclude: skipped.map((s) => [s])}, "
                             "{runOnly: rules, resultTypes: ['violations']})", [RULES, SKIPPED])
        return {(v["id"], v["help"]): [node["html"][:120] for node in v["nodes"][:5]]
                for v in found["violations"]}
    return violations
