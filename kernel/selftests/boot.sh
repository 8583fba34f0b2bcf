#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What kernel/selftests/boot runs inside: selftest= of the kernel's command line says which boot this is. Answers on the
# second serial line.
exec > /dev/ttyS1 2>&1
unit=redis-server.service
drop_in=/etc/systemd/system/$unit.d/50-stillframe-fork.conf
load_line=/etc/modules-load.d/stillframe-async-fork.conf

# check WHAT CONDITION...: one line.
check() {
    what=$1
    shift
    if "$@"; then echo "@ PASS  boot/$boot: $what"; else echo "@ FAIL  boot/$boot: $what"; failed=1; fi
}
says() { # says TEXT COMMAND...: it does, whatever its exit code is
    text=$1
    shift
    said=$("$@" 2>&1)
    case $said in *"$text"*) return 0 ;; esac
    echo "$* says: $said"
    return 1
}
absent() { [ ! -e "$1" ]; }
opted_in() { grep -x 1 "/sys/fs/cgroup$(systemctl show -P ControlGroup $unit)/memory.async_fork"; }
forks_async() { sed -n 's/^forks_async[^0-9]*\([0-9]*\).*/\1/p' /proc/async_fork; }
more_forks() { [ "$(forks_async)" -gt "$1" ]; }
saves() {
    redis-cli debug populate 20000 key 1000
    redis-cli bgsave
    for _ in $(seq 120); do
        sleep 1
        redis-cli info persistence | grep -q rdb_bgsave_in_progress:0 && break
    done
    redis-cli info persistence | grep -q rdb_last_bgsave_status:ok
}

boot=$(sed 's/.*selftest=\([a-z]*\).*/\1/' /proc/cmdline)
case $boot in
first)
    check "the module is not loaded" absent /sys/module/async_fork
    check "enable --persistent" stillframe-fork enable --unit $unit --persistent
    check "a drop-in of the unit" [ -e $drop_in ]
    check "a line for systemd-modules-load" [ -e $load_line ]
    ;;
again)
    check "the module is loaded" [ -e /sys/module/async_fork ]
    check "the service runs" systemctl is-active $unit
    check "the service is opted in" opted_in
    before=$(forks_async)
    check "BGSAVE succeeds" saves
    check "its fork is the module's" more_forks "$before"
    check "the service restarts" systemctl restart $unit
    check "the restarted service is opted in" opted_in
    ;;
enforced)
    check "the module is refused" absent /sys/module/async_fork
    check "the service runs" systemctl is-active $unit
    check "BGSAVE succeeds" saves
    check "load says that the key is not trusted" says "Key was rejected by service" stillframe-fork load
    check "load says what to do" says "sign async_fork.ko with a key" stillframe-fork load
    check "disable" stillframe-fork disable --unit $unit
    check "no drop-in is left" absent $drop_in
    check "no line for systemd-modules-load is left" absent $load_line
    ;;
esac
[ -z "${failed:-}" ] || { systemctl --no-pager status $unit systemd-modules-load.service; dmesg | tail -n 20; }
echo "@ end"
