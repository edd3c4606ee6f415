export BC_LINE_LENGTH=0
bc -lq <<'EOF'
scale = 800
for (i = 1; i <= 40; i++) {
  x = l(i + 1) * a(1 / i) + e(-i)
  x
}
EOF
