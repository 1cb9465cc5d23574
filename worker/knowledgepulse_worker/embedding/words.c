/* Counts the words of texts, and adds them to the texts' vectors, as lexical.py does without a compiler. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    MOST = 3 * 4096,     /* words of a text: at most as many characters and pairs as there are words */
    SLOTS = 1 << 15,     /* of the table of a text's words, which is never more than half full */
    COMMON_SLOTS = 1024, /* of the table of common words, as word_sums.py fills it */
};

typedef struct {
    const uint8_t *start;
    size_t length;
    uint32_t crc, count;
} word;

static uint32_t crcs[256];

__attribute__((constructor)) static void fill_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
        crcs[byte] = crc;
    }
}

static int is_in_word(uint8_t byte) {
    return byte > 127 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

static int is_common(const uint64_t *common, const word *found) {
    uint64_t letters = 0;
    if (found->length > sizeof letters) return 0;
    memcpy(&letters, found->start, found->length);
    for (size_t slot = found->crc % COMMON_SLOTS; common[slot]; slot = (slot + 1) % COMMON_SLOTS)
        if (common[slot] == letters) return 1;
    return 0;
}

/* Returns the number of the distinct words, in the order of their first occurrence. */
static size_t count_words(const uint8_t *text, size_t size, word *words, uint16_t *table, size_t slots) {
    const uint8_t *at = text, *end = text + size;
    size_t distinct = 0;
    memset(table, 0, slots * sizeof *table);
    for (;;) {
        while (at < end && !is_in_word(*at)) at++;
        if (at == end || distinct == MOST) return distinct;
        word found = {at, 0, ~(uint32_t)0, 1};
        while (at < end && is_in_word(*at)) found.crc = crcs[(found.crc ^ *at++) & 255] ^ found.crc >> 8;
        found.length = (size_t)(at - found.start), found.crc = ~found.crc;
        size_t slot = found.crc & (slots - 1);
        for (word *other; table[slot]; slot = (slot + 1) & (slots - 1)) {
            other = words + table[slot] - 1;
            if (other->crc == found.crc && other->length == found.length && !memcmp(other->start, found.start, found.length)) break;
        }
        if (table[slot]) {
            words[table[slot] - 1].count++;
        } else {
            words[distinct++] = found;
            table[slot] = (uint16_t)distinct;
        }
    }
}

/* Adds the words of each text, which follow each other, to its row of sums, and writes the words' buckets.
 *
 * weights[0] has the weight of a word by its number of occurrences, up to MOST, and weights[1] that of a common one. */
void sum_words(const uint8_t *text, const size_t *sizes, size_t texts, const uint64_t *common, const double *weights,
               size_t dimensions, double *sums, size_t buckets, uint16_t *bucket, size_t *numbers) {
    static _Thread_local word words[MOST];
    static _Thread_local uint16_t table[SLOTS];
    for (size_t number = 0; number < texts; text += sizes[number++], sums += dimensions) {
        size_t slots = 16;
        while (slots < sizes[number] + 1 && slots < SLOTS) slots *= 2; /* every other byte may be a word */
        size_t distinct = numbers[number] = count_words(text, sizes[number], words, table, slots);
        for (const word *each = words; each < words + distinct; each++) {
            uint64_t hash = each->crc * UINT64_C(0x9E3779B97F4A7C15), high = hash >> 32;
            size_t most = each->count < MOST ? each->count : MOST;
            double weight = weights[most + (is_common(common, each) ? MOST + 1 : 0)];
            sums[high * dimensions >> 32] += hash >> 31 & 1 ? weight : -weight;
            *bucket++ = (uint16_t)(high * buckets >> 32);
        }
    }
}
