/* Embeds random texts of any bytes, in arrays without a byte to spare; for sanitizers.
 *
 * `fuzz_words SEED SECONDS` */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "words.c"

static size_t drawn(size_t limit) { return (size_t)rand() % limit; }

static void embed(lexicon read) {
    static const char letters[] = "ab the\xff\xe4\xbf\xae ";
    size_t texts = 1 + drawn(4), sizes[4 * PARTS], total = 0, numbers[4];
    read.dimensions = 1 + drawn(400), read.buckets = 1 + drawn(65535);
    for (size_t number = 0; number < texts * PARTS; number++) total += sizes[number] = drawn(drawn(60) ? 300 : 100000);
    uint8_t *bytes = malloc(total + !total);
    int any = rand() % 3;
    for (size_t at = 0; at < total; at++) bytes[at] = any ? (uint8_t)letters[drawn(sizeof letters - 1)] : (uint8_t)(rand() >> 7);
    double *sums = malloc(2 * read.dimensions * sizeof *sums);
    float *vectors = malloc(texts * read.dimensions * sizeof *vectors);
    uint16_t *buckets = malloc(total * sizeof *buckets + !total);
    embed_words(bytes, sizes, texts, &read, sums, vectors, buckets, numbers);
    free(bytes), free(sums), free(vectors), free(buckets);
}

int main(int arguments, char **argument) {
    if (arguments != 3) return 2;
    srand((unsigned)atoi(argument[1]));
    static const uint32_t kinds[] = {SEPARATOR, 'a' << 2 | LETTER, 0x5000 << 2 | UNSPACED, 0x10000 << 2 | SEPARATOR};
    double *weights = calloc(2 * (MOST + 1), sizeof *weights);
    uint64_t *common = calloc(COMMON_SLOTS, sizeof *common);
    common[drawn(COMMON_SLOTS)] = 0x656874; /* the */
    lexicon read = {kinds, sizeof kinds / sizeof *kinds, common, weights, 0, 0};
    time_t end = time(NULL) + atoi(argument[2]);
    long runs = 0;
    do embed(read);
    while (++runs < 2000 || time(NULL) < end);
    free(weights), free(common);
    printf("%ld inputs\n", runs);
    return 0;
}
