#!/bin/sh
# Runs a program that was built for aarch64 on another processor, together with everything it starts: the kernel hands
# aarch64 programs to qemu. The registration, and the libraries laid over /usr/lib, are only seen in a namespace of this
# script (Linux 6.7 or newer), so that nothing on the machine changes.
set -eu
# shellcheck disable=SC2016  # the inner shell expands these
exec unshare --user --map-root-user --mount sh -c '
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    qemu=$(command -v qemu-aarch64-static)
    printf "%s" ":aarch64:M::$magic:$mask:$qemu:F" > /proc/sys/fs/binfmt_misc/register
    mount -t overlay libraries -o lowerdir=/usr/aarch64-linux-gnu/lib:/usr/lib /usr/lib
    exec "$@"
' run-aarch64 "$@"
