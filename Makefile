# make proof   the whole chain on the embedded data, ending with the path of its report
# make test    lint, types and tests
# Both make their environment first if there is none. Variables: PYTHON, RECIPE, TORCH.

ROOT := $(shell cd "$$(dirname "$(strip $(MAKEFILE_LIST))")" && pwd)
PYTHON ?= python3
RECIPE ?= tiny
BIN := .venv/bin
STAMP := .venv/installed

# Without a GPU this version (inside of pyproject.toml's range) comes first: named exactly, it may
# come as the small CPU build of a local wheel folder, where a range takes the large CUDA build.
TORCH ?= torch==2.13.0
ifeq ($(shell nvidia-smi -L >/dev/null 2>&1 && echo yes),yes)
WANTED := -e ".[demo,dev,gpu]"
else
WANTED := "$(TORCH)" -e ".[demo,dev]"
endif
TOO_OLD := Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME

.PHONY: proof test install clean

proof: install
	cd "$(ROOT)" && $(BIN)/shadow run $(RECIPE)

test: install
	cd "$(ROOT)" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	cd "$(ROOT)" && $(BIN)/mypy
	cd "$(ROOT)" && $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist loadfile -m "not gpu and not slow"

install:
	@cd "$(ROOT)" && if [ ! -f $(STAMP) ] || [ pyproject.toml -nt $(STAMP) ]; then \
	set -ex; \
	"$(PYTHON)" -c 'import sys; sys.exit("$(TOO_OLD)" if sys.version_info < (3, 11) else 0)'; \
	[ -f $(STAMP) ] || "$(PYTHON)" -m venv .venv; \
	$(BIN)/python -m pip install --quiet $(WANTED); \
	touch $(STAMP); \
	fi

clean:
	cd "$(ROOT)" && rm -rf .venv .shadow
