#!/usr/bin/env bash
# Install the Debian packages that the test hosts and the virtual environment need, with the word "guests" also those of the virtual
# machines, with "page" the browser that looks at reports; silent when all are there.
set -euo pipefail
: "${PYTHON:=python3}"

declare -A package=(
    [podman]=podman [crun]=crun [/usr/lib/podman/netavark]=netavark [/usr/lib/podman/aardvark-dns]=aardvark-dns
    [iptables]=iptables [newuidmap]=uidmap [mmdebstrap]=mmdebstrap [ssh]=openssh-client [git]=git [nsenter]=util-linux
    [python3]=python3 [patch]=patch [zstd]=zstd [lz4]=lz4 [gzip]=gzip [gpg]=gpg [gpg-agent]=gpg-agent [gpgv]=gpgv
)
[ "${1-}" != guests ] || package+=([qemu-system-x86_64]=qemu-system-x86 [qemu-img]=qemu-utils [mke2fs]=e2fsprogs)
[ "${1-}" != page ] || package+=([chromium]=chromium [chromedriver]=chromium-driver)
export PATH=$PATH:/usr/sbin:/sbin

say() { echo "tools: $*" >&2; exit 1; }
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null \
    || ! command -v "$PYTHON" > /dev/null \
    || say "$PYTHON is $("$PYTHON" --version 2>&1), ansible-core needs 3.11 or newer; use Debian 12 or 13, or name one: make PYTHON=python3.12"

missing=()
for program in "${!package[@]}"; do
    command -v "$program" > /dev/null || missing+=("${package[$program]}")
done
"$PYTHON" -c 'import ensurepip, venv' 2> /dev/null || missing+=(python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get > /dev/null || say "this machine lacks ${missing[*]} and has no apt-get; use Debian 12 or 13, or install them"
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || say "${missing[*]} must be installed as root; run this as root or install sudo"
    root=(sudo)
fi
room=$(df --output=avail -k /var/cache | tail -n 1)
[ "$room" -ge 1048576 ] || say "/var/cache has less than 1 GiB free; make room for ${missing[*]}"
echo "==> installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update > "$log" 2>&1 \
    || say "apt-get update failed: $(grep -m1 '^E:' "$log" || tail -n 1 "$log"); correct the machine's apt sources"
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" > "$log" 2>&1 \
    || say "apt-get install failed: $(grep -m1 '^E:' "$log" || tail -n 1 "$log")"
