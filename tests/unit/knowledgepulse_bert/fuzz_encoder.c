/* Runs the encoder on sizes, texts and values that the input's bytes choose; for sanitizers.
 *
 * `fuzz_encoder SEED SECONDS` draws inputs; libFuzzer calls LLVMFuzzerTestOneInput itself (with -DLIBFUZZER). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "encoder.c"

typedef struct {
    const uint8_t *at, *end;
} bytes;

static size_t next(bytes *input, size_t limit) {
    size_t drawn = 0;
    for (int count = 0; count < 2 && input->at < input->end; count++) drawn = drawn << 8 | *input->at++;
    return drawn % limit;
}

/* An array without a byte to spare, so that a sanitizer sees the first access beyond it. */
static void *filled(bytes *input, size_t size) {
    uint8_t *array = malloc(size + !size);
    for (size_t at = 0; at < size; at++) array[at] = input->at < input->end ? *input->at++ : (uint8_t)(at * 37 % 64);
    return array;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes input = {data, data + size};
    size_t layers = next(&input, 3), heads = next(&input, 4), each = 32 * next(&input, 3) + (next(&input, 9) == 0);
    size_t width = heads * each + (next(&input, 19) == 0), inner = 32 * next(&input, 9), longest = next(&input, 514);
    size_t weights = layers * width * (4 * width + 2 * inner), parameters = 2 * width + layers * 2 * (7 * width + inner);
    if (next(&input, 9) == 0) weights += next(&input, 5) - 2;
    if (next(&input, 9) == 0) parameters += next(&input, 5) - 2;
    size_t values[2]; /* drawn before the arrays, which take all that is left of the input */
    values[0] = width * (longest + next(&input, 2)); /* all that fits, or a token more */
    values[1] = width * (1 + next(&input, longest + 1)) - (next(&input, 9) == 0);
    if (weights > 1 << 22 || parameters > 1 << 22) return 0;
    int16_t *weight_array = filled(&input, weights * sizeof(int16_t));
    float *parameter_array = filled(&input, parameters * sizeof(float));
    encoder *made = open_encoder(layers, width, heads, inner, 1e-12f, weight_array, weights, parameter_array,
                                 parameters, longest);
    for (int text = 0; made && text < 2; text++) {
        float *tokens = filled(&input, values[text] * sizeof(float));
        encode(made, tokens, values[text]);
        free(tokens);
    }
    close_encoder(made);
    free(weight_array), free(parameter_array);
    return 0;
}

#ifndef LIBFUZZER
int main(int count, char **arguments) {
    if (count != 3) return 2;
    srand((unsigned)atoi(arguments[1]));
    time_t end = time(NULL) + atoi(arguments[2]);
    long runs = 0;
    do {
        uint8_t data[4096];
        size_t size = (size_t)rand() % sizeof data;
        for (size_t at = 0; at < size; at++) data[at] = (uint8_t)(rand() >> 7);
        LLVMFuzzerTestOneInput(data, size);
    } while (++runs < 100 || time(NULL) < end);
    printf("%ld inputs\n", runs);
    return 0;
}
#endif
