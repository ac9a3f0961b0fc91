"The program as a shell sees it: exit codes, one line for a mistake, Ctrl-C and resume."
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = "import sys; from gnn_bandits.cli import main; sys.exit(main())"
TINY = """
import gnn_bandits.figures as figures
from gnn_bandits.experiments import grid
from gnn_bandits.paper.datasets import DatasetSpec
def specs(quick, seeds, model):
    return grid(data=DatasetSpec(5, .2, 3, n=60), algorithm=["GNN-UCB", "NN-UCB"], model=model or "gntk", arms=20, T=150, seed=range(seeds or 3))
figures.FIGURES["tiny"] = figures.RunFigure(specs, figures.curve_table, figures.draw_performance)
"""
RUN = ["run", "--algorithm", "GNN-UCB", "--model", "gntk", "--data", "N5_p0.2_d10", "--graphs", "60", "--arms", "20", "--T", "60"]


def start(code, *argv, cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)       # even if the tests run in the background
    return subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env,
                            start_new_session=True, preexec_fn=default)


def program(*argv, cwd, code=PROGRAM):
    p = start(code, *argv, cwd=cwd)
    out, err = p.communicate()
    return p.returncode, out, err


def complains(result):
    code, out, err = result
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("gnn_bandits: "), result
    return err


def here(*argv, capsys):
    "In this process, which has imported everything already"
    from gnn_bandits.cli import main
    try: code = main(list(argv))
    except SystemExit as e: code = e.code
    return code, *capsys.readouterr()


def test_help_needs_no_torch(tmp_path):
    code = "import sys; from gnn_bandits.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    assert program(cwd=tmp_path, code=code)[0] == 0


@pytest.mark.parametrize("command", ["reproduce", "run", "ls", "show"])
def test_help_teaches(command, capsys):
    code, out, err = here(command, "--help", capsys=capsys)
    assert code == 0 and "examples:" in out and f"gnn_bandits {command}" in out and err == ""


def test_run_takes_every_option(capsys):
    from dataclasses import fields
    from gnn_bandits.bandits import Options
    out = here("run", "--help", capsys=capsys)[1]
    assert all(f"--{f.name} " in out for f in fields(Options))


def test_run_writes_a_run_and_a_picture(tmp_path, capsys):
    out = str(tmp_path/"runs")
    code, said, err = here(*RUN, "--lam", "0.02", "--beta", "2", "--horizon", "none", "--out", out, capsys=capsys)
    assert code == 0 and err == ""
    file, picture = (Path(line.removeprefix("wrote ")) for line in said.splitlines()[1:])
    assert picture.read_bytes()[:4] == b"\x89PNG" and file.exists()
    before = file.stat().st_mtime_ns
    assert here(*RUN, "--options", '{"lam": 0.02, "beta": 2}', "--out", out, capsys=capsys)[1] == said
    assert file.stat().st_mtime_ns == before
    assert "1 runs, 0 failed" in here("ls", out, capsys=capsys)[1] and file.stem in here("ls", out, "--long", capsys=capsys)[1]
    shown = here("show", out, file.stem[:5], capsys=capsys)[1]
    assert '"lam": 0.02' in shown and "regret of random arms" in shown and "torch" in shown
    file.write_bytes(file.read_bytes()[:-50])
    assert "damaged" in complains(here("ls", out, capsys=capsys))
    code, again, err = here(*RUN, "--lam", "0.02", "--beta", "2", "--out", out, capsys=capsys)
    assert (code, again) == (0, said) and "damaged" in err and err.count("\n") == 1


@pytest.mark.parametrize("argv", [["--algorithm", "UCB"], ["--model", "linear"], ["--data", "N7"], ["--T", "0"], ["--arms", "1000000"], ["--seed", "-1"], ["--lam", "0"],
                                  ["--lam", "x"], ["--width", "wide"], ["--beta", "none"], ["--preset", "mine"], ["--speed", "9"], ["--options", '{"speed": 9}'],
                                  ["--options", "[1]"], ["--spec", "none.json"], ["--noise", "loud"], ["--replace", "yes"]])
