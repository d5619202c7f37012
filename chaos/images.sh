#!/usr/bin/env bash
# Builds the test image from nothing but Debian's statically linked busybox. Needs an engine that answers; does nothing
# when the image is there (--force builds it anew).
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1-} == --force ]] || ! docker image inspect "$TEST_IMAGE" >/dev/null 2>&1 || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/rootfs/bin" "$work/rootfs/etc" "$work/rootfs/www"
mkdir -m 1777 "$work/rootfs/tmp"

# The installed busybox when it is a static one; else the package, unpacked here and never installed.
if [[ -x /bin/busybox ]] && ! ldd /bin/busybox >/dev/null 2>&1; then
    cp /bin/busybox "$work/rootfs/bin/busybox"
else
    (cd "$work" && apt-get download busybox-static >/dev/null 2>&1) ||
        { as_root apt-get update >/dev/null 2>&1 && (cd "$work" && apt-get download busybox-static >/dev/null); } ||
        fail "the Debian package busybox-static could not be fetched"
    dpkg-deb -x "$work"/busybox-static_*.deb "$work/package"
    cp "$(find "$work/package" -path '*/bin/busybox' -type f)" "$work/rootfs/bin/busybox"
fi
applets=$("$work/rootfs/bin/busybox" --list)
for applet in $applets; do
    [[ $applet == busybox ]] || ln -s busybox "$work/rootfs/bin/$applet"
done
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$work/rootfs/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$work/rootfs/etc/group"
printf 'quorate\n' >"$work/rootfs/www/index.html"

tar -C "$work/rootfs" --owner=0 --group=0 --numeric-owner -c . |
    docker import --change 'ENV PATH=/bin' --change 'CMD ["/bin/sh"]' - "$TEST_IMAGE" >/dev/null
say "built the image $TEST_IMAGE"
