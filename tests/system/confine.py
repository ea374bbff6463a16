# SPDX-License-Identifier: Apache-2.0
"""Runs a program with the confinement of a systemd unit that needs no service manager.

confine.py UNIT PROGRAM [ARGUMENT...]: filters of system calls and address families, no capabilities, no new privileges,
no writable and executable memory, a network of its own.  Uses libseccomp, as systemd does.
"""
import ctypes
import os
import socket
import subprocess
import sys

ALLOW, ERRNO_EPERM, EQUAL = 0x7fff0000, 0x00050001, 4
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, CLONE_NEWNET = 24, 38, 65, 0x40000000


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def expand(name):
    """The system calls of a set of systemd's, such as @system-service, or of a single name."""
    if not name.startswith("@"):
        return {name}
    command = ["systemd-analyze", "syscall-filter", name]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.strip() for line in text.splitlines() if line.startswith(" ")]
    return set().union(*(expand(line) for line in lines if not line.startswith("#")))


def settings(unit):
    """The settings of a unit and their values, in order."""
    with open(unit, encoding="utf-8") as file:
        return [line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#")]


def allowed(pairs):
    """The system calls that SystemCallFilter= allows."""
    calls = set(expand("@default"))
    for key, value in pairs:
        if key == "SystemCallFilter":
            names = set().union(*(expand(name) for name in value.lstrip("~").split()))
            calls = calls - names if value.startswith("~") else calls | names
    return calls


def filter_load(calls, families):
    """Loads a filter that refuses other calls with EPERM, and sockets of other families."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(ERRNO_EPERM)))
    for name in sorted(calls):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # not of this machine
            continue
        if name != "socket":
            assert seccomp.seccomp_rule_add_array(context, ALLOW, number, 0, None) == 0, name
            continue
        for family in families:
            comparison = Comparison(0, EQUAL, getattr(socket, family), 0)
            assert seccomp.seccomp_rule_add_array(context, ALLOW, number, 1, ctypes.byref(comparison)) == 0
    assert seccomp.seccomp_load(context) == 0


def main():
    """Confines this process and executes the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    pairs = settings(sys.argv[1])
    values = dict(pairs)
    calls = allowed(pairs)
    if "PAGED_TEST_GROUP" in os.environ:
        os.setgroups([int(os.environ["PAGED_TEST_GROUP"])])
    if values.get("PrivateNetwork") == "yes":
        libc.unshare(CLONE_NEWNET)  # needs privilege
    if values.get("CapabilityBoundingSet") == "":
        for capability in range(64):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if values.get("MemoryDenyWriteExecute") == "yes":
        libc.prctl(PR_SET_MDWE, 1, 0, 0, 0)  # Linux 6.3
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    filter_load(calls, values["RestrictAddressFamilies"].split())
    os.execv(sys.argv[2], sys.argv[2:])


main()
