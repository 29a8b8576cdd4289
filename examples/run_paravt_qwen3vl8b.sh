#!/usr/bin/env bash
# PARA-GRPO on Qwen3-VL-8B: one node of 8 × 80 GB, or several through Ray.
#
#   bash examples/run_paravt_qwen3vl8b.sh [key=value …]        arguments go to Hydra, last one wins
#   DRY_RUN=1 bash examples/run_paravt_qwen3vl8b.sh            compose, let verl validate, print; needs no GPU
#
# Several nodes: start Ray on each (`ray start --head`, `ray start --address=HEAD:6379`), then run this on the
# head with NNODES=4 RAY_ADDRESS=HEAD:6379. Every node needs this environment, the model, the videos and
# OUTPUT_DIR under the same paths.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NAME=$(basename "${BASH_SOURCE[0]}" .sh)
. "$ROOT/examples/hydra_value.sh"

# ---- yours to set -------------------------------------------------------------------------------------------
MODEL=${MODEL:-Qwen/Qwen3-VL-8B-Instruct}        # better: its cold start, see the README
TRAIN_FILES=${TRAIN_FILES:-data/rl-epoch0-00000.parquet}   # of `python -m data_prep rl`; several: [a,b],
VAL_FILES=${VAL_FILES:-data/val/rl-epoch0-00000.parquet}   # a list of Hydra's, with quotes of its own where needed
VIDEO_ROOT=${VIDEO_ROOT:-data}                   # folder that the rows' video paths are relative to
ARM=${ARM:-para_grpo}                            # a file of recipe/paravt/config: para_grpo, vanilla_grpo
OUTPUT_DIR=${OUTPUT_DIR:-outputs/$NAME$([ "$ARM" = para_grpo ] || echo "-$ARM")}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=${NNODES:-1}
RAY_ADDRESS=${RAY_ADDRESS:-local}                # an existing cluster's address for several nodes
DRY_RUN=${DRY_RUN:-0}
VERBOSE=${VERBOSE:-0}                            # 1: also show what else goes to OUTPUT_DIR/log.txt only
# -------------------------------------------------------------------------------------------------------------

mkdir -p -- "$OUTPUT_DIR" # Hydra would not make it through a link
# Not in the command below: what fails in an argument does not end the script.
model=$(hydra_path "$MODEL")
train_files=$(hydra_files "$TRAIN_FILES")
val_files=$(hydra_files "$VAL_FILES")
video_root=$(hydra_path "$VIDEO_ROOT")
output_dir=$(hydra_path "$OUTPUT_DIR")

bash "$ROOT/requirements/setup_venv.sh" $([ "$DRY_RUN" = 1 ] || echo gpu)
exec "$ROOT/.venv/bin/python" -m recipe.paravt.main --config-name "$ARM" \
  "actor_rollout_ref.model.path=$model" \
  "data.train_files=$train_files" \
  "data.val_files=$val_files" \
  "paravt.video_root=$video_root" \
  "paravt.output_dir=$output_dir" \
  "paravt.dry_run=$([ "$DRY_RUN" = 1 ] && echo true || echo false)" \
  "paravt.verbose=$([ "$VERBOSE" = 1 ] && echo true || echo false)" \
  "trainer.n_gpus_per_node=$GPUS_PER_NODE" \
  "trainer.nnodes=$NNODES" \
  "ray_kwargs.ray_init.address=$(hydra_value "$RAY_ADDRESS")" \
  "$@"
