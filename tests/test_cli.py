"The program as a shell sees it: exit codes, one line for a mistake, Ctrl-C and resume."
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from gnn_bandits.paper.algorithms import PaperOptions

ROOT = Path(__file__).parent.parent
PROGRAM = "import sys; from gnn_bandits.cli import main; sys.exit(main())"
TINY = """
import gnn_bandits.paper.figures as figures
from gnn_bandits.paper.experiments import grid
from gnn_bandits.paper.datasets import DatasetSpec
def specs(quick, seeds, model):
    return grid(data=DatasetSpec(5, .2, 3, n=60), algorithm=["GNN-UCB", "NN-UCB"],
                model=model or "gntk", arms=20, T=150, seed=range(seeds or 3))
figures.STAGES["tiny"] = figures.Stage(
    lambda plan, specs: figures.curve_table(plan.store, specs), (),
    lambda plan: specs(plan.quick, plan.seeds, plan.model), figures.draw_performance)
"""
SLOW_DISK = """
import time
from gnn_bandits.paper.store import Store
add = Store.add
def slowly(*args, **kw): time.sleep(0.3); return add(*args, **kw)
Store.add = slowly
"""
RUN = ["run", "--algorithm", "GNN-UCB", "--model", "gntk", "--data", "N5_p0.2_d10",
       "--graphs", "60", "--arms", "20", "--T", "60"]


def start(code, *argv, cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, cwd=cwd, env=env,
                            start_new_session=True, preexec_fn=default)


def program(*argv, cwd, code=PROGRAM):
    p = start(code, *argv, cwd=cwd)
    out, err = p.communicate()
    return p.returncode, out, err


def complains(result):
    code, out, err = result
    assert code == 2 and out == "" and err.count("\n") == 1, result
    assert err.startswith("gnn_bandits: "), result
    return err


def here(*argv, capsys):
    "In this process, which has imported everything already"
    from gnn_bandits.cli import main
    try: code = main(list(argv))
    except SystemExit as e: code = e.code
    return code, *capsys.readouterr()


def test_help_needs_no_torch(tmp_path):
    code = ("import sys; from gnn_bandits.cli import main; main(['--help']); "
            "assert 'torch' not in sys.modules")
    assert program(cwd=tmp_path, code=code)[0] == 0


@pytest.mark.parametrize("command", ["reproduce", "run", "ls", "show"])
def test_help_teaches(command, capsys):
    code, out, err = here(command, "--help", capsys=capsys)
    assert code == 0 and "examples:" in out and f"gnn_bandits {command}" in out and err == ""


def helped(*argv, capsys):
    "The help of a command without its line breaks"
    return " ".join(re.sub(r"-\n +", "-", here(*argv, "--help", capsys=capsys)[1]).split())


def test_run_takes_every_option(capsys):
    out = helped("run", capsys=capsys)
    assert all(f"--{f.name} " in out for f in fields(PaperOptions))


def test_help_tells_the_true_defaults(capsys):
    from gnn_bandits.bandits import ALGORITHMS
    from gnn_bandits.paper.algorithms import PRESETS, paper_options
    short = lambda v: f"{v:.4g}" if isinstance(v, float) else str(v)
    for name in ALGORITHMS:
        for preset in PRESETS:
            out = helped("run", "--algorithm", name, f"--preset={preset}", capsys=capsys)
            out = out.split("options of the algorithm:")[1].split("examples:")[0]
            own = paper_options(name, preset=preset)
            for f in fields(PaperOptions):
                told = out.split(f"--{f.name} ")[-1].split(" --")[0]
                assert f"({short(getattr(own, f.name))})" in told, (name, preset, f.name, told)
    out = helped("run", "--model", "gntk", capsys=capsys)
    lam = {a: paper_options(a, "gntk").lam for a in ALGORITHMS}
    assert f"{lam['GNN-PE']:g} for GNN-PE" in out and lam["GNN-PE"] != lam["NN-PE"]


