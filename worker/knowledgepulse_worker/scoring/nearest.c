/* Finds the row that is most similar to a vector, exactly as cache.py does with NumPy.
 *
 * Products of bytes tell which rows may be it, within bounds that hold for any vector of length 1 or 0. Of these, products in
 * double precision decide, which are exact, and are added in NumPy's order (pairwise: Higham 1993, doi:10.1137/0914050). */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    LARGEST = 127,
    BLOCK = 128,      /* terms that NumPy adds without halving them */
    LANES = 8,        /* sums that it makes of them */
    MOST = 1 << 14,   /* dimensions */
};

/* More than all rounding of a product's bounds. */
#define SLACK 1e-6

typedef float floats __attribute__((vector_size(2 * LANES)));
typedef double doubles __attribute__((vector_size(4 * LANES)));

typedef struct {
    const float *rows;   /* of length 1 or 0 */
    int8_t *bytes;       /* the rows, rounded; */
    float *scales;       /* times these, they differ from the rows by vectors */
    float *errors;       /* that are not longer than these */
    const double *times;
    float *highest;      /* room for a number a row */
    size_t dimensions;
} vectors;

static float largest_of(const float *row, size_t dimensions) {
    float largest = 0;
    for (size_t at = 0; at < dimensions; at++) largest = fabsf(row[at]) > largest ? fabsf(row[at]) : largest;
    return largest;
}

/* Rounds a vector to bytes; returns their scale, and the error. */
static float rounded(const float *row, size_t dimensions, int8_t *bytes, float *error) {
    float scale = largest_of(row, dimensions) / LARGEST;
    double squares = 0;
    for (size_t at = 0; at < dimensions; at++) {
        bytes[at] = scale > 0 ? (int8_t)lrintf(row[at] / scale) : 0;
        double off = row[at] - (double)scale * bytes[at];
        squares += off * off;
    }
    *error = (float)(sqrt(squares) * (1 + SLACK));
    return scale;
}

static int32_t product_of_bytes(const int8_t *row, const int16_t *other, size_t dimensions) {
    int32_t sum = 0;
    size_t at = 0;
#ifdef __AVX2__
    __m256i sums = _mm256_setzero_si256();
    for (; at + 16 <= dimensions; at += 16) {
        __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(row + at)));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(wide, _mm256_loadu_si256((const __m256i *)(other + at))));
    }
    int32_t lanes[8];
    memcpy(lanes, &sums, sizeof lanes);
    for (int lane = 0; lane < 8; lane++) sum += lanes[lane];
#endif
    for (; at < dimensions; at++) sum += row[at] * other[at];
    return sum;
}

/* Adds products to half of the lanes, which are a register of AVX2. */
static inline void add_products(doubles *sums, const float *row, const double *other) {
    floats a;
    doubles b;
    memcpy(&a, row, sizeof a), memcpy(&b, other, sizeof b);
    *sums += __builtin_convertvector(a, doubles) * b;
}

static double product(const float *row, const double *other, size_t dimensions) {
    if (dimensions > BLOCK) {
        size_t half = dimensions / 2 / LANES * LANES;
        return product(row, other, half) + product(row + half, other + half, dimensions - half);
    }
    size_t at = 0;
    double sum = 0;
    if (dimensions >= LANES) {
        doubles first = {0}, second = {0};
        for (; at + LANES <= dimensions; at += LANES) {
            add_products(&first, row + at, other + at);
            add_products(&second, row + at + LANES / 2, other + at + LANES / 2);
        }
        sum = ((first[0] + first[1]) + (first[2] + first[3])) + ((second[0] + second[1]) + (second[2] + second[3]));
    }
    for (; at < dimensions; at++) sum += row[at] * other[at];
    return sum;
}

/* Rounds a row that was put into a slot. */
void round_row(const vectors *in, size_t slot) {
    size_t start = slot * in->dimensions;
    in->scales[slot] = rounded(in->rows + start, in->dimensions, in->bytes + start, in->errors + slot);
}

/* Returns the slot of the row that is most similar, and its similarity: of equal ones, the oldest. Only rows since a time count;
 * without any, returns -1.
 *
 * The rows fill the first slots; the oldest is in a slot of its own, and the next ones follow it, from the first slot on at last. */
ptrdiff_t nearest(const vectors *in, const float *unit, size_t size, size_t oldest, double since, double *similarity) {
    size_t dimensions = in->dimensions;
    int8_t bytes[MOST];
    int16_t wide[MOST];
    double exactly[MOST];
    float error;
    double scale = rounded(unit, dimensions, bytes, &error), lowest = -2;
    ptrdiff_t found = -1;
    for (size_t at = 0; at < dimensions; at++) wide[at] = bytes[at], exactly[at] = unit[at];
    for (size_t slot = 0; slot < size; slot++) {
        if (in->times[slot] < since) continue;
        double about = scale * in->scales[slot] * product_of_bytes(in->bytes + slot * dimensions, wide, dimensions);
        double off = error + in->errors[slot] + (double)error * in->errors[slot] + SLACK;
        in->highest[slot] = (float)(about + off + SLACK);
        if (about - off > lowest) lowest = about - off;
    }
    *similarity = lowest;
    for (size_t number = 0, slot = oldest; number < size; number++, slot = slot + 1 < size ? slot + 1 : 0) {
        if (in->times[slot] < since || in->highest[slot] < *similarity) continue;
        double exact = product(in->rows + slot * dimensions, exactly, dimensions);
        if (found >= 0 && exact <= *similarity) continue;
        found = (ptrdiff_t)slot;
        *similarity = exact;
    }
    return found;
}
