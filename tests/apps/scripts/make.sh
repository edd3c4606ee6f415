for number in $(seq 60); do
  {
    echo "#include <stdio.h>"
    for part in $(seq 40); do
      echo "int value_${number}_$part(int x) { double y = x; for (int i = 0; i < $part; i++) y = y * 1.1 + $number; return (int)y % 1000; }"
    done
    echo "int value_$number(void) { int sum = 0;"
    for part in $(seq 40); do
      echo "sum += value_${number}_$part(sum);"
    done
    echo "return sum; }"
  } > part$number.c
done
{
  seq -f 'int value_%g(void);' 60
  echo '#include <stdio.h>'
  echo 'int main(void) { int sum = 0;'
  seq -f 'sum += value_%g();' 60
  echo 'printf("%d\n", sum); return 0; }'
} > main.c
cat > Makefile <<'EOF'
OBJECTS := $(patsubst %.c,%.o,$(wildcard part*.c))
program: main.o all.o
	gcc -o $@ $^
all.o: $(OBJECTS)
	ld -r -o $@ $(sort $^)
%.o: %.c
	gcc -O2 -c -o $@ $<
EOF
make -j2 && ./program
