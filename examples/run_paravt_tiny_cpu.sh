#!/usr/bin/env bash
# The whole road on two CPU cores: a tiny Qwen3-VL, videos with known answers, cold start, then PARA-GRPO with the
# same stack as on GPUs (verl, FSDP, a vLLM server, Ray, decord). About 12 minutes, and 3 more for the install.
#
#   bash examples/run_paravt_tiny_cpu.sh [key=value …]     arguments go to the RL step's Hydra, last one wins
#
# Run again after an interruption, it goes on where it stopped: finished stages are kept, RL resumes from the last
# checkpoint. STEPS sets the number of RL steps; OUTPUT_DIR where everything goes.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NAME=$(basename "${BASH_SOURCE[0]}" .sh)

# ---- yours to set -------------------------------------------------------------------------------------------
STEPS=${STEPS:-24}
OUTPUT_DIR=${OUTPUT_DIR:-outputs/$NAME}
ARM=${ARM:-para_grpo}                 # a file of recipe/paravt/config: para_grpo, vanilla_grpo
SEED=${SEED:-0}
SFT_STEPS=${SFT_STEPS:-120}
TRAIN_VIDEOS=${TRAIN_VIDEOS:-160}
VAL_VIDEOS=${VAL_VIDEOS:-8}
DRY_RUN=${DRY_RUN:-0}                 # 1: compose and validate the RL configuration, print it, stop
# -------------------------------------------------------------------------------------------------------------

mkdir -p "$OUTPUT_DIR"
OUTPUT_DIR=$(cd "$OUTPUT_DIR" && pwd)
cd "$ROOT"
bash requirements/setup_venv.sh cpu
PYTHON=.venv/bin/python
DATA=$OUTPUT_DIR/data
MODEL=$OUTPUT_DIR/model
COLD_START=$OUTPUT_DIR/sft/checkpoints/global_step_$SFT_STEPS/huggingface

# stage NAME COMMAND…: runs a stage once; the mark is written only after it ended well.
stage() {
  local name=$1
  shift
  if [ -f "$OUTPUT_DIR/.done-$name" ]; then return; fi
  echo "[$NAME] $name" >&2
  "$@"
  touch "$OUTPUT_DIR/.done-$name"
}

make_data() {
  rm -rf "$DATA"
  $PYTHON -m data_prep synthetic --output "$DATA/train" --videos "$TRAIN_VIDEOS" --seed "$SEED" \
    --min-duration-seconds 30 --max-duration-seconds 60 --transcripts $((SFT_STEPS * 7))
  $PYTHON -m data_prep synthetic --output "$DATA/val" --videos "$VAL_VIDEOS" --seed $((SEED + 1000)) \
    --min-duration-seconds 30 --max-duration-seconds 60
  $PYTHON -m data_prep rl --annotations "$DATA/train/annotations.jsonl" --output "$DATA/train/rl" \
    --frame-budgets 4,8,16,32,64 --seed "$SEED" --model "$MODEL"
  $PYTHON -m data_prep rl --annotations "$DATA/val/annotations.jsonl" --output "$DATA/val/rl" \
    --fixed-frame-budget 64 --split val --model "$MODEL"
}

cold_start() {
  # One process; the port only has to be free.
  $PYTHON -m torch.distributed.run --standalone --nproc-per-node 1 -m recipe.paravt.sft device=cpu \
    "model.path=$MODEL" "data.train_files=$DATA/train/sft-00000.parquet" "data.video_root=$DATA/train" \
    "output_dir=$OUTPUT_DIR/sft" data.train_batch_size=16 data.micro_batch_size_per_gpu=2 data.max_length=4096 \
    optim.lr=2.0e-3 "trainer.total_training_steps=$SFT_STEPS" trainer.save_freq=-1
}

if [ "$DRY_RUN" != 1 ]; then
  stage tiny-model $PYTHON -m recipe.paravt.tiny_model --output "$MODEL" --seed "$SEED"
  stage data make_data
  stage cold-start cold_start
  echo "[$NAME] reinforcement learning, $STEPS steps" >&2
fi
exec $PYTHON -m recipe.paravt.main --config-name "$ARM" device=cpu \
  "actor_rollout_ref.model.path=$COLD_START" \
  "data.train_files=$DATA/train/rl/rl-epoch0-00000.parquet" \
  "data.val_files=$DATA/val/rl/rl-epoch0-00000.parquet" \
  "paravt.video_root=$DATA/train" "paravt.val_video_root=$DATA/val" \
  "paravt.output_dir=$OUTPUT_DIR" \
  "paravt.dry_run=$([ "$DRY_RUN" = 1 ] && echo true || echo false)" \
  paravt.max_turns=2 paravt.max_new_tokens=128 paravt.subagent.max_new_tokens=48 \
  data.train_batch_size=4 data.dataloader_num_workers=0 data.max_prompt_length=2048 data.max_response_length=1024 \
  actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.max_model_len=4096 \
  actor_rollout_ref.actor.optim.lr=1.0e-4 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2 \
  "trainer.total_training_steps=$STEPS" trainer.total_epochs=100 trainer.save_freq=8 trainer.test_freq=-1 \
  "$@"
