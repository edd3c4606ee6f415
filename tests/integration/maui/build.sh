#!/bin/sh
# Build Maui 3.3 on the host of pbs_server, with the role's patch in /opt/maui: build.sh TARBALL PATCH [stock]
# With "stock" also without it, in /opt/maui-stock; both are run by the account maui.
set -eu
tarball=$1 patch=$2 stock=${3:-}
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc make autoconf patch > /dev/null
id maui > /dev/null 2>&1 || useradd -r -d /nonexistent maui
PATH=$PATH:/opt/torque/current/bin

build() {  # PREFIX
    rm -rf "/tmp/maui" && mkdir /tmp/maui && cd /tmp/maui
    tar -xf "$tarball" --strip-components=1
    [ "$1" = /opt/maui-stock ] || patch -p1 < "$patch"
    # Its configure and its list of definitions are too old for a new sed: "missing filename in r/R/w/W commands".
    autoreconf -fi > configure.log 2>&1
    CFLAGS="-O1 -std=gnu89 -fcommon -w" ./configure --with-pbs=/opt/torque/current --prefix="$1" --with-spooldir="$1/spool" \
        --with-machine="$(uname -n)" >> configure.log 2>&1
    sed -i -e '/^@ll_definitions@/{r include/Makefile.inc.pbs
d}' Makefile
    make > make.log 2>&1 || { tail -20 make.log; exit 1; }
    make install > install.log 2>&1
    chown -R maui "$1/spool"
}

[ -z "$stock" ] || build /opt/maui-stock
build /opt/maui
