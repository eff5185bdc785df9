/* Hides AVX-512 and AMX from a program, which loads it twice. As its auditor (LD_AUDIT) it is shown
   each library before any code of it runs, and writes another instruction over every CPUID that the
   file in WITHOUT_AVX512 names there: INT 29h, which no program on Linux may execute and none has.
   As a library of the program's (LD_PRELOAD) it answers at the signal that comes of it, with those
   bits gone. Libraries that choose their code by CPUID, as all do, then run what they have for a
   processor with AVX2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

static const unsigned char CPUID[2] = {0x0F, 0xA2}, INT_29[2] = {0xCD, 0x29};
static struct sigaction others; /* what the program wants done at any other fault */

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
    if (info->si_code != SI_KERNEL || memcmp((void *)registers[REG_RIP], INT_29, sizeof INT_29)) {
        sigaction(number, &others, NULL); /* it comes again, and is the program's */
        return;
    }
    unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX], r[4];
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(part));
    hide(leaf, part, r);
    registers[REG_RAX] = r[0];
    registers[REG_RBX] = r[1];
    registers[REG_RCX] = r[2];
    registers[REG_RDX] = r[3];
    registers[REG_RIP] += sizeof INT_29;
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
}

static void replace(const char *library, unsigned char *at) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *start = (unsigned char *)((size_t)at & -page);
    size_t length = (size_t)(at + sizeof INT_29 - start);
    if (memcmp(at, CPUID, sizeof CPUID) || mprotect(start, length, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        fprintf(stderr, "%s: no CPUID to be written over at %p\n", library, (void *)at);
        _exit(2);
    }
    memcpy(at, INT_29, sizeof INT_29);
    mprotect(start, length, PROT_READ | PROT_EXEC);
}

unsigned la_version(unsigned version) { return version; }

/* The file has a line for each instruction: its address in the library, and the library. */
unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)space, (void)cookie;
    char *library = realpath(map->l_name, NULL), *line = NULL;
    FILE *file = library ? fopen(getenv("WITHOUT_AVX512"), "r") : NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        char *name;
        size_t at = strtoul(line, &name, 16);
        name[strcspn(name, "\n")] = 0;
        if (!strcmp(name + 1, library)) replace(library, (unsigned char *)map->l_addr + at);
    }
    if (file) fclose(file);
    free(line);
    free(library);
    return 0;
}
