/* Hides AVX-512 and AMX from a program: loaded before it (LD_PRELOAD), it has the kernel raise a
   signal at each CPUID instruction and answers itself, with those bits gone. Libraries that choose
   their code by CPUID, as all do, then run what they have for a processor with AVX2. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

enum { LENGTH = 2 }; /* of CPUID, 0F A2 */

static struct sigaction others; /* what the program wants done at any other fault */

static long trap(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static void hide(unsigned leaf, unsigned part, unsigned r[4]) {
    if (leaf == 7 && part == 0) {
        r[1] &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        r[2] &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        r[3] &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7 && part == 1) {
        r[0] &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA */
        r[3] &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)); /* newer than AVX2, too */
    } else if (leaf == 0xD && part == 0) {
        r[0] &= ~(BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18)); /* the registers' state */
    } else if (leaf == 0x24 || leaf == 0x1D || leaf == 0x1E) {
        memset(r, 0, 4 * sizeof *r); /* AVX10 and AMX */
    }
}

static void at_fault(int number, siginfo_t *info, void *given) {
    greg_t *registers = ((ucontext_t *)given)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (info->si_code != SI_KERNEL || code[0] != 0x0F || code[1] != 0xA2) {
        sigaction(number, &others, NULL); /* it comes again, and is the program's */
        return;
    }
    unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX], r[4];
    trap(1);
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(part));
    trap(0);
    hide(leaf, part, r);
    registers[REG_RAX] = r[0];
    registers[REG_RBX] = r[1];
    registers[REG_RCX] = r[2];
    registers[REG_RDX] = r[3];
    registers[REG_RIP] += LENGTH;
}

/* A program that asks to be told of faults is told of all but ours. */
int sigaction(int number, const struct sigaction *wanted, struct sigaction *before) {
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (!real) real = dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV || (wanted && wanted->sa_sigaction == at_fault)) return real(number, wanted, before);
    if (before) *before = others;
    if (wanted) others = *wanted;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction ours = {.sa_sigaction = at_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &ours, NULL);
    if (trap(0)) {
        static const char words[] = "this processor or kernel does not let CPUID be answered for it\n";
        if (write(2, words, sizeof words - 1)) {}
        _exit(2);
    }
}
