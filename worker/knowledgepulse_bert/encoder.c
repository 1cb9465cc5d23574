/* The layers of BERT for one text: products with the weights in 13-bit integers, everything else in float32.
 *
 * Compiled once for each set of instructions; encoder.py checks what the arrays hold, and this file their sizes. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-tree-pre") /* which copies all sums of the inner loop at each step, in GCC 12 */
#endif
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
#ifdef __AVX512VNNI__
    LANES = 16, /* floats in a register */
    ROWS = 8,   /* tokens of a tile */
#else
    LANES = 8,
    ROWS = 4,
#endif
    COLUMNS = 2 * LANES, /* outputs of a tile: two registers */
    LIMIT = 4095,        /* the largest 13-bit integer */
    EXACT = 128,         /* terms whose sum fits into 32 bits: 128 * 4095 * 4095 < 2^31 */
    PANEL = 16,          /* outputs whose weights are stored together, as encoder.py packs them */
};

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int16_t shorts __attribute__((vector_size(2 * LANES)));

/* The same in memory, where they are aligned as their elements are. */
typedef floats floats_in_memory __attribute__((aligned(4), may_alias));
typedef words words_in_memory __attribute__((aligned(2), may_alias));
typedef shorts shorts_in_memory __attribute__((aligned(2), may_alias));
typedef uint32_t pair __attribute__((aligned(2), may_alias)); /* two neighbouring integers of 16 bits */

