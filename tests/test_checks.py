"The list of checks, and the checks under simulated processors."
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent


def script(name):
    where = importlib.util.spec_from_file_location(name, ROOT/f"scripts/{name}.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


def checks(tmp_path, *steps):
    "A fake command that notes each step, and fails on those whose name begins with `bad`"
    fake = tmp_path/"fake.py"
    fake.write_text("import sys\nname = sys.argv[1]\nopen('seen', 'a').write(name + '\\n')\n"
                    "sys.exit(3 if name.startswith('bad') else 0)\n")
    return subprocess.run([sys.executable, ROOT/"scripts/checks.py", "steps", sys.executable, fake,
                           "--", *steps], cwd=tmp_path, capture_output=True, text=True)


def test_a_failing_step_hides_no_other(tmp_path):
    run = checks(tmp_path, "one", "bad-two", "three", "bad-four", "five")
    assert (tmp_path/"seen").read_text().split() == "one bad-two three bad-four five".split()
    assert run.returncode == 1 and "2 of 5 checks failed" in run.stdout
    listed = run.stdout.partition("checks failed")[2]
    assert re.findall(r"(\S+) +\(code 3\)", listed) == ["bad-two", "bad-four"]


def test_all_is_well(tmp_path):
    run = checks(tmp_path, "one", "two")
    assert run.returncode == 0 and "all 2 checks passed" in run.stdout
    assert checks(tmp_path).returncode == 1                # no steps: a mistake, not a success


def test_a_command_that_changes_files_is_noticed(tmp_path):
    run = lambda code: subprocess.run([sys.executable, ROOT/"scripts/checks.py", "unchanged", "a",
                                       "--", sys.executable, "-c", code], cwd=tmp_path,
                                      capture_output=True, text=True)
    (tmp_path/"a").mkdir()
    (tmp_path/"a/x").write_text("1")
    assert run("open('a/x', 'w').write('1'); open('b', 'w')").returncode == 0
    again = run("open('a/x', 'w').write('2')")
    assert again.returncode == 1 and "a/x; commit what it wrote" in again.stderr


def test_make_test_runs_every_check_by_itself():
    plan = (ROOT/"Makefile").read_text()
    steps = re.search(r"^CHECKS = (.*)$", plan, re.M)[1].split()
    assert steps[0] == "lint" and {f"test-{s}" for s in ("notebooks", "pytest", "wheel",
                                                         "readme")} <= {*steps}
    for step in steps:                                     # no step waits for another one
        needs = re.search(rf"^{step}: *([^#\n]*)", plan, re.M)[1].split()
        assert not {*needs} & {*steps}, step


@pytest.fixture
def processors(tmp_path, monkeypatch):
    module = script("processors")
    monkeypatch.setattr(module, "WORK", tmp_path)
    monkeypatch.setattr(module, "machine", lambda: "a machine")
    monkeypatch.setattr(module, "source_hash", lambda: "source")
    monkeypatch.setattr(module, "probe", lambda env: dict(
        torch=env.get("ATEN_CPU_CAPABILITY", "avx2"), numba="own", openblas=["Haswell"],
        threads=env.get("OMP_NUM_THREADS", "2")))
    played = []
    def play(key, setting, quick):
        played.append(key)
        wrong = key == ("numba", "haswell")
        return dict(passed=9, failed=int(wrong), skipped=0, notebooks=3, notebooks_failed=0,
                    asks=70, asks_differ=0, minutes=1., note="test_x::test_y" if wrong else "")
    monkeypatch.setattr(module, "play", play)
    module.played = played
    return module


def test_one_factor_at_a_time_on_at_least_four_processors(processors):
    plan = processors.CONFIGURATIONS
    assert [s for f, s in plan if f == "numba"] == ["generic", "haswell", "skylake-avx512",
                                                    "znver4"]
    assert {("torch", "default"), ("torch", "avx2"), ("torch", "avx512"), ("threads", "1"),
            ("threads", "2"), ("openblas", "Nehalem")} <= {*plan}
    steers = dict(machine=set(), numba={"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}, mkl={"MKL_CBWR"},
                  torch={"ATEN_CPU_CAPABILITY"}, openblas={"OPENBLAS_CORETYPE"})
    for (factor, _), env in plan.items():
        if factor in steers: assert {*env} == steers[factor]


def test_what_is_finished_is_not_played_again(processors, tmp_path, capsys, monkeypatch):
    table = tmp_path/"t.csv"
    run = lambda *a: processors.main(["--table", str(table), *a])
    assert run("--only", "generic", "torch") == 0
    assert processors.played == [("numba", "generic"), ("torch", "default"), ("torch", "avx512")]
    rows = pd.read_csv(table, keep_default_na=False)
    assert "by itself" in rows[rows["setting"] == "avx2"]["note"].item()    # skipped by name
    assert run("--only", "generic", "haswell") == 1        # goes on, and says what failed
    assert processors.played[3:] == [("numba", "haswell")]
    assert "1 of 2 configurations failed" in capsys.readouterr().out
    monkeypatch.setattr(processors, "probe", lambda env: dict(numba="znver4"))
    assert run("--only", "znver4") == 0 and len(processors.played) == 4    # that of the machine
    run("--only", "generic", "--again")
    assert processors.played[4:] == [("numba", "generic")] and len(pd.read_csv(table)) == 6
    processors.source_hash = lambda: "another"
    assert run("--only", "generic") == 0 and len(processors.played) == 6
    assert len(pd.read_csv(table)) == 6                    # the row of the old source is gone


def test_what_cannot_be_had_is_skipped_by_name(processors, tmp_path):
    processors.probe = lambda env: ("not executable here (SIGILL)" if "NUMBA_CPU_NAME" in env
                                    else dict(torch="avx2", numba="own", openblas=[],
                                              threads="2"))
    assert processors.main(["--table", str(tmp_path/"t.csv"), "--only", "znver4", "avx512",
                            "Nehalem"]) == 0
    notes = pd.read_csv(tmp_path/"t.csv", keep_default_na=False).set_index("setting")["note"]
    assert "SIGILL" in notes["znver4"] and "torch says avx2" in notes["avx512"]
    assert "not to be had here" in notes["Nehalem"] and processors.played == []


def test_what_failed_is_read_from_the_reports(processors, tmp_path):
    "Under the names by which a person finds it"
    xml = """<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1">
        <testcase classname="tests.test_a" name="test_x"><failure>no</failure></testcase>
        <testcase classname="tests.test_a" name="test_y"><error>no</error></testcase>
        <testcase classname="tests.test_a" name="test_z"/></testsuite></testsuites>"""
    said = "Success.", "Failed On The Following Notebooks:\n====\n\t03_gntk.ipynb\n\t05_x.ipynb\n"
    def tee(command, env, log):
        log.with_suffix(".xml").write_text(xml)
        log.write_text(said[code])
        return code
    processors.tee = tee
    code, log = 1, tmp_path/"a.log"
    assert processors.run_tests({}, log, False) == (2, 2, 1, ["test_a::test_x", "test_a::test_y"])
    assert processors.run_notebooks({}, log)[1] == ["03_gntk", "05_x"]
    code = 0
    assert processors.run_notebooks({}, log)[1] == []


def test_unknown_configurations_are_refused(processors):
    with pytest.raises(SystemExit, match="unknown configuration z80; there are: .*generic"):
        processors.main(["--only", "z80"])


def test_the_quick_choice_is_one_other_processor(processors, tmp_path):
    assert processors.main(["--quick"]) == 0 and processors.played == [("all", "plainest")]
    assert (tmp_path/"quick.csv").exists()
    for name in processors.QUICK: assert (ROOT/f"tests/test_{name}.py").exists()


def test_a_configuration_changes_the_environment_and_nothing_else(processors, monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx512")    # of the caller: not of the run
    env = processors.environment(processors.CONFIGURATIONS["numba", "generic"], "cache")
    assert env["NUMBA_CPU_NAME"] == "generic" and env["NUMBA_CACHE_DIR"] == "cache"
    assert "ATEN_CPU_CAPABILITY" not in env and env["PATH"] == os.environ["PATH"]
