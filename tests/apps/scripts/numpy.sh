export OPENBLAS_NUM_THREADS=2
python3 - <<'EOF'
import numpy
import scipy.fft
import scipy.linalg

generator = numpy.random.default_rng(7)
matrix = generator.standard_normal((500, 500))
for step in range(60):
    q, r = scipy.linalg.qr(matrix)
    matrix = q.T @ matrix @ q + 0.01 * scipy.fft.fft2(matrix, workers=2).real / 500
    matrix /= abs(matrix).max()
    print(step, "%.9e" % numpy.linalg.norm(matrix), flush=True)
numpy.save("matrix.npy", matrix)
EOF
