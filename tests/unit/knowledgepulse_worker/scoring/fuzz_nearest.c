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
    size_t slots = 1 + drawn(30), dimensions = 1 + drawn(drawn(20) ? 200 : MOST), size = 1 + drawn(slots);
    float *rows = calloc(slots * dimensions, sizeof *rows), *unit = malloc(dimensions * sizeof *unit);
    float *scales = malloc(slots * sizeof *scales), *errors = malloc(slots * sizeof *errors), *highest = malloc(slots * sizeof *highest);
    int8_t *bytes = malloc(slots * dimensions);
    double *times = malloc(slots * sizeof *times), similarity;
    vectors in = {rows, bytes, scales, errors, times, highest, dimensions};
    for (size_t slot = 0; slot < slots; slot++) {
        if (slot && !drawn(3)) memcpy(rows + slot * dimensions, rows, dimensions * sizeof *rows);
        else fill(rows + slot * dimensions, dimensions);
        times[slot] = (double)drawn(10);
        round_row(&in, slot);
    }
    fill(unit, dimensions);
    double since = (double)drawn(11);
    ptrdiff_t found = nearest(&in, unit, size, size == slots ? drawn(size) : 0, since, &similarity);
    if (found >= (ptrdiff_t)size || (found >= 0 && times[found] < since)) abort();
    free(rows), free(unit), free(scales), free(errors), free(highest), free(bytes), free(times);
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
