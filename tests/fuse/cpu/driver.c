/* Runs a compiled network on a foreign CPU: images from one file, results into another.
 *
 *   driver TYPE IMAGES WEIGHTS OUT count pixels outputs scratch parts [units step]...
 *
 * TYPE is u8 or f32. Without phases, the images go through network_TYPE in unequal pieces; with them,
 * image by image through phase0_TYPE, phase1_TYPE, ..., each in `units` taken `step` at a time, the
 * last ones first, as if by threads of which one is late.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void entry(const void *images, float *out, const float *weights, float *scratch,
                   int64_t *ticks, int64_t first, int64_t last);

#define ENTRIES(X) X(network) X(phase0) X(phase1) X(phase2) X(phase3) X(phase4) X(phase5) X(phase6)
#define DECLARE(name) extern entry name##_u8 __attribute__((weak)), name##_f32 __attribute__((weak));
#define U8(name) name##_u8,
#define F32(name) name##_f32,
ENTRIES(DECLARE)
static entry *const u8_entries[] = {ENTRIES(U8)}, *const f32_entries[] = {ENTRIES(F32)};
#define MOST ((int)(sizeof u8_entries / sizeof *u8_entries) - 1)

static void *room(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) exit(3);
    memset(memory, 0xff, bytes); /* as floats: NaN */
    return memory;
}

static void *content(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(4);
    long size = ftell(file);
    rewind(file);
    void *memory = room(size);
    if (fread(memory, 1, size, file) != (size_t)size) exit(5);
    fclose(file);
    return memory;
}

int main(int count, char **words)
{
    if (count < 10) return 2;
    int bytes = strcmp(words[1], "u8") ? 4 : 1;
    entry *const *entries = bytes == 1 ? u8_entries : f32_entries;
    char *images = content(words[2]);
    float *weights = content(words[3]);
    int64_t all = atoll(words[5]), pixels = atoll(words[6]), outputs = atoll(words[7]);
    float *scratch = room(4 * atoll(words[8])), *out = room(4 * all * outputs);
    int64_t *ticks = calloc(atoll(words[9]), sizeof *ticks);
    int phases = (count - 10) / 2;
    if (phases > MOST) return 6;
    if (!phases)
        for (int64_t first = 0, piece = 1; first < all; first += piece++) {
            int64_t last = first + piece < all ? first + piece : all;
            entries[0](images, out, weights, scratch, ticks, first, last);
        }
    for (int64_t image = 0; phases && image < all; image++)
        for (int phase = 0; phase < phases; phase++) {
            int64_t units = atoll(words[10 + 2 * phase]), step = atoll(words[11 + 2 * phase]);
            for (int64_t first = (units - 1) / step * step; first >= 0; first -= step)
                entries[1 + phase](images + image * pixels * bytes, out + image * outputs, weights,
                                   scratch, ticks, first,
                                   first + step < units ? first + step : units);
        }
    FILE *file = fopen(words[4], "wb");
    return !file || fwrite(out, 4, all * outputs, file) != (size_t)(all * outputs) || fclose(file);
}
