#!/usr/bin/env bash
# The whole road on two CPU cores: a tiny Qwen3-VL, videos with known answers, cold start, then PARA-GRPO with the
# same stack as on GPUs (verl, FSDP, a vLLM server, Ray, decord). About 12 minutes, and 3 more for the install.
#
#   bash examples/run_paravt_tiny_cpu.sh [key=value …]     arguments go to the RL step's Hydra, last one wins
#
# Run again after an interruption, it goes on where it stopped: finished stages are kept while their settings are the
# same, and RL resumes from the last checkpoint.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NAME=$(basename "${BASH_SOURCE[0]}" .sh)
. "$ROOT/examples/hydra_value.sh"

# ---- yours to set -------------------------------------------------------------------------------------------
STEPS=${STEPS:-22}                    # RL steps
ARM=${ARM:-para_grpo}                 # a file of recipe/paravt/config: para_grpo, vanilla_grpo
OUTPUT_DIR=${OUTPUT_DIR:-outputs/$NAME$([ "$ARM" = para_grpo ] || echo "-$ARM")}
SEED=${SEED:-0}
SFT_STEPS=${SFT_STEPS:-170}
FRAME_BUDGETS=${FRAME_BUDGETS:-4,8,16}   # published: 4,8,16,32,64; long prompts cost most of the time here
TRAIN_VIDEOS=${TRAIN_VIDEOS:-160}
VAL_VIDEOS=${VAL_VIDEOS:-8}
DRY_RUN=${DRY_RUN:-0}                 # 1: compose and validate the RL configuration, print it, stop
VERBOSE=${VERBOSE:-0}                 # 1: also show what else goes to OUTPUT_DIR/log.txt only
# -------------------------------------------------------------------------------------------------------------

