# Every target creates .venv and installs its dependencies first: all extras.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo results docs test test-slow check bench format clean

demo: $(INSTALLED) ## how deep DQN and NoisyNet-DQN explore: table, figure, video, report; 3 minutes
	$(BIN)/python examples/demo.py

results: $(INSTALLED) ## every figure and table of docs/results.md from the data in results/, without training; a minute
	$(BIN)/python results/redraw.py

docs: $(INSTALLED) ## the documentation as a site in site/, without warnings
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: check ## formatting, lint, types and the default tests
	$(BIN)/python -m pytest -n 2

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test-slow: $(INSTALLED) ## the tests marked slow: every game, learning, exhaustive faults; hours
	$(BIN)/python -m pytest -m slow --timeout=3600

# SB3, PFRL, TIANSHOU, TORCHRL, JAX and AGILERL: Python interpreters that have these libraries; CLEANRL: a checkout.
# Without them the committed results are kept. BEFORE: a checkout of another version, which takes part. See benchmarks/README.md.
option = $(if $(2),--$(1) $(2))
bench: $(INSTALLED) ## every benchmark, one after the other; with peers: make bench SB3=… PFRL=… TIANSHOU=… TORCHRL=… JAX=…
	PYTHONPATH=. $(or $(PFRL),$(BIN)/python) benchmarks/layers.py
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/dqn.py $(call option,sb3,$(SB3)) $(call option,pfrl,$(PFRL)) \
		$(call option,tianshou,$(TIANSHOU)) $(call option,torchrl,$(TORCHRL)) $(call option,before,$(BEFORE))
	$(BIN)/python benchmarks/rainbow.py $(call option,pfrl,$(PFRL))
	$(BIN)/python benchmarks/minatar.py $(call option,sb3,$(SB3)) $(call option,jax,$(JAX)) $(call option,before,$(BEFORE))
	$(BIN)/python benchmarks/cartpole.py $(call option,sb3,$(SB3)) $(call option,jax,$(JAX)) $(call option,before,$(BEFORE))
	$(BIN)/python benchmarks/a3c.py $(call option,pfrl,$(PFRL)) $(call option,sb3,$(SB3)) $(call option,before,$(BEFORE))
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/audit_libraries.py $(call option,pfrl,$(PFRL)) $(call option,agilerl,$(AGILERL)) $(call option,cleanrl,$(CLEANRL))
	$(BIN)/python benchmarks/dashboard_load.py
	$(BIN)/python benchmarks/tables.py --write

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[atari,gym,minatar,kernels,report,video,tensorboard,ray,search,dashboard,wandb,trackio,mlflow,export,hub,sb3,tianshou,torchrl,docs,dev]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
