#!/bin/sh
# Build a stock TORQUE 6.1.3 on the head and install it as somebody would by hand: build.sh TARBALL PREFIX HOME ARCHIVE
# The archive is what the nodes get.
set -eu
tarball=$1 prefix=$2 home=$3 archive=$4
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq g++ make autoconf2.69 automake libtool pkg-config flex bison groff-base libxml2-dev \
    zlib1g-dev libssl-dev libboost-dev > /dev/null
mkdir -p /root/torque && cd /root/torque
tar -xf "$tarball" --strip-components=1
# What today's autotools, libcrypto and compiler need.
sed -i '/AM_INIT_AUTOMAKE/s/ -Werror / /' configure.ac
autoreconf2.69 -fi > configure.log 2>&1
export ac_cv_lib_crypto_BN_init=yes
./configure --prefix="$prefix" --with-server-home="$home" --disable-gui --without-tcl --without-tk --disable-gcc-warnings --with-rcp=scp --enable-syslog \
    >> configure.log 2>&1
compiler="g++ -w -fpermissive -std=gnu++11"
make -j2 CC="$compiler" CXX="$compiler" > make.log 2>&1 || { tail -20 make.log; exit 1; }
make install CC="$compiler" CXX="$compiler" > install.log 2>&1
echo "$prefix/lib" > /etc/ld.so.conf.d/torque.conf
for unit in trqauthd pbs_server pbs_mom; do  # a container may not raise its limits
    sed -e "s,@PBS_HOME@,$home,; s,@sbindir@,$prefix/sbin,; /^Limit/d" contrib/systemd/$unit.service.in > /usr/lib/systemd/system/$unit.service
done
tar -cf "$archive" -C / "${prefix#/}" "${home#/}" etc/ld.so.conf.d/torque.conf usr/lib/systemd/system/pbs_mom.service \
    usr/lib/systemd/system/trqauthd.service
