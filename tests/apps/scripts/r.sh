cat > program.R <<'EOF'
set.seed(11)
x <- matrix(rnorm(200 * 20), 200)
y <- x %*% (1:20) + rnorm(200)
kept <- list()
for (step in 1:40) {
  coefficients <- replicate(400, {
    rows <- sample(200, replace = TRUE)
    coef(lm(y[rows] ~ x[rows, ]))
  })
  kept[[step]] <- apply(coefficients, 1, sd)
  cat(step, format(sum(kept[[step]]), digits = 15), "\n")
  flush(stdout())
}
saveRDS(kept, "result.rds")
EOF
Rscript program.R
