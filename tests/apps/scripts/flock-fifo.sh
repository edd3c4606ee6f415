mkfifo requests answers
: > log.txt
(while read -r number; do
  flock log.txt -c "echo server $number >> log.txt"
  echo $((number * number)) || exit
done < requests > answers) &
exec 3> requests 4< answers 5>> lock
flock 5
(exec 6>> lock; flock 6; echo "the lock was given away after $(grep -c server log.txt) answers" > second) &
for number in $(seq 100); do
  echo $number >&3
  read -r answer <&4
  flock log.txt -c "echo client $answer >> log.txt"
  if flock -n lock true; then echo "the lock was lost"; fi
  echo "$number $answer"
  sleep 0.2
done
exec 3>&- 4<&-
flock -u 5
wait
cat second
