"""System calls by name, as x86-64 and as aarch64 number them; -1 where a CPU has no such call.

Kernels that are machine code may ask for whatever is `ALLOWED`. Whoever asks for what is `TOLD`
wants out: the judge hears of it by name. `JUDGED` calls depend on their arguments. A worker that
drives a GPU has no code of the kernel's in it: it may have what is `DRIVER`, too. Everything else
is refused without a word, as if the system did not permit it.
"""

from __future__ import annotations

import platform

Table = dict[str, tuple[int, int]]

ALLOWED: Table = {
    "access": (21, -1), "arch_prctl": (158, -1), "brk": (12, 214), "capget": (125, 90),
    "chdir": (80, 49), "clock_getres": (229, 114), "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115), "close": (3, 57), "close_range": (436, 436),
    "copy_file_range": (326, 285), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_pwait": (281, 22),
    "epoll_wait": (232, -1), "eventfd2": (290, 19), "execve": (59, 221), "exit": (60, 93),
    "exit_group": (231, 94), "faccessat": (269, 48), "faccessat2": (439, 439),
    "fadvise64": (221, 223), "fallocate": (285, 47), "fdatasync": (75, 83), "flock": (73, 32),
    "fstat": (5, 80), "fstatfs": (138, 44), "fsync": (74, 82), "ftruncate": (77, 46),
    "futex": (202, 98), "get_robust_list": (274, 100), "getcpu": (309, 168), "getcwd": (79, 17),
    "getdents64": (217, 61), "getegid": (108, 177), "geteuid": (107, 175), "getgid": (104, 176),
    "get_mempolicy": (239, 236),
    "getpgid": (121, 155), "getpgrp": (111, -1), "getpid": (39, 172), "getppid": (110, 173),
    "getpriority": (140, 141), "getrandom": (318, 278), "getresgid": (120, 150),
    "getresuid": (118, 148), "getrlimit": (97, 163), "getrusage": (98, 165), "getsid": (124, 156),
    "gettid": (186, 178), "gettimeofday": (96, 169), "getuid": (102, 174), "lseek": (8, 62),
    "lstat": (6, -1), "madvise": (28, 233), "membarrier": (324, 283), "mincore": (27, 232),
    "mkdir": (83, -1), "mkdirat": (258, 34), "mlock": (149, 228), "mmap": (9, 222),
    "mprotect": (10, 226), "mremap": (25, 216), "msync": (26, 227), "munlock": (150, 229),
    "munmap": (11, 215), "nanosleep": (35, 101), "newfstatat": (262, 79), "open": (2, -1),
    "openat": (257, 56), "pipe": (22, -1), "pipe2": (293, 59), "poll": (7, -1), "ppoll": (271, 73),
    "pread64": (17, 67), "preadv": (295, 69), "pselect6": (270, 72), "pwrite64": (18, 68),
    "pwritev": (296, 70), "read": (0, 63), "readlink": (89, -1), "readlinkat": (267, 78),
    "readv": (19, 65), "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276),
    "restart_syscall": (219, 128), "rmdir": (84, -1), "rseq": (334, 293), "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_yield": (24, 124), "select": (23, -1), "sendmsg": (46, 211),
    "set_robust_list": (273, 99), "set_tid_address": (218, 96), "sigaltstack": (131, 132),
    "stat": (4, -1), "statfs": (137, 43), "statx": (332, 291), "sysinfo": (99, 179),
    "time": (201, -1), "times": (100, 153), "umask": (95, 166), "uname": (63, 160),
    "unlink": (87, -1), "unlinkat": (263, 35), "wait4": (61, 260), "waitid": (247, 95),
    "write": (1, 64), "writev": (20, 66),
}  # fmt: skip
TOLD: Table = {
    "accept": (43, 202), "accept4": (288, 242), "add_key": (248, 217), "adjtimex": (159, 171),
    "bind": (49, 200), "bpf": (321, 280), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "connect": (42, 203), "delete_module": (176, 106),
    "execveat": (322, 281), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fork": (57, -1), "fsopen": (430, 430), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "kexec_load": (246, 104),
    "keyctl": (250, 219), "landlock_add_rule": (445, 445), "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446), "listen": (50, 201), "memfd_create": (319, 279),
    "mknod": (133, -1), "mknodat": (259, 33), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "reboot": (169, 142), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "request_key": (249, 218), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "seccomp": (317, 277), "sendto": (44, 206), "setgid": (106, 144), "sethostname": (170, 161),
    "setns": (308, 268), "setpgid": (109, 154), "setregid": (114, 143), "setresgid": (119, 149),
    "setresuid": (117, 147), "setreuid": (113, 145), "setrlimit": (160, 164), "setsid": (112, 157),
    "settimeofday": (164, 170), "setuid": (105, 146), "shmat": (30, 196), "shmget": (29, 194),
    "socket": (41, 198), "socketpair": (53, 199), "swapon": (167, 224), "tkill": (200, 130),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vfork": (58, -1),
}  # fmt: skip
JUDGED: Table = {
    "clone": (56, 220), "clone3": (435, 435), "fcntl": (72, 25), "ioctl": (16, 29),
    "kill": (62, 129), "prctl": (157, 167), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "tgkill": (234, 131),
}  # fmt: skip
# What a GPU's driver needs besides: memory for two, a socket by which its processes find each other
# (of the machine's own kind, and to nobody outside), where memory lies, whose files are whose.
DRIVER: Table = {
    "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200), "chmod": (90, -1),
    "fchmod": (91, 52), "fchmodat": (268, 53), "getsockname": (51, 204), "utimensat": (280, 88),
    "getsockopt": (55, 209), "listen": (50, 201), "mbind": (237, 235), "memfd_create": (319, 279),
    "mlock2": (325, 284), "recvmsg": (47, 212), "sched_setscheduler": (144, 119),
    "set_mempolicy": (238, 237), "setsockopt": (54, 208), "socketpair": (53, 199),
}  # fmt: skip

# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64: a program may ask as another CPU would, and be
# understood otherwise.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def column() -> int | None:
    """Which of the numbers are this CPU's; None of a CPU that is not in the tables."""
    return {"x86_64": 0, "aarch64": 1}.get(platform.machine())


def numbers(table: Table) -> dict[int, str]:
    """This CPU's calls of a table: their names by number."""
    own = column()
    assert own is not None
    return {each[own]: name for name, each in table.items() if each[own] >= 0}
