for round in $(seq 8); do
  for stressor in "cpu 2 --cpu-ops 200" "vm 1 --vm-bytes 16m --vm-ops 20000" "pipe 1 --pipe-ops 100000" "futex 1 --futex-ops 50000" \
    "switch 1 --switch-ops 50000"; do
    name=${stressor%% *}
    stress-ng --quiet --verify --$stressor && echo "$round $name passed" || exit 1
  done
done
