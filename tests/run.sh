#!/usr/bin/env bash
# The project's tests: sets .venv up if needed, then style, types and tests.
#
#   bash tests/run.sh            everything that ends within 20 minutes on two cores
#   bash tests/run.sh --all      also the long ones (interruptions, resumes)
#   bash tests/run.sh PATH …     only these, handed to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash requirements/setup_venv.sh
select=(-m "not long and not kills")
if [ "${1:-}" = --all ]; then
  select=(-m "long or not kills")
  shift
fi
if [ $# -eq 0 ]; then
  .venv/bin/ruff check .
  .venv/bin/ruff format --check .
  .venv/bin/mypy
fi
exec .venv/bin/python -m pytest "${select[@]}" "$@"
