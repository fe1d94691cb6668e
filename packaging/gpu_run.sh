#!/usr/bin/env bash
# Runs what `./dev gpu` packed, on a GPU host that has nothing but a driver: stage tests (gpu_*), then benches (bench_*) and, when asked
# for by name, the laboratory (lab_*). One JSON line a figure and one a program ("passed" 1 or 0; "skipped" 1 where no GPU is that it
# can run on); messages go to standard error.
#
#   run [PROGRAM...]      without names: all tests and benches
set -u
cd "$(dirname "${BASH_SOURCE[0]}")"
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(gpu_* bench_*)
for name in "${names[@]}"; do
    command=("./$name")
    # Peers come with PyTorch, where the host has it; they are put beside our own figures of the same run.
    [[ $name != *.py ]] || command=(python3 -B "./$name" --json --stages ./bench_stages)
    [ -x "./$name" ] || [[ $name == *.py && -f $name ]] || { echo "run: no program called $name" >&2; exit 2; }
    log=$(mktemp)
    passed=1
    metric=passed
    # A test that hangs must not hold the host: half an hour is far more than all of them take.
    timeout 1800 "${command[@]}" >"$log" 2>&1 || { passed=0; failed=1; }
    ! grep -q '^skipped:' "$log" || metric=skipped
    grep '^{' "$log"
    grep -v '^{' "$log" >&2
    rm -f "$log"
    printf '{"bench":"gpu_run","case":"%s","metric":"%s","value":%d,"unit":"bool","baseline":"none","ratio":%d}\n' "$name" $metric $passed $passed
done
exit $failed