def test_help_lists_the_choices(capsys):
    from gnn_bandits.bandits import ALGORITHMS
    from gnn_bandits.core import NOISES
    from gnn_bandits.paper.algorithms import CHOICES, MODELS, PRESETS
    from gnn_bandits.paper.figures import FIGURES
    from gnn_bandits.paper.datasets import DATASETS
    out = helped("run", capsys=capsys)
    for choices in (*CHOICES.values(), ALGORITHMS, MODELS, PRESETS, NOISES, DATASETS):
        assert f"[{', '.join(choices)}]" in out, choices
    out = helped("reproduce", capsys=capsys)
    assert f"[{', '.join(('all', *FIGURES))}]" in out and f"[{', '.join(MODELS)}]" in out


def test_words_may_be_joined_by_hyphens(tmp_path, capsys):
    one, two = (here(*RUN, f"--{a}", "3", f"--{b}", "0.1", "--out", str(tmp_path), capsys=capsys)
                for a, b in (("data_seed", "noise_std"), ("data-seed", "noise-std")))
    assert one == two and one[0] == 0


def test_run_writes_a_run_and_a_picture(tmp_path, capsys):
    out = str(tmp_path/"runs")
    options = "--lam", "0.02", "--beta", "2", "--horizon", "none"
    code, said, err = here(*RUN, *options, "--out", out, capsys=capsys)
    assert code == 0 and err == ""
    file, picture = (Path(line.removeprefix("wrote ")) for line in said.splitlines()[1:])
    assert picture.read_bytes()[:4] == b"\x89PNG" and file.exists()
    before = file.stat().st_mtime_ns
    same = "--options", '{"lam": 0.02, "beta": 2}'
    assert here(*RUN, *same, "--out", out, capsys=capsys)[1] == said
    assert file.stat().st_mtime_ns == before
    assert "1 runs, 0 failed" in here("ls", out, capsys=capsys)[1]
    assert file.stem in here("ls", out, "--long", capsys=capsys)[1]
    shown = here("show", out, file.stem[:5], capsys=capsys)[1]
    assert '"lam": 0.02' in shown and "regret of random arms" in shown and "torch" in shown
    file.write_bytes(file.read_bytes()[:-50])
    code, listed, err = here("ls", out, capsys=capsys)
    assert code == 0 and "damaged" in listed and listed.endswith("0 runs, 0 failed, 1 unreadable\n")
    assert "damaged" in complains(here("show", out, file.stem, capsys=capsys))
    code, again, err = here(*RUN, "--lam", "0.02", "--beta", "2", "--out", out, capsys=capsys)
    assert (code, again) == (0, said) and "damaged" in err and err.count("\n") == 1


def test_ls_does_not_mix_settings(tmp_path, capsys):
    out = str(tmp_path)
    for argv in (["--lam", "0.5"], ["--lam", "0.5", "--seed", "1"], ["--noise_std", "0.3"]):
        assert here(*RUN, *argv, "--out", out, capsys=capsys)[0] == 0
    code, listed, err = here("ls", out, capsys=capsys)
    head, columns, *rows, count = listed.splitlines()
    runs = columns.split().index("runs")
    assert sorted(r.split()[runs] for r in rows) == ["1", "2"] and count == "3 runs, 0 failed"
    assert columns.split()[:runs] == ["algorithm", "model", "lam", "noise_std"]
    assert "arms = 20" in head and "noise_std" not in head
    long = here("ls", out, "--long", capsys=capsys)[1].splitlines()
    assert len(long) == 6 and {"key", "seed", "lam"} <= set(long[1].split())


def test_bad_files_have_a_line_each(tmp_path, capsys):
    out = str(tmp_path)
    here(*RUN, "--out", out, capsys=capsys)
    good = here("ls", out, capsys=capsys)[1].splitlines()
    (tmp_path/"runs/0a.npz").write_bytes(b"PK")
    (tmp_path/"runs/0b.npz").write_bytes(next(tmp_path.glob("data/*.npz")).read_bytes())
    (tmp_path/"failed/0c.json").write_text("{\n\n")
    code, listed, err = here("ls", out, capsys=capsys)
    lines = listed.splitlines()
    assert code == 0 and err == "" and lines[:len(good) - 1] == good[:-1]
    for name, line in zip(("0a.npz", "0b.npz", "0c.json"), lines[len(good) - 1:]):
        assert line.startswith("unreadable") and name in line
    assert lines[-1] == "1 runs, 0 failed, 3 unreadable"
    for key in ("0a", "0b", "0c"):
        assert "damaged" in complains(here("show", out, key, capsys=capsys))