export USER=${USER:-$(id -un 2>/dev/null || id -u)} # torch asks for a name, which `docker run --user 12345` has not
RAY_ADDRESS=local # the run has its own Ray, whatever the environment says
[[ $OUTPUT_DIR = /* ]] || OUTPUT_DIR=$PWD/$OUTPUT_DIR
mkdir -p "$OUTPUT_DIR"
plain_path "$OUTPUT_DIR"
OUTPUT_DIR=$REPLY
cd "$ROOT"
bash requirements/setup_venv.sh cpu
PYTHON=.venv/bin/python
DATA=$OUTPUT_DIR/data
MODEL=$OUTPUT_DIR/model
LOG=$OUTPUT_DIR/log.txt
COLD_START=$OUTPUT_DIR/sft/checkpoints/global_step_$SFT_STEPS/huggingface

say() { echo "[$NAME] $*" | tee -a "$LOG" >&2; }

# quiet COMMAND…: what it prints goes to the log, and is shown where it fails.
quiet() {
  local code=0
  if [ "$VERBOSE" = 1 ]; then
    "$@" 2>&1 | tee -a "$LOG" && return || code=$?
  else
    "$@" >>"$LOG" 2>&1 && return || code=$?
    tail -n 20 "$LOG" >&2
  fi
  say "failed; all that was printed is in $LOG"
  exit "$code"
}

# stage NAME SETTINGS COMMAND…: runs a stage once for the same settings; the mark is written only after it ended well.
stage() {
  local mark="$OUTPUT_DIR/.done-$1" settings=$2 started=$SECONDS
  if [ -f "$mark" ] && [ "$(cat "$mark")" = "$settings" ]; then
    say "$1: done before"
    return
  fi
  say "$1 starts"
  rm -f "$mark"
  "${@:3}"
  printf '%s' "$settings" >"$mark"
  say "$1 done in $((SECONDS - started)) s"
}

make_data() {
  rm -rf "$DATA"
  quiet $PYTHON -m data_prep synthetic --output "$DATA/train" --videos "$TRAIN_VIDEOS" --seed "$SEED" \
    --min-duration-seconds 30 --max-duration-seconds 60 --transcripts $((SFT_STEPS * 10)) \
    --frame-budgets "$FRAME_BUDGETS"
  quiet $PYTHON -m data_prep synthetic --output "$DATA/val" --videos "$VAL_VIDEOS" --seed $((SEED + 1000)) \
    --min-duration-seconds 30 --max-duration-seconds 60
  quiet $PYTHON -m data_prep rl --annotations "$DATA/train/annotations.jsonl" --output "$DATA/train/rl" \
    --frame-budgets "$FRAME_BUDGETS" --seed "$SEED" --model "$MODEL"
  quiet $PYTHON -m data_prep rl --annotations "$DATA/val/annotations.jsonl" --output "$DATA/val/rl" \
    --fixed-frame-budget "${FRAME_BUDGETS##*,}" --split val --model "$MODEL"
}

cold_start() {
  rm -rf "$OUTPUT_DIR/sft"
  # What was trained from another cold start would be gone on from.
  local old name
  old=$OUTPUT_DIR/before-$(date +%Y%m%d-%H%M%S)
  for name in checkpoints metrics.jsonl rollouts tensorboard; do
    if [ -e "$OUTPUT_DIR/$name" ]; then
      mkdir -p "$old"
      mv "$OUTPUT_DIR/$name" "$old/"
      say "$name of other settings is now in $old"
    fi
  done
  # The tiny vision tower starts from random weights, so here it is trained too; RL then leaves it alone. Two ranks of
  # one thread each are twice as fast as one of two threads.
  OMP_NUM_THREADS=1 $PYTHON -m torch.distributed.run --standalone --nproc-per-node 2 \
    -m recipe.paravt.training.sft device=cpu \
    "model.path=$(hydra_value "$MODEL")" "data.train_files=$(hydra_value "$DATA/train/sft-00000.parquet")" \
    "data.video_root=$(hydra_value "$DATA/train")" "output_dir=$(hydra_value "$OUTPUT_DIR/sft")" \
    "log_file=$(hydra_value "$LOG")" "verbose=$([ "$VERBOSE" = 1 ] && echo true || echo false)" \
    data.train_batch_size=16 data.micro_batch_size_per_gpu=2 data.max_length=4096 \
    model.override_config.freeze_vision_tower=false optim.lr=4.0e-3 optim.lr_warmup_steps=10 "optim.betas=[0.9,0.95]" \
    "trainer.total_training_steps=$SFT_STEPS" trainer.save_freq=-1
}

if [ "$DRY_RUN" != 1 ]; then
  exec 8>"$OUTPUT_DIR/.stages.lock"
  flock -n 8 || { say "another run makes the stages in $OUTPUT_DIR; waiting for it" && flock 8; }
  data_settings="$SEED $SFT_STEPS $FRAME_BUDGETS $TRAIN_VIDEOS $VAL_VIDEOS"
  stage tiny-model "$SEED" quiet $PYTHON -m recipe.paravt.tiny --output "$MODEL" --seed "$SEED"
  stage data "$data_settings" make_data
  stage cold-start "$data_settings" cold_start
  exec 8>&-
  say "reinforcement learning, $STEPS steps"
fi
exec $PYTHON -m recipe.paravt.main --config-name "$ARM" device=cpu \
  "actor_rollout_ref.model.path=$(hydra_value "$COLD_START")" \
  "data.train_files=$(hydra_value "$DATA/train/rl/rl-epoch0-00000.parquet")" \
  "data.val_files=$(hydra_value "$DATA/val/rl/rl-epoch0-00000.parquet")" \
  "paravt.video_root=$(hydra_value "$DATA/train")" "paravt.val_video_root=$(hydra_value "$DATA/val")" \
  "paravt.output_dir=$(hydra_value "$OUTPUT_DIR")" \
  "paravt.dry_run=$([ "$DRY_RUN" = 1 ] && echo true || echo false)" \
  "paravt.verbose=$([ "$VERBOSE" = 1 ] && echo true || echo false)" \
  paravt.max_turns=2 paravt.max_new_tokens=128 paravt.subagent.max_new_tokens=48 "paravt.sampling_seed=$SEED" \
  data.train_batch_size=4 data.dataloader_num_workers=0 data.max_prompt_length=2048 data.max_response_length=1024 \
  actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.max_model_len=4096 \
  actor_rollout_ref.actor.optim.lr=1.0e-4 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2 \
  "trainer.total_training_steps=$STEPS" trainer.total_epochs=100 trainer.save_freq=5 trainer.test_freq=-1 \
  "$@"