def test_bad_specs(argv, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complains(here("run", *argv, capsys=capsys))
    assert not list(tmp_path.iterdir())


def test_spec_files(tmp_path, capsys):
    from gnn_bandits.experiments import RunSpec
    from gnn_bandits.paper.datasets import DatasetSpec
    spec = json.loads(RunSpec(DatasetSpec(5, 0.2, 3, n=60), "NN-PE", "gntk", arms=20, T=20).to_json())
    file, out = tmp_path/"spec.json", str(tmp_path/"out")
    for bad in (spec | {"version": 2}, spec | {"algorithm": "UCB"}, spec | {"colour": 1}, {}, [], "x"):
        file.write_text(json.dumps(bad))
        said = complains(here("run", "--spec", str(file), "--out", out, capsys=capsys))
        assert not Path(out).exists() and ("upgrade gnn_bandits" in said) == (bad == spec | {"version": 2})
    file.write_text(json.dumps(spec, indent=2))
    assert here("run", "--spec", str(file), "--out", out, capsys=capsys)[0] == 0


def test_places_that_are_no_stores(tmp_path, capsys):
    (tmp_path/"file").write_text("mine")
    for argv in (["ls", "file"], ["ls", "none"], ["show", "none", "a"], [*RUN, "--out", "file"], ["reproduce", "--figure", "ntk", "--out", "file"],
                 [*RUN, "--out", "file/below"]):
        complains(here(*[a if a not in ("file", "none", "file/below") else str(tmp_path/a) for a in argv], capsys=capsys))
    assert [p.name for p in tmp_path.iterdir()] == ["file"] and (tmp_path/"file").read_text() == "mine"


def test_full_disk_is_one_line(tmp_path):
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); " + PROGRAM
    err = complains(program(*RUN, "--out", "full", cwd=tmp_path, code=code))
    assert "cannot write to full: File too large" in err
    assert not [p for p in (tmp_path/"full").rglob("*") if p.is_file() and p.parent.name in ("runs", "failed")]


def test_failed_runs_give_code_1_and_show_tells_why(tmp_path, capsys, monkeypatch):
    import gnn_bandits.experiments as experiments
    import gnn_bandits.figures as figures
    from gnn_bandits.paper.datasets import DatasetSpec
    specs = experiments.grid(data=DatasetSpec(5, 0.2, 3, n=60), algorithm=["GNN-UCB", "NN-UCB"], model="gntk", arms=20, T=20)
    monkeypatch.setitem(figures.FIGURES, "tiny", figures.RunFigure(lambda *a: specs, figures.curve_table, figures.draw_performance))
    honest = experiments.play
    monkeypatch.setattr(experiments, "play", lambda s, *a, **k: 1//0 if s.algorithm == "NN-UCB" else honest(s, *a, **k))
    argv = ["reproduce", "--figure", "tiny,ntk", "--jobs", "1", "--out", str(tmp_path)]
    code, out, err = here(*argv, capsys=capsys)
    assert code == 1 and f"gnn_bandits show {tmp_path}/store {specs[1].key}" in err and (tmp_path/"ntk.png").exists() and not (tmp_path/"tiny.png").exists()
    assert "1//0" in here("show", str(tmp_path/"store"), specs[1].key, capsys=capsys)[1]
    assert "1 runs, 1 failed" in here("ls", str(tmp_path/"store"), capsys=capsys)[1]
    monkeypatch.setattr(experiments, "play", honest)
    assert here(*argv, capsys=capsys)[0] == 0 and (tmp_path/"tiny.png").exists()


def test_ctrl_c_leaves_a_store_that_resumes(tmp_path, capsys, monkeypatch):
    argv = ["reproduce", "--figure", "tiny", "--seeds", "10", "--jobs", "2", "--out", "here"]
    p = start(TINY + PROGRAM, *argv, cwd=tmp_path)
    while len(list((tmp_path/"here/store/runs").glob("*.npz"))) < 3:
        assert p.poll() is None, p.communicate()
        time.sleep(0.02)
    os.killpg(p.pid, signal.SIGINT)                         # as a terminal does, to the workers too
    out, err = p.communicate()
    assert p.returncode == 130 and err.count("\n") == 1 and "of 20 runs are finished; resume with: gnn_bandits reproduce --figure tiny" in err, err
    import gnn_bandits.figures as figures
    monkeypatch.setattr(figures, "FIGURES", dict(figures.FIGURES))
    monkeypatch.chdir(tmp_path)
    exec(TINY, {})
    kept = len(list(Path("here/store/runs").glob("*.npz")))
    code, out, err = here(*err.split("gnn_bandits ")[-1].split(), capsys=capsys)
    assert code == 0 and out.startswith(f"{20 - kept} runs done, {kept} skipped, 0 failed"), (out, err)
    assert here(*argv[:-3], "1", "--out", "there", capsys=capsys)[0] == 0
    assert Path("here/tiny.csv").read_bytes() == Path("there/tiny.csv").read_bytes()


def test_no_scheduler(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    argv = ["reproduce", "--figure", "performance", "--quick", "--scheduler", "tcp://127.0.0.1:9"]
    assert "no Dask scheduler at tcp://127.0.0.1:9" in complains(here(*argv, capsys=capsys))