@pytest.mark.parametrize("line", [
    "--algorithm UCB", "--model linear", "--data N7", "--T 0", "--arms 1000000", "--seed -1",
    "--lam 0", "--lam x", "--uncertainty wide", "--ridge 3", "--beta none", "--preset mine",
    "--speed 9",
    '--options {"speed":9}', "--options [1]", "--spec none.json", "--noise loud", "--replace yes"])
def test_bad_specs(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complains(here("run", *line.split(), capsys=capsys))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", [
    "--graphs 100000000000", "--m 40000000", "--m 40000000 --model trained", "--T 1000000000000",
    "--graphs 10000000 --data N5_p0.2_d10 --arms 10000000",
    "--graphs 10000000 --data N5_p0.2_d10 --arms 10000000 --model gntk"])
def test_too_large_is_one_line_before_any_work(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    err = complains(here("run", *line.split(), capsys=capsys))
    assert "would take about" in err and "of memory" in err and not list(tmp_path.iterdir())


def test_a_failed_allocation_is_one_line(tmp_path, capsys, monkeypatch):
    import gnn_bandits.paper.experiments as experiments
    monkeypatch.chdir(tmp_path)
    for e in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")):
        def raises(*args, **kw): raise e
        monkeypatch.setattr(experiments, "run_spec", raises)
        assert "out of memory" in complains(here(*RUN, capsys=capsys))


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_bad_jobs(jobs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "jobs" in complains(here("reproduce", "--figure", "ntk", "--jobs", jobs, capsys=capsys))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short"])
def test_a_damaged_checkpoint_says_delete_it(content, tmp_path, capsys):
    from gnn_bandits.paper.store import Store
    out = str(tmp_path)
    said = here(*RUN, "--out", out, capsys=capsys)[1]
    file, = Store(out).files()
    checkpoint = tmp_path/"partial"/file.name
    file.unlink()
    checkpoint.write_bytes(content)
    err = complains(here(*RUN, "--out", out, capsys=capsys))
    assert f"delete {checkpoint}" in err and "damaged" in err and checkpoint.exists()
    checkpoint.unlink()
    assert here(*RUN, "--out", out, capsys=capsys)[:2] == (0, said)


def test_spec_files(tmp_path, capsys):
    from gnn_bandits.paper.experiments import SPEC_VERSION, RunSpec
    from gnn_bandits.paper.datasets import DatasetSpec
    data = DatasetSpec(5, 0.2, 3, n=60)
    spec = json.loads(RunSpec(data, "NN-PE", "gntk", arms=20, T=20).to_json())
    later = spec | {"version": SPEC_VERSION + 1}
    file, out = tmp_path/"spec.json", str(tmp_path/"out")
    for bad in (later, spec | {"algorithm": "UCB"}, spec | {"colour": 1}, {}, [], "x"):
        file.write_text(json.dumps(bad))
        said = complains(here("run", "--spec", str(file), "--out", out, capsys=capsys))
        assert not Path(out).exists() and ("upgrade gnn_bandits" in said) == (bad == later)
    file.write_text(json.dumps(spec, indent=2))
    assert here("run", "--spec", str(file), "--out", out, capsys=capsys)[0] == 0


def test_places_that_are_no_stores(tmp_path, capsys):
    (tmp_path/"file").write_text("mine")
    places = {a: str(tmp_path/a) for a in ("file", "none", "file/below")}
    for argv in (["ls", "file"], ["ls", "none"], ["show", "none", "a"], [*RUN, "--out", "file"],
                 ["reproduce", "--figure", "ntk", "--out", "file"], [*RUN, "--out", "file/below"]):
        complains(here(*[places.get(a, a) for a in argv], capsys=capsys))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path/"file").read_text() == "mine"


def test_full_disk_is_one_line(tmp_path):
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); " + PROGRAM
    err = complains(program(*RUN, "--out", "full", cwd=tmp_path, code=code))
    assert "cannot write to full: File too large" in err
    assert not [*(tmp_path/"full").glob("runs/*"), *(tmp_path/"full").glob("failed/*")]


