sqlite3 work.db 'PRAGMA journal_mode=WAL; CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER);
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO account SELECT i, 100 FROM n;'
# The reader keeps its connection open and sees the same total whenever it looks.
{ while [ ! -e done ]; do echo 'SELECT sum(amount) FROM account;'; sleep 0.1; done; } | sqlite3 -cmd '.timeout 20000' work.db | sort -u > totals &
for step in $(seq 60); do
  for number in $(seq 40); do
    echo "BEGIN IMMEDIATE;
      UPDATE account SET amount = amount - 7 WHERE id % 97 = ($step * $number) % 97 AND id <= 19400;
      UPDATE account SET amount = amount + 7 WHERE id % 97 = ($step * $number + 13) % 97 AND id <= 19400;
      COMMIT;"
  done
  echo "SELECT $step, sum(amount * id) FROM account;"
done | stdbuf -oL sqlite3 -cmd '.timeout 20000' work.db
touch done
wait
cat totals
sqlite3 work.db 'PRAGMA integrity_check;'
sqlite3 work.db .dump > dump.sql
