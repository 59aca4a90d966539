#!/usr/bin/env bash
# Every op's bench on this machine's GPU, one result file an op.
#   ./bench.sh FOLDER [seconds a row]
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: bench.sh FOLDER [seconds a row]}
failed=0
declare -A more=([gemm]="--chosen --sustained 1") # a hundred cases, most of them long for the lower rungs
for op in embed rmsnorm layernorm gemm gemm_grouped linear rope kv_write attn_prefill attn_decode attn_merge gated_act sample; do
  "$here/llmspeed" bench op --device cuda --op "$op" --seconds "${2:-0.1}" ${more[$op]:-} --profile --json "$folder/$op.json" || failed=1
done
exit $failed
