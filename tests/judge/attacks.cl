/* Kernels that want out. On PoCL they are machine code, and ask the system themselves.
 *
 * `given` holds a path or a message, `out` what came of it. `kind` says which attack it is.
 */
#if defined(__x86_64__)
#define CHOOSE(intel, arm) intel
#else
#define CHOOSE(intel, arm) arm
#endif

long ask(long number, long a, long b, long c, long d, long e) {
    long result;
#if defined(__x86_64__)
    __asm__ volatile("movq %5, %%r10\n movq %6, %%r8\n xorl %%r9d, %%r9d\n syscall"
                     : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e)
                     : "rcx", "r8", "r9", "r10", "r11", "memory");
#else
    __asm__ volatile("mov x8, %1\n mov x0, %2\n mov x1, %3\n mov x2, %4\n mov x3, %5\n"
                     "mov x4, %6\n mov x5, xzr\n svc 0\n mov %0, x0"
                     : "=r"(result) : "r"(number), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x8", "memory");
#endif
    return result;
}

#define HERE (-100)
#define OPEN(path, flags) ask(CHOOSE(257, 56), HERE, (long)(path), flags, 0600, 0)
#define WRITE(file, data, size) ask(CHOOSE(1, 64), file, (long)(data), size, 0, 0)
#define CLOSE(file) ask(CHOOSE(3, 57), file, 0, 0, 0, 0)
#define GETPID() ask(CHOOSE(39, 172), 0, 0, 0, 0, 0)
#define GETPPID() ask(CHOOSE(110, 173), 0, 0, 0, 0, 0)
#define KILL(process, signal) ask(CHOOSE(62, 129), process, signal, 0, 0, 0)
#define CLONE(flags) ask(CHOOSE(56, 220), flags, 0, 0, 0, 0)
#define CREATE (01 | 0100)

__kernel void attack(__global char *given, __global long *out, int kind, int size) {
    switch (kind) {
    case 0: out[0] = 42; break;
    case 1: out[0] = OPEN(given, 0); break;                              /* read a file */
    case 2: out[0] = OPEN(given, CREATE); break;                         /* write one */
    case 3: {                                                            /* run a program */
        long arguments[2] = {(long)given, 0};
        out[0] = ask(CHOOSE(59, 221), (long)given, (long)arguments, 0, 0, 0);
        break;
    }
    case 4: out[0] = ask(CHOOSE(9, 222), 0, 1L << 38, 3, 0x22, -1); break; /* take 256 GiB */
    case 5:                                                              /* talk without end */
        for (int i = 0; i < size; ++i) WRITE(1, given, 4096);
        out[0] = 42;
        break;
    case 6: out[0] = ask(CHOOSE(41, 198), 2, 1, 0, 0, 0); break;         /* a socket */
    case 7: out[0] = CLONE(17); break;                                   /* fork */
    case 8: for (;;) if (CLONE(0x4111)) break; break;                    /* each child has a child */
    case 9: out[0] = KILL(GETPPID(), 9); break;
    case 10: for (;;) KILL(GETPID(), 6);                                 /* abort */
    case 11: *(volatile __global int *)8 = 1; break;
    case 12: for (volatile int i = 0;; i = 0) continue; break;
    case 13:                                                             /* forge answers */
        for (int file = 3; file < 4096; ++file) WRITE(file, given, size);
        break;
    case 14: {                                                           /* one giant file */
        long file = OPEN(given, CREATE);
        for (;;) WRITE(file, out, 4096);
    }
    case 15:                                                             /* many files */
        for (long i = 0;; ++i) {
            for (int digit = 0; digit < 8; ++digit) given[digit] = 'a' + ((i >> 3 * digit) & 7);
            long file = OPEN(given, CREATE);
            WRITE(file, out, size);
            CLOSE(file);
        }
    case 16:                                                             /* the stack */
        for (volatile __private int *p = (volatile __private int *)&size;; --p) *p = 1;
    }
}
