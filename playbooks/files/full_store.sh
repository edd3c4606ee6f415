#!/bin/sh
# Has no free space where the images of a job are on this node, from when a round trip requests that by a file until it removes the file. Others see
# nothing of it: a small file system is mounted over that directory alone.
#   full_store.sh USER FILE STORE SECONDS
# The file has the directory's name. FILE.full answers it: an empty line, or why there is space. After the seconds all is as before, whatever became of
# the round trip.
set -u
user=$1 request=$2 store=$3 seconds=$4
deadline=$(($(date +%s) + seconds))
directory='' inside=''

as_user() { runuser -u "$user" -- /bin/sh -c "$@"; }

finish() {
  [ -z "$directory" ] || umount -c -l "$directory"
  [ -z "$inside" ] || kill "$inside"
  as_user 'rm -f "$0" "$0.full"' "$request"
}
trap finish EXIT
trap 'exit 0' TERM

# Mounts the file system, or says in $fault why not. The user's directory can be somewhere else a moment later, and where root is squashed only the
# user gets there: so a process of the user's enters it, and the file system is mounted where that process is.
fill() {
  fault=''
  case $name in .* | *[!A-Za-z0-9._-]*) fault="$name is no directory of a job's images"; return;; esac
  for parent in "$store" "$store/$user"; do
    inside=$(as_user 'cd "$0" 2> /dev/null && [ -O . ] || exit; sleep "$1" < /dev/null > /dev/null 2>&1 & echo $!' "$parent/$name" "$seconds")
    [ -z "$inside" ] || break
  done
  if [ -z "$inside" ] || [ "$(readlink "/proc/$inside/cwd")" != "$(cd -P "$parent" && pwd -P)/$name" ]; then
    fault="$user has no directory $name in $store on $(uname -n)"
  elif fault=$(LIBMOUNT_FORCE_MOUNT2=always mount -c -t tmpfs -o "size=64k,mode=700,uid=$(id -u "$user"),gid=$(id -g "$user")" \
      ckpt-torque-validate "/proc/$inside/cwd" 2>&1); then
    directory=$parent/$name
  fi
}

name=$(as_user 'until [ -s "$0" ]; do [ "$(date +%s)" -lt "$1" ] || exit; sleep 0.2; done; cat "$0"' "$request" "$deadline")
[ -n "$name" ] || exit 0
fill
as_user 'echo "$1" > "$0.full"; while [ -e "$0" ] && [ "$(date +%s)" -lt "$2" ]; do sleep 0.2; done' "$request" "$fault" "$deadline"
