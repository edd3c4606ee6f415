awk 'BEGIN { srand(5); for (i = 0; i < 1500000; i++) print i, int(rand() * 100000), i * i % 9973 }' > text
xz -7 -T2 --block-size=1MiB -k text &
while kill -0 $! 2> /dev/null; do echo "xz works"; sleep 0.5; done
wait $!
xz -t text.xz && cmp text <(xz -dc text.xz) && echo equal