def test_failed_runs_give_code_1_and_show_tells_why(tmp_path, capsys, monkeypatch):
    import gnn_bandits.paper.figures as figures
    from gnn_bandits.paper.experiments import RunSpec, grid
    from gnn_bandits.paper.datasets import DatasetSpec
    specs = grid(data=DatasetSpec(5, 0.2, 3, n=60), algorithm=["GNN-UCB", "NN-UCB"], model="gntk",
                 arms=20, T=20)
    tiny = figures.Stage(lambda plan, specs: figures.curve_table(plan.store, specs), (),
                         lambda plan: specs, figures.draw_performance)
    monkeypatch.setitem(figures.STAGES, "tiny", tiny)
    honest = RunSpec.play
    def play(s, *args): return 1//0 if s.algorithm == "NN-UCB" else honest(s, *args)
    monkeypatch.setattr(RunSpec, "play", play)
    argv = ["reproduce", "--figure", "tiny,ntk", "--jobs", "1", "--out", str(tmp_path)]
    code, out, err = here(*argv, capsys=capsys)
    assert code == 1 and f"gnn_bandits show {tmp_path}/store {specs[1].key}" in err
    assert (tmp_path/"ntk.png").exists() and not (tmp_path/"tiny.png").exists()
    assert "1//0" in here("show", str(tmp_path/"store"), specs[1].key, capsys=capsys)[1]
    assert "1 runs, 1 failed" in here("ls", str(tmp_path/"store"), capsys=capsys)[1]
    monkeypatch.setattr(RunSpec, "play", honest)
    assert here(*argv, capsys=capsys)[0] == 0 and (tmp_path/"tiny.png").exists()


def test_ctrl_c_leaves_a_store_that_resumes(tmp_path, capsys, monkeypatch):
    argv = ["reproduce", "--figure", "tiny", "--seeds", "10", "--jobs", "2", "--out", "here"]
    p = start(TINY + SLOW_DISK + PROGRAM, *argv, cwd=tmp_path)
    while len(list((tmp_path/"here/store/runs").glob("*.npz"))) < 3:
        assert p.poll() is None, p.communicate()
        time.sleep(0.02)
    os.killpg(p.pid, signal.SIGINT)                         # as a terminal does, to the workers too
    out, err = p.communicate()
    assert p.returncode == 130 and err.count("\n") == 1, err
    assert "of 20 runs are finished; resume with: gnn_bandits reproduce --figure tiny" in err, err
    import gnn_bandits.paper.figures as figures
    monkeypatch.setattr(figures, "STAGES", dict(figures.STAGES))
    monkeypatch.chdir(tmp_path)
    exec(TINY, {})
    kept = len(list(Path("here/store/runs").glob("*.npz")))
    code, out, err = here(*err.split("gnn_bandits ")[-1].split(), capsys=capsys)
    done = f"{20 - kept} runs done, {kept} skipped, 0 failed"
    assert code == 0 and out.startswith("about ") and done in out, (out, err)
    assert here(*argv[:-3], "1", "--out", "there", capsys=capsys)[0] == 0
    assert Path("here/tiny.csv").read_bytes() == Path("there/tiny.csv").read_bytes()


STUDY = """
import gnn_bandits.paper.population as population
population.BETAS, population.LAMS = (0., 1.), (0.1,)
"""


