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
    float *rows;         /* of length 1 or 0; behind the last slot's is the vector that was read last */
    int8_t *bytes;       /* the rows, rounded; */
    float *scales;       /* times these, they differ from the rows by vectors */
    float *errors;       /* that are not longer than these */
    const double *times;
    float *highest;      /* room for a number a row */
    size_t slots, dimensions;
} vectors;

/* A vector that rows are compared with. */
typedef struct {
    const int8_t *bytes;
    int16_t wide[MOST];   /* the bytes */
    double exactly[MOST]; /* the vector */
    int32_t sum;          /* of the bytes */
} query;

/* Numbers above zero have the order of their bits. */
static float largest_of(const float *row, size_t dimensions) {
    uint32_t largest = 0, bits;
    for (size_t at = 0; at < dimensions; at++) {
        memcpy(&bits, row + at, sizeof bits);
        bits &= 0x7FFFFFFF;
        largest = bits > largest ? bits : largest;
    }
    float number;
    memcpy(&number, &largest, sizeof number);
    return number;
}

/* Rounds a vector to bytes; returns their scale, and the error. */
static float rounded(const float *row, size_t dimensions, int8_t *bytes, float *error) {
    float scale = largest_of(row, dimensions) / LARGEST;
    double squares[LANES] = {0}, sum = 0;
    for (size_t at = 0; at < dimensions; at++) {
        float number = scale > 0 ? row[at] / scale + 0x1.8p23f : 0x1.8p23f; /* whole, in its last bits */
        bytes[at] = (int8_t)(int32_t)(number - 0x1.8p23f);
    }
    for (size_t at = 0; at < dimensions; at += LANES)
        for (size_t lane = 0; lane < LANES && at + lane < dimensions; lane++) {
            double off = row[at + lane] - (double)scale * bytes[at + lane];
            squares[lane] += off * off;
        }
    for (size_t lane = 0; lane < LANES; lane++) sum += squares[lane];
    *error = (float)(sqrt(sum) * (1 + SLACK));
    return scale;
}

static int32_t product_of_bytes(const int8_t *row, const query *with, size_t dimensions) {
    int32_t sum = 0;
    size_t at = 0;
#if defined __AVX512VNNI__ && defined __AVX512BW__
    __m512i sums = _mm512_setzero_si512(), top = _mm512_set1_epi8((char)0x80); /* 128 more: the instruction takes no sign of these */
    for (; at + 64 <= dimensions; at += 64)
        sums = _mm512_dpbusd_epi32(sums, _mm512_xor_si512(_mm512_loadu_si512(row + at), top), _mm512_loadu_si512(with->bytes + at));
    if (at < dimensions) {
        __mmask64 rest = (UINT64_C(1) << (dimensions - at)) - 1;
        __m512i bytes = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, row + at), top);
        sums = _mm512_dpbusd_epi32(sums, bytes, _mm512_maskz_loadu_epi8(rest, with->bytes + at));
    }
    return _mm512_reduce_add_epi32(sums) - 128 * with->sum;
#elif defined __AVX2__
    __m256i sums = _mm256_setzero_si256();
    for (; at + 16 <= dimensions; at += 16) {
        __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(row + at)));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(wide, _mm256_loadu_si256((const __m256i *)(with->wide + at))));
    }
    __m128i lanes = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0x4E));
    sum = _mm_cvtsi128_si32(_mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0xB1)));
#endif
    for (; at < dimensions; at++) sum += row[at] * with->wide[at];
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

/* Reads the vector that is looked up or put into a slot next, and gives it length 1, as NumPy does; returns 0 if it is not finite. */
int read_vector(const vectors *in, const float *vector) {
    double exactly[MOST];
    for (size_t at = 0; at < in->dimensions; at++) exactly[at] = vector[at];
    double length = sqrt(product(vector, exactly, in->dimensions));
    if (!isfinite(length)) return 0;
    float *unit = in->rows + in->slots * in->dimensions;
    for (size_t at = 0; at < in->dimensions; at++) unit[at] = length > 0 ? (float)(exactly[at] / length) : vector[at];
    in->scales[in->slots] = rounded(unit, in->dimensions, in->bytes + in->slots * in->dimensions, in->errors + in->slots);
    return 1;
}

/* Puts the vector that was read last into a slot. */
void put_vector(const vectors *in, size_t slot) {
    size_t dimensions = in->dimensions;
    memcpy(in->rows + slot * dimensions, in->rows + in->slots * dimensions, dimensions * sizeof *in->rows);
    memcpy(in->bytes + slot * dimensions, in->bytes + in->slots * dimensions, dimensions);
    in->scales[slot] = in->scales[in->slots];
    in->errors[slot] = in->errors[in->slots];
}

/* Returns the slot of the row that is most similar to the vector that was read last, and its similarity: of equal ones, the
 * oldest. Only rows since a time count; without any, returns -1.
 *
 * The rows fill the first slots; the oldest is in a slot of its own, and the next ones follow it, from the first slot on at last. */
ptrdiff_t nearest(const vectors *in, size_t size, size_t oldest, double since, double *similarity) {
    size_t dimensions = in->dimensions;
    const float *unit = in->rows + in->slots * dimensions;
    query with;
    with.bytes = in->bytes + in->slots * dimensions, with.sum = 0;
    double scale = in->scales[in->slots], error = in->errors[in->slots], lowest = -2;
    ptrdiff_t found = -1;
    for (size_t at = 0; at < dimensions; at++) with.wide[at] = with.bytes[at], with.exactly[at] = unit[at], with.sum += with.bytes[at];
    for (size_t slot = 0; slot < size; slot++) {
        if (in->times[slot] < since) continue;
        double about = scale * in->scales[slot] * product_of_bytes(in->bytes + slot * dimensions, &with, dimensions);
        double off = error + in->errors[slot] + error * in->errors[slot] + SLACK;
        in->highest[slot] = (float)(about + off + SLACK);
        if (about - off > lowest) lowest = about - off;
    }
    *similarity = lowest;
    for (size_t number = 0, slot = oldest; number < size; number++, slot = slot + 1 < size ? slot + 1 : 0) {
        if (in->times[slot] < since || in->highest[slot] < *similarity) continue;
        double exact = product(in->rows + slot * dimensions, with.exactly, dimensions);
        if (found >= 0 && exact <= *similarity) continue;
        found = (ptrdiff_t)slot;
        *similarity = exact;
    }
    return found;
}
