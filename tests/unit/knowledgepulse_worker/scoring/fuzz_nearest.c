/* Looks random vectors up among others, in arrays without a number to spare; for sanitizers.
 *
 * `fuzz_nearest SEED SECONDS` */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nearest.c"

static size_t drawn(size_t limit) { return (size_t)rand() % limit; }

static void fill(float *vector, size_t dimensions) {
    double squares = 0;
    float large = drawn(4) ? 1 : 1e30f;
    for (size_t at = 0; at < dimensions; at++) {
        vector[at] = drawn(3) ? (float)drawn(2001) - 1000 : large;
        squares += (double)vector[at] * vector[at];
    }
    for (size_t at = 0; at < dimensions; at++) vector[at] = squares > 0 && drawn(20) ? (float)(vector[at] / sqrt(squares)) : 0;
}

static void look_up(void) {
    size_t slots = 1 + drawn(30), dimensions = 1 + drawn(drawn(20) ? 200 : MOST), size = 1 + drawn(slots), rows = slots + 1;
    float *kept = calloc(rows * dimensions, sizeof *kept), *vector = malloc(dimensions * sizeof *vector);
    float *scales = malloc(rows * sizeof *scales), *errors = malloc(rows * sizeof *errors), *highest = malloc(slots * sizeof *highest);
    int8_t *bytes = malloc(rows * dimensions);
    double *times = malloc(slots * sizeof *times), similarity;
    vectors in = {kept, bytes, scales, errors, times, highest, slots, dimensions};
    for (size_t slot = 0; slot < slots; slot++) {
        if (!slot || drawn(3)) fill(vector, dimensions);
        if (!read_vector(&in, vector)) abort();
        put_vector(&in, slot);
        times[slot] = (double)drawn(10);
    }
    fill(vector, dimensions);
    if (!read_vector(&in, vector)) abort();
    double since = (double)drawn(11);
    ptrdiff_t found = nearest(&in, size, size == slots ? drawn(size) : 0, since, &similarity);
    if (found >= (ptrdiff_t)size || (found >= 0 && times[found] < since)) abort();
    vector[drawn(dimensions)] = drawn(2) ? INFINITY : NAN;
    if (read_vector(&in, vector)) abort();
    free(kept), free(vector), free(scales), free(errors), free(highest), free(bytes), free(times);
}

int main(int arguments, char **argument) {
    if (arguments != 3) return 2;
    srand((unsigned)atoi(argument[1]));
    time_t end = time(NULL) + atoi(argument[2]);
    long runs = 0;
    do look_up();
    while (++runs < 2000 || time(NULL) < end);
    printf("%ld look-ups\n", runs);
    return 0;
}