def test_studies_resume_and_say_how_long(tmp_path, capsys, monkeypatch):
    "Stopped during a study: finished cells are kept, and the same command goes on"
    argv = "reproduce --quick --figure performance,size --seeds 90 --out here".split()
    p = start(STUDY + PROGRAM, *argv, cwd=tmp_path)
    while len(list((tmp_path/"here/store/cells").glob("paper-*.npz"))) < 2:
        assert p.poll() is None, p.communicate()
        time.sleep(0.02)
    os.killpg(p.pid, signal.SIGINT)
    out, err = p.communicate()
    assert p.returncode == 130 and err.count("\n") == 1 and out.startswith("about "), (out, err)
    assert "of 60 cells are finished; resume with: gnn_bandits reproduce --quick" in err, err
    import gnn_bandits.paper.population as population
    for name, v in dict(BETAS=(0., 1.), LAMS=(0.1,)).items():
        monkeypatch.setattr(population, name, v)
    monkeypatch.chdir(tmp_path)
    kept = {p: p.stat().st_mtime_ns for p in Path("here/store/cells").glob("*.npz")}
    code, out, err = here(*argv, capsys=capsys)
    said = [line for line in out.splitlines()[1:] if " cells done, " not in line]
    assert code == 0 and said == [
        f"wrote here/{name}" for name in ("performance.png", "performance.csv", "size.png",
                                          "size.csv")], (out, err)
    assert all(p.stat().st_mtime_ns == v for p, v in kept.items())
    before = Path("here/size.csv").read_bytes()
    code, out, err = here(*argv, capsys=capsys)                # nothing is missing any more
    assert code == 0 and "about" not in out and Path("here/size.csv").read_bytes() == before
    assert len(list(Path("here/store/cells").glob("paper-*.npz"))) == 60   # 90 runs, 6 a cell


def test_a_model_plays_single_runs(tmp_path, capsys):
    argv = ["reproduce", "--quick", "--figure", "size,density", "--model", "gntk", "--seeds", "1",
            "--out", str(tmp_path)]
    code, out, err = here(*argv, capsys=capsys)
    assert code == 0 and "16 runs done, 0 skipped, 0 failed" in out, (out, err)
    assert not (tmp_path/"store/cells").exists()
    assert (tmp_path/"size.csv").read_text().count("gntk") > 100
    said = complains(here("reproduce", "--figure", "hyper", "--model", "gntk", "--out",
                          str(tmp_path/"x"), capsys=capsys))
    assert "hyper takes no model; those that do: performance, benchmark" in said
    assert not (tmp_path/"x").exists()


def test_ctrl_c_while_workers_start_is_one_line(tmp_path):
    argv = ["reproduce", "--figure", "tiny", "--seeds", "10", "--jobs", "2", "--out", "here"]
    p = start(TINY + PROGRAM, *argv, cwd=tmp_path)
    children = Path(f"/proc/{p.pid}/task/{p.pid}/children")
    if not children.exists(): pytest.skip("needs the kernel's list of children")
    while len(children.read_text().split()) < 3:            # two workers and loky's tracker
        assert p.poll() is None, p.communicate()
        time.sleep(0.005)
    os.killpg(p.pid, signal.SIGINT)
    out, err = p.communicate()
    assert p.returncode == 130 and err.count("\n") == 1 and "interrupted" in err, err


@pytest.mark.parametrize("module", ["torch", "numpy", "gnn_bandits.bandits", "fastcore.docments"])
def test_ctrl_c_during_import_is_one_line(module, tmp_path):
    code = f"""
import os, signal, sys
class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
""" + PROGRAM
    code, out, err = program(*RUN, cwd=tmp_path, code=code)
    assert (code, out, err) == (130, "", "gnn_bandits: run: interrupted\n")


def test_the_command_itself_imports_little(tmp_path):
    code = ("import sys; before = set(sys.modules); import gnn_bandits.cli; "
            "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
            "print(*new - {'gnn_bandits'} - sys.stdlib_module_names)")
    assert program(cwd=tmp_path, code=code) == (0, "\n", "")


def test_no_scheduler(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    argv = ["reproduce", "--figure", "performance", "--quick", "--scheduler", "tcp://127.0.0.1:9"]
    assert "no Dask scheduler at tcp://127.0.0.1:9" in complains(here(*argv, capsys=capsys))