#ifdef __AVX512VNNI__
static inline floats larger(floats a, floats b) { return (floats)_mm512_max_ps((__m512)a, (__m512)b); }
static inline words add_products(words sum, words a, words b) {
    return (words)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
static inline floats from_integers(words a) { return (floats)_mm512_cvtepi32_ps((__m512i)a); }
static inline floats root(floats a) { return (floats)_mm512_sqrt_ps((__m512)a); }
#else
static inline floats larger(floats a, floats b) { return (floats)_mm256_max_ps((__m256)a, (__m256)b); }
static inline words add_products(words sum, words a, words b) {
    return sum + (words)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
static inline floats from_integers(words a) { return (floats)_mm256_cvtepi32_ps((__m256i)a); }
static inline floats root(floats a) { return (floats)_mm256_sqrt_ps((__m256)a); }
#endif

static inline floats load(const float *from) { return *(const floats_in_memory *)from; }
static inline void store(float *to, floats values) { *(floats_in_memory *)to = values; }
static inline floats all(float value) { return value - (floats){0}; }
static inline floats magnitude(floats x) { return (floats)((words)x & 0x7fffffff); }

static inline float sum(floats values) {
    float total = 0;
    for (int lane = 0; lane < LANES; lane++) total += values[lane];
    return total;
}

static inline float largest(floats values) {
    float most = values[0];
    for (int lane = 1; lane < LANES; lane++) most = values[lane] > most ? values[lane] : most;
    return most;
}

/* The nearest integer of a float below 2^22 in magnitude, as the low bits of x + 1.5 * 2^23. */
static const float SHIFT = 12582912;
static inline words nearest(floats x) { return (words)(x + SHIFT) - (words)all(SHIFT); }

/* exp(x) for x <= 0, by the polynomial of Cephes' expf, relative error 2e-7. */
static inline floats exponential(floats x) {
    x = larger(x, all(-87));
    words power = nearest(x * 1.44269504f);
    floats whole = from_integers(power);
    x = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    floats p = x * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * (x * x) + x + 1;
    return p * (floats)((power + 127) << 23);
}

/* x * (1 + erf(x / sqrt(2))) / 2, by Abramowitz and Stegun 7.1.26, absolute error 1.5e-7 of erf. */
static inline floats gelu(floats x) {
    floats z = magnitude(x) * 0.70710678f;
    floats t = 1 / (z * 0.3275911f + 1);
    floats p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = (p * t + 0.254829592f) * t;
    floats erf = 1 - p * exponential(-z * z);
    return x * 0.5f + magnitude(x) * 0.5f * erf; /* erf is odd */
}


typedef struct {
    size_t inputs, outputs;
    const int16_t *weights; /* [outputs / PANEL][inputs / 2][PANEL][2] */
    const float *scales;    /* of each output */
    const float *bias;
} linear;

typedef struct {
    size_t tokens, width, heads, inner;
    float epsilon;
} shape;

typedef struct {
    float *inner;      /* [tokens][the larger of 3 * width and inner] */
    float *attended;   /* [tokens][width] */
    int16_t *row;      /* a token's integers */
    int16_t *integers; /* all tokens' integers, in tiles: [tiles][inputs / 2][ROWS][2] */
    float *scales;     /* of each token */
    float *keys;       /* of a head: [padded tokens / COLUMNS][width of a head][COLUMNS] */
    float *scores;     /* [ROWS][padded tokens] */
} workspace;

enum { PLAIN, GELU, ADD }; /* what a product ends with */

static size_t round_up(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void quantise_row(const float *row, size_t size, int16_t *to, float *scale) {
    floats most = {0};
    for (size_t at = 0; at < size; at += LANES) most = larger(most, magnitude(load(row + at)));
    float peak = largest(most);
    *scale = peak / LIMIT;
    floats factor = all(peak > 0 ? LIMIT / peak : 0);
    for (size_t at = 0; at < size; at += LANES)
        *(shorts_in_memory *)(to + at) =
            __builtin_convertvector((integers)nearest(load(row + at) * factor), shorts);
}

/* Turn rows of floats into integers with a scale for each row, in the order in which a tile reads them. */
static void quantise(const float *rows, size_t tokens, size_t size, workspace *work) {
    for (size_t token = 0; token < round_up(tokens, ROWS); token++) {
        pair *tile = (pair *)(work->integers + token / ROWS * ROWS * size) + token % ROWS;
        if (token < tokens) quantise_row(rows + token * size, size, work->row, work->scales + token);
        for (size_t at = 0; at < size / 2; at++)
            tile[at * ROWS] = token < tokens ? ((const pair *)work->row)[at] : 0;
    }
}

/* Add the products of at most EXACT inputs to a tile's sums. */
static inline __attribute__((always_inline)) void add_block(
    const pair *tokens, const int16_t *weights, size_t inputs, size_t pairs, floats sums[ROWS][2]) {
    words exact[ROWS][2] = {{{0}}};
    const int16_t *others = weights + (LANES < PANEL ? 2 * LANES : inputs * PANEL);
    for (const pair *end = tokens + pairs * ROWS; tokens != end; tokens += ROWS) {
        words left = *(const words_in_memory *)weights, right = *(const words_in_memory *)others;
        weights += 2 * PANEL, others += 2 * PANEL;
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++) {
            words token = tokens[row] - (words){0};
            exact[row][0] = add_products(exact[row][0], token, left);
            exact[row][1] = add_products(exact[row][1], token, right);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
        for (int half = 0; half < 2; half++) sums[row][half] += from_integers(exact[row][half]);
}

/* Multiply the quantised tokens with a matrix: tokens stay in the second cache, a panel of weights in the first. */
static inline __attribute__((always_inline)) void multiply(
    const linear *matrix, const workspace *work, size_t tokens, float *to, int ending) {
    size_t inputs = matrix->inputs;
    for (size_t output = 0; output < matrix->outputs; output += COLUMNS)
        for (size_t token = 0; token < tokens; token += ROWS) {
            const int16_t *tile = work->integers + token * inputs, *weights = matrix->weights + output * inputs;
            floats sums[ROWS][2] = {{{0}}};
            for (size_t at = 0; at < inputs; at += EXACT)
                add_block((const pair *)(tile + at * ROWS), weights + at * PANEL, inputs,
                          smaller(inputs - at, EXACT) / 2, sums);
            for (size_t row = 0; row < smaller(ROWS, tokens - token); row++)
                for (size_t half = 0; half < 2; half++) {
                    size_t first = output + half * LANES;
                    float *place = to + (token + row) * matrix->outputs + first;
                    floats value = sums[row][half] * (load(matrix->scales + first) * work->scales[token + row]);
                    value += load(matrix->bias + first);
                    store(place, ending == GELU ? gelu(value) : ending == ADD ? value + load(place) : value);
                }
        }
}

/* Multiply up to ROWS rows with a matrix of COLUMNS columns, in float32. */
static void multiply_floats(const float *rows, size_t stride, size_t count, size_t terms, const float *matrix,
                            size_t matrix_stride, float *to, size_t to_stride) {
    floats sums[ROWS][2] = {{{0}}};
    const float *row[ROWS];
    for (size_t at = 0; at < ROWS; at++) row[at] = rows + smaller(at, count - 1) * stride;
    for (size_t term = 0; term < terms; term++) {
        floats left = load(matrix), right = load(matrix + LANES);
        matrix += matrix_stride;
#pragma GCC unroll 16
        for (int at = 0; at < ROWS; at++) {
            sums[at][0] += row[at][term] * left;
            sums[at][1] += row[at][term] * right;
        }
    }
    for (size_t at = 0; at < count; at++)
        store(to + at * to_stride, sums[at][0]), store(to + at * to_stride + LANES, sums[at][1]);
}

/* Turn a token's scores into shares, all but for the factor that is returned. */
static float soften(float *scores, size_t tokens, size_t padded) {
    for (size_t at = tokens; at < padded; at++) scores[at] = -1e30f;
    floats most = load(scores), total = {0};
    for (size_t at = LANES; at < padded; at += LANES) most = larger(most, load(scores + at));
    floats peak = all(largest(most));
    for (size_t at = 0; at < padded; at += LANES) {
        floats share = exponential(load(scores + at) - peak);
        store(scores + at, share);
        total += share;
    }
    return 1 / sum(total);
}

/* Put a head's keys into panels of COLUMNS tokens. */
static void pack_keys(const shape *of, const float *keys, workspace *work) {
    size_t size = of->width / of->heads, padded = round_up(of->tokens, COLUMNS);
    for (size_t token = 0; token < padded; token++) {
        const float *from = keys + token * 3 * of->width;
        float *to = work->keys + token / COLUMNS * size * COLUMNS + token % COLUMNS;
        for (size_t at = 0; at < size; at++, to += COLUMNS) *to = token < of->tokens ? from[at] : 0;
    }
}

/* Attention of a head; the queries, keys and values of all heads are the rows of work->inner. */
static void attend(const shape *of, size_t head, workspace *work) {
    size_t size = of->width / of->heads, stride = 3 * of->width, padded = round_up(of->tokens, COLUMNS);
    const float *queries = work->inner + head * size, *values = queries + 2 * of->width;
    pack_keys(of, queries + of->width, work);
    for (size_t token = 0; token < of->tokens; token += ROWS) {
        size_t count = smaller(ROWS, of->tokens - token);
        float *attended = work->attended + token * of->width + head * size;
        for (size_t other = 0; other < padded; other += COLUMNS)
            multiply_floats(queries + token * stride, stride, count, size, work->keys + other * size,
                            COLUMNS, work->scores + other, padded);
        float factors[ROWS];
        for (size_t row = 0; row < count; row++)
            factors[row] = soften(work->scores + row * padded, of->tokens, padded);
        for (size_t at = 0; at < size; at += COLUMNS)
            multiply_floats(work->scores, padded, count, of->tokens, values + at, stride,
                            attended + at, of->width);
        for (size_t row = 0; row < count; row++)
            for (size_t at = 0; at < size; at += LANES) {
                float *place = attended + row * of->width + at;
                store(place, load(place) * factors[row]);
            }
    }
}

/* Layer normalization of each token; parameters: factors, then what is added. */
static void normalise(const shape *of, float *tokens, const float *parameters) {
    for (float *token = tokens; token != tokens + of->tokens * of->width; token += of->width) {
        floats total = {0}, squares = {0};
        for (size_t at = 0; at < of->width; at += LANES) total += load(token + at);
        floats mean = all(sum(total) / of->width);
        for (size_t at = 0; at < of->width; at += LANES) {
            floats apart = load(token + at) - mean;
            squares += apart * apart;
        }
        floats factor = 1 / root(all(sum(squares) / of->width + of->epsilon));
        for (size_t at = 0; at < of->width; at += LANES)
            store(token + at, (load(token + at) - mean) * factor * load(parameters + at) +
                                  load(parameters + of->width + at));
    }
}

/* An encoder for one thread. */
typedef struct {
    size_t layers, longest;
    shape of;
    const int16_t *weights;  /* of each layer: the matrices in the order in which they are used */
    const float *parameters; /* of each layer: a matrix's scales and bias, and the normalizations, likewise */
    workspace work;
} encoder;

/* What is left to read of the model's arrays. */
typedef struct {
    const int16_t *weights;
    const float *parameters;
} reader;

static const float *read_parameters(reader *model, size_t count) {
    model->parameters += count;
    return model->parameters - count;
}

static linear read_linear(reader *model, size_t inputs, size_t outputs) {
    linear matrix = {inputs, outputs, model->weights, NULL, NULL};
    model->weights += inputs * outputs;
    matrix.scales = read_parameters(model, outputs);
    matrix.bias = read_parameters(model, outputs);
    return matrix;
}

static void run_layer(const shape *of, reader *model, float *tokens, workspace *work) {
    linear matrix = read_linear(model, of->width, 3 * of->width);
    quantise(tokens, of->tokens, of->width, work);
    multiply(&matrix, work, of->tokens, work->inner, PLAIN);
    for (size_t head = 0; head < of->heads; head++) attend(of, head, work);

    matrix = read_linear(model, of->width, of->width);
    quantise(work->attended, of->tokens, of->width, work);
    multiply(&matrix, work, of->tokens, tokens, ADD);
    normalise(of, tokens, read_parameters(model, 2 * of->width));

    matrix = read_linear(model, of->width, of->inner);
    quantise(tokens, of->tokens, of->width, work);
    multiply(&matrix, work, of->tokens, work->inner, GELU);

    matrix = read_linear(model, of->inner, of->width);
    quantise(work->inner, of->tokens, of->inner, work);
    multiply(&matrix, work, of->tokens, tokens, ADD);
    normalise(of, tokens, read_parameters(model, 2 * of->width));
}

static void *allocate(size_t count, size_t size) { return aligned_alloc(64, round_up(count * size, 64)); }

static workspace make_workspace(const shape *of, size_t longest) {
    size_t widest = 3 * of->width > of->inner ? 3 * of->width : of->inner;
    size_t padded = round_up(longest, COLUMNS);
    return (workspace){
        .inner = allocate(longest * widest, sizeof(float)),
        .attended = allocate(longest * of->width, sizeof(float)),
        .row = allocate(widest, sizeof(int16_t)),
        .integers = allocate(round_up(longest, ROWS) * widest, sizeof(int16_t)),
        .scales = allocate(longest, sizeof(float)),
        .keys = allocate(padded * (of->width / of->heads), sizeof(float)),
        .scores = allocate(ROWS * padded, sizeof(float)),
    };
}

static int is_complete(const workspace *work) {
    return work->inner && work->attended && work->row && work->integers && work->scales && work->keys &&
           work->scores;
}

static int is_size(size_t size) { return size > 0 && size <= 1 << 16 && size % 32 == 0; }

static int fits(const encoder *made, size_t weight_count, size_t parameter_count) {
    const shape *of = &made->of;
    return is_size(of->width) && is_size(of->inner) && of->heads > 0 && of->width % of->heads == 0 &&
           is_size(of->width / of->heads) && made->layers <= 1 << 10 && made->longest > 0 &&
           made->longest <= 1 << 16 && weight_count == made->layers * of->width * (4 * of->width + 2 * of->inner) &&
           parameter_count == 2 * of->width + made->layers * 2 * (7 * of->width + of->inner);
}

void close_encoder(encoder *made) {
    if (!made) return;
    workspace *work = &made->work;
    free(work->inner), free(work->attended), free(work->row), free(work->integers);
    free(work->scales), free(work->keys), free(work->scores), free(made);
}

/* Make an encoder of texts of at most `longest` tokens, which reads the model's arrays until it is closed.
 *
 * Returns NULL without memory, or if a size is no multiple of 32, is too large or does not fit the arrays. */
encoder *open_encoder(size_t layers, size_t width, size_t heads, size_t inner, float epsilon, const int16_t *weights,
                      size_t weight_count, const float *parameters, size_t parameter_count, size_t longest) {
    encoder sized = {layers, longest, {0, width, heads, inner, epsilon}, weights, parameters, {0}};
    encoder *made = fits(&sized, weight_count, parameter_count) ? malloc(sizeof sized) : NULL;
    if (!made) return NULL;
    sized.work = make_workspace(&sized.of, longest);
    *made = sized;
    if (is_complete(&made->work)) return made;
    close_encoder(made);
    return NULL;
}

/* Normalise a text's embedded tokens and run the layers over them, in place; returns whether their number fits. */
int encode(encoder *made, float *tokens, size_t values) {
    shape of = made->of;
    of.tokens = values / of.width;
    if (values % of.width || of.tokens == 0 || of.tokens > made->longest) return 0;
    reader model = {made->weights, made->parameters};
    normalise(&of, tokens, read_parameters(&model, 2 * of.width));
    for (size_t number = 0; number < made->layers; number++) run_layer(&of, &model, tokens, &made->work);
    return 1;
}
