"""The workflows of GitHub: whose code they run, what they may do, what the publishing job has."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT/".github"/"workflows").glob("*.y*ml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
COMMENT = re.compile(r"uses: *(\S+) +# (v\d+\.\d+\.\d+)$", re.M)
WRITES = {("docs.yaml", "deploy"): {"pages", "id-token"}, ("release.yaml", "publish"): {"id-token"}}
READS = {("reproduce.yaml", "quick"): {"contents", "actions"}} # Beyond the contents


@pytest.fixture(params=WORKFLOWS, ids=lambda p: p.name)
def workflow(request): return request.param


def jobs(path): return yaml.safe_load(path.read_text())["jobs"].items()


def test_there_are_workflows(): assert {p.name for p in WORKFLOWS} >= {"test.yaml", "release.yaml"}


def test_actions_are_pinned_by_commit_and_say_their_release(workflow):
    used = [s["uses"] for _, job in jobs(workflow) for s in job["steps"] if "uses" in s]
    assert used and all(PINNED.fullmatch(u) for u in used), used
    assert sorted(u for u, _ in COMMENT.findall(workflow.read_text())) == sorted(used)


def test_one_commit_for_one_action():
    found = {pair for p in WORKFLOWS for pair in COMMENT.findall(p.read_text())}
    assert len({use.partition("@")[0] for use, _ in found}) == len(found), sorted(found)


def test_each_job_may_do_only_what_it_needs(workflow):
    assert yaml.safe_load(workflow.read_text()).get("permissions") == {}
    for name, job in jobs(workflow):
        given, wanted = job.get("permissions"), WRITES.get((workflow.name, name), set())
        assert isinstance(given, dict), f"{name} has no permissions of its own"
        assert {k for k, v in given.items() if v != "read"} == wanted, name
        may = READS.get((workflow.name, name), {"contents"})
        assert {k for k, v in given.items() if v == "read"} <= may, name


def test_a_job_that_can_publish_installs_and_runs_nothing(workflow):
    for name, job in jobs(workflow):
        if (workflow.name, name) not in WRITES: continue
        assert not [s["run"] for s in job["steps"] if "run" in s], name
        uses = {s["uses"].partition("@")[0] for s in job["steps"]}
        assert uses <= {"actions/download-artifact", "actions/deploy-pages",
                        "pypa/gh-action-pypi-publish"}, uses
        assert job["needs"] == "build"


def test_no_password_stays_in_the_checkout(workflow):
    for _, job in jobs(workflow):
        for s in job["steps"]:
            if s.get("uses", "").startswith("actions/checkout@"):
                assert s["with"]["persist-credentials"] is False


def test_what_builds_the_release_has_exact_versions():
    build = dict(jobs(ROOT/".github"/"workflows"/"release.yaml"))["build"]
    lines = [line.strip() for s in build["steps"] for line in s.get("run", "").splitlines()]
    installs = [line for line in lines if "pip install" in line]
    assert installs and all("-c constraints.txt" in line for line in installs)
    assert all("--no-isolation" in line for line in lines if "-m build" in line)
    fixed = set(re.findall(r"^([\w.-]+)==", (ROOT/"constraints.txt").read_text(), re.M))
    named = [w for line in installs for w in line.split("constraints.txt", 1)[1].split()]
    needed = re.findall(r'"([\w-]+)[^"]*"', re.search(r"requires = \[(.*)\]",
                                                      (ROOT/"pyproject.toml").read_text())[1])
    assert set(needed) <= set(named) and set(named) - {"dist/*.whl"} <= fixed
    assert "cache" not in str([s.get("with") for s in build["steps"]])


def test_the_quick_reproduction_is_compared_every_month():
    text = (ROOT/".github"/"workflows"/"reproduce.yaml").read_text()
    said = yaml.safe_load(text)
    minute, hour, day, month, weekday = said[True]["schedule"][0]["cron"].split()   # `on` is true
    assert (month, weekday) == ("*", "*") and 1 <= int(day) <= 28
    runs = "\n".join(s.get("run", "") for s in said["jobs"]["quick"]["steps"])
    for part in ("make reproduce", "scripts/compare.py reproduction nbs/results/quick",
                 "codecheck.py --check", "It last agreed on", 'test "$agreed" = yes'):
        assert part in runs, part


def test_a_second_reader_of_workflows_finds_nothing():
    "zizmor knows ways in which workflows were attacked; it needs no network for this"
    zizmor = Path(sys.executable).with_name("zizmor")
    if not zizmor.exists(): pytest.skip("zizmor is not installed; it is in the extra `dev`")
    done = subprocess.run([zizmor, "--offline", "--quiet", "--no-progress", *WORKFLOWS],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
