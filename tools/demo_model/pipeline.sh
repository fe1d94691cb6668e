#!/usr/bin/env bash
# The whole run on one GPU: main training, draft training, export, evaluation.
#
# usage: pipeline.sh WORK_DIR [MAIN_SECONDS] [DRAFT_SECONDS] [TOTAL_SECONDS]
#
# WORK_DIR must hold tokenizer.json (build_tokenizer.py). The draft compiles while the main model trains and then waits for
# it. Evaluation is cut when TOTAL_SECONDS are over.
set -euo pipefail
work=$(realpath "$1")
main_seconds=${2:-850}
draft_seconds=${3:-240}
total_seconds=${4:-900}
tokenizer=$work/tokenizer.json
cd "$(dirname "${BASH_SOURCE[0]}")"
rm -f "$work/main.pt"

# A step that can't be captured as a CUDA graph runs without one.
with_or_without_graph() { "$@" --graph || "$@"; }

with_or_without_graph python3 dspark.py --tokenizer "$tokenizer" --main "$work/main.pt" --out "$work" \
    --seconds "$draft_seconds" --wait >"$work/draft.out" 2>&1 &
draft=$!
with_or_without_graph python3 train.py --tokenizer "$tokenizer" --out "$work" \
    --seconds "$main_seconds" --tokens 16384 >"$work/main.out" 2>&1
wait "$draft"
echo "trained after ${SECONDS} s"
python3 export.py --main "$work/main.pt" --draft "$work/draft.pt" --tokenizer "$tokenizer" --out "$work/checkpoint"
cp "$tokenizer" "$work/checkpoint/"
echo "exported after ${SECONDS} s"
timeout $((total_seconds - SECONDS)) python3 evaluate.py --model "$work/checkpoint" --main "$work/main.pt" \
    --out "$work/evaluation" --share 0.8 || [ $? -eq 124 ]
echo "done after ${SECONDS} s"
