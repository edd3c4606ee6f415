export TMPDIR=$PWD
mkfifo numbers
for round in $(seq 30); do
  seq $((round * 60000)) | awk '{ sum = (sum * 31 + $1) % 1000003; print sum, $1 }' |
    perl -ne '($sum, $number) = split; print $sum ^ $number, "\n" if $sum % 3 == 0' | sort -n -S 1M | tee numbers |
    awk '{ total += $1 * NR % 65537 } END { print NR, total }' &
  tail -n +1 < numbers | tail -n 3 > last
  wait
  cat last >> sorted.txt
done
