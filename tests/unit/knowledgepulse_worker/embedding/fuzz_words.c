/* Counts the words of random texts of any bytes, in arrays without a byte to spare; for sanitizers.
 *
 * `fuzz_words SEED SECONDS` */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "words.c"

static size_t drawn(size_t limit) { return (size_t)rand() % limit; }

static void count(const double *weights, const uint64_t *common) {
    static const char letters[] = "ab the\xff ";
    size_t texts = 1 + drawn(4), sizes[4], total = 0, numbers[4], dimensions = 1 + drawn(400), buckets = 1 + drawn(65535);
    for (size_t number = 0; number < texts; number++) total += sizes[number] = drawn(drawn(20) ? 300 : 100000);
    uint8_t *text = malloc(total + !total);
    int any = rand() % 3;
    for (size_t at = 0; at < total; at++) text[at] = any ? letters[drawn(sizeof letters - 1)] : (uint8_t)(rand() >> 7);
    double *sums = calloc(texts * dimensions, sizeof *sums);
    size_t most = (total + texts) / 2;
    uint16_t *bucket = malloc(most * sizeof *bucket + !most);
    sum_words(text, sizes, texts, common, weights, dimensions, sums, buckets, bucket, numbers);
    free(text), free(sums), free(bucket);
}

int main(int arguments, char **argument) {
    if (arguments != 3) return 2;
    srand((unsigned)atoi(argument[1]));
    double *weights = calloc(2 * (MOST + 1), sizeof *weights);
    uint64_t *common = calloc(COMMON_SLOTS, sizeof *common);
    common[drawn(COMMON_SLOTS)] = 0x656874; /* the */
    time_t end = time(NULL) + atoi(argument[2]);
    long runs = 0;
    do count(weights, common);
    while (++runs < 2000 || time(NULL) < end);
    free(weights), free(common);
    printf("%ld inputs\n", runs);
    return 0;
}
