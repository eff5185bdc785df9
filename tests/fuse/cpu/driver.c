/* Runs a compiled network on a foreign CPU: images from one file, results into another.
 *
 *   driver TYPE IMAGES WEIGHTS OUT count pixels outputs slot scratch parts helpers [units step]...
 *
 * TYPE is u8 or f32. Without phases, the images go through network_TYPE in unequal pieces; with them,
 * image by image through phase0_TYPE, phase1_TYPE, ..., each in `units` taken `step` at a time, the
 * last ones first, as if by threads of which one is late. With helpers, those are threads that take
 * tickets of one job for all phases of all images.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void entry(const void *images, float *out, const float *weights, float *scratch,
                   float *shared, int64_t *ticks, int64_t first, int64_t last);

#define ENTRIES(X) X(network) X(phase0) X(phase1) X(phase2) X(phase3) X(phase4) X(phase5) X(phase6)
#define DECLARE(name) extern entry name##_u8 __attribute__((weak)), name##_f32 __attribute__((weak));
#define U8(name) name##_u8,
#define F32(name) name##_f32,
ENTRIES(DECLARE)
static entry *const u8_entries[] = {ENTRIES(U8)}, *const f32_entries[] = {ENTRIES(F32)};
#define MOST ((int)(sizeof u8_entries / sizeof *u8_entries) - 1)

/* The ticket code, where it is linked in. */
extern void lead(int64_t *team, int64_t *own, const int64_t *job, int64_t total, const void *images,
                 float *out, int64_t *ticks, float *scratch, int64_t stride) __attribute__((weak));
extern void help(int64_t *control, int64_t worker, int64_t patience) __attribute__((weak));
enum { CONTROL_BYTES = 8 * 32, RECORD_WORDS = 10, MOST_HELPERS = 8 };
static const int64_t END = (int64_t)1 << 62, PATIENCE = 1000000;
static int64_t *control;

static void *helper(void *number)
{
    help(control, (int64_t)(intptr_t)number, PATIENCE);
    return NULL;
}

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

/* All phases of all images as one job: each waits for all before it. */
static void together(entry *const *entries, int phases, char **sizes, int64_t all,
                     int64_t image_bytes, int64_t output_bytes, int helpers, const char *images,
                     float *out, const float *weights, float *scratch, int64_t *ticks)
{
    int64_t *job = room(8 * RECORD_WORDS * (all * phases + 1)), *record = job, total = 0;
    for (int64_t image = 0; image < all; image++)
        for (int phase = 0; phase < phases; phase++, record += RECORD_WORDS) {
            int64_t units = atoll(sizes[2 * phase]), step = atoll(sizes[2 * phase + 1]);
            int64_t words[RECORD_WORDS] = {
                total, total, (int64_t)entries[1 + phase], (int64_t)weights, 0,
                image * image_bytes, image * output_bytes, 0, step, units};
            memcpy(record, words, sizeof words);
            total += (units + step - 1) / step;
        }
    record[0] = END;
    control = memset(room(CONTROL_BYTES), 0, CONTROL_BYTES);
    int64_t *own = memset(room(CONTROL_BYTES), 0, CONTROL_BYTES);
    pthread_t threads[MOST_HELPERS];
    for (intptr_t i = 0; i < helpers; i++)
        if (pthread_create(&threads[i], NULL, helper, (void *)(i + 1))) exit(7);
    lead(control, own, job, total, images, out, ticks, scratch, 0);
    for (int i = 0; i < helpers; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **words)
{
    if (count < 12) return 2;
    int bytes = strcmp(words[1], "u8") ? 4 : 1;
    entry *const *entries = bytes == 1 ? u8_entries : f32_entries;
    char *images = content(words[2]);
    float *weights = content(words[3]);
    int64_t all = atoll(words[5]), pixels = atoll(words[6]), outputs = atoll(words[7]);
    int64_t slot = atoll(words[8]); /* of one image, before the scratch memory */
    float *scratch = (float *)room(4 * (slot + atoll(words[9]))) + slot;
    float *out = room(4 * all * outputs);
    int64_t *ticks = calloc(atoll(words[10]), sizeof *ticks);
    int helpers = atoi(words[11]), phases = (count - 12) / 2;
    if (phases > MOST || helpers > MOST_HELPERS) return 6;
    if (helpers)
        together(entries, phases, words + 12, all, pixels * bytes, outputs * 4, helpers, images,
                 out, weights, scratch, ticks);
    if (!phases)
        for (int64_t first = 0, piece = 1; first < all; first += piece++) {
            int64_t last = first + piece < all ? first + piece : all;
            entries[0](images, out, weights, scratch, scratch, ticks, first, last);
        }
    for (int64_t image = 0; phases && !helpers && image < all; image++)
        for (int phase = 0; phase < phases; phase++) {
            int64_t units = atoll(words[12 + 2 * phase]), step = atoll(words[13 + 2 * phase]);
            for (int64_t first = (units - 1) / step * step; first >= 0; first -= step)
                entries[1 + phase](images + image * pixels * bytes, out + image * outputs, weights,
                                   scratch, scratch, ticks, first,
                                   first + step < units ? first + step : units);
        }
    FILE *file = fopen(words[4], "wb");
    return !file || fwrite(out, 4, all * outputs, file) != (size_t)(all * outputs) || fclose(file);
}
