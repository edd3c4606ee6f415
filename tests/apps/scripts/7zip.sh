awk 'BEGIN { srand(5); for (i = 0; i < 500000; i++) print i, int(rand() * 100000), i * i % 9973 }' > text
7z a -txz -mx=7 -mmt=2 -bd text.xz text > 7zip.log 2>&1 &
while kill -0 $! 2> /dev/null; do echo "7z works"; sleep 0.5; done
wait $! || { cat 7zip.log >&2; exit 1; }
cmp text <(7z x -so text.xz 2> /dev/null)
