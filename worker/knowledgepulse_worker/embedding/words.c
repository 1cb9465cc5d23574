/* Embeds texts by their words, as lexical.py and scoring/words.py do without a compiler. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PARTS = 3,               /* of a text; these limits are those of scoring/words.py */
    MAX_WORDS = 4096,        /* of a part that are ASCII, or are not; and characters that are searched for pairs */
    MOST = 3 * MAX_WORDS,    /* words of a part, with pairs */
    SLOTS = 1 << 15,         /* of the table of a part's words, which is never full: it has more slots than words or bytes */
    COMMON_SLOTS = 1024,     /* of the table of common words, as word_vectors.py fills it */
    UNIT = 1 << 20,          /* of a part's vector */
};

enum kind { SEPARATOR, LETTER, UNSPACED };

typedef struct {
    const uint8_t *start;
    size_t length;
    uint32_t crc, count;
} word;

typedef struct {
    word words[MOST];
    uint16_t table[SLOTS];
    size_t slots, distinct;
} counts;

/* What texts are read with: the characters from each first one on are of a kind, which its lowest two bits tell;
 * weights[0] has the weight of a word by its number of occurrences, up to MOST, and weights[1] that of a common one. */
typedef struct {
    const uint32_t *kinds;
    size_t kind_count;
    const uint64_t *common;
    const double *weights;
    size_t dimensions, buckets;
} lexicon;

static uint32_t crcs[256];

__attribute__((constructor)) static void fill_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
        crcs[byte] = crc;
    }
}

static int is_in_run(uint8_t byte) {
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

static void count(counts *counted, const uint8_t *start, size_t length, uint32_t crc) {
    word found = {start, length, ~crc, 1};
    size_t slot = found.crc & (counted->slots - 1);
    for (; counted->table[slot]; slot = (slot + 1) & (counted->slots - 1)) {
        word *other = counted->words + counted->table[slot] - 1;
        if (other->crc == found.crc && other->length == length && !memcmp(other->start, start, length)) {
            other->count++;
            return;
        }
    }
    counted->words[counted->distinct++] = found;
    counted->table[slot] = (uint16_t)counted->distinct;
}

static void count_bytes(counts *counted, const uint8_t *start, const uint8_t *end) {
    uint32_t crc = ~(uint32_t)0;
    for (const uint8_t *at = start; at < end; at++) crc = crcs[(crc ^ *at) & 255] ^ crc >> 8;
    count(counted, start, (size_t)(end - start), crc);
}

/* Reads the next character of UTF-8, and returns its kind. */
static enum kind next_kind(const lexicon *read, const uint8_t **at, const uint8_t *end) {
    uint8_t lead = *(*at)++;
    int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0;
    uint32_t character = more ? lead & 0x7F >> (more + 1) : lead;
    while (more-- && *at < end) character = character << 6 | (*(*at)++ & 63);
    size_t low = 0, high = read->kind_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (read->kinds[middle] >> 2 <= character) low = middle;
        else high = middle;
    }
    return read->kinds[low] & 3;
}

/* How far the runs that are not ASCII have been read. */
typedef struct {
    size_t words, characters;
} progress;

/* Counts the words of a run, and the pairs of characters of a script without spaces. */
static void count_run(counts *counted, const lexicon *read, const uint8_t *at, const uint8_t *end, progress *others) {
    const uint8_t *word_start = NULL, *unspaced = NULL; /* the word that is being read; the character before, if it is one */
    while (at < end) {
        const uint8_t *start = at;
        enum kind kind = next_kind(read, &at, end);
        others->characters++;
        if (kind != LETTER && word_start) {
            if (others->words++ < MAX_WORDS) count_bytes(counted, word_start, start);
            word_start = NULL;
        }
        if (kind == LETTER && !word_start) word_start = start;
        if (kind == UNSPACED) {
            if (others->words++ < MAX_WORDS) count_bytes(counted, start, at);
            if (unspaced && others->characters <= MAX_WORDS) count_bytes(counted, unspaced, at);
        }
        unspaced = kind == UNSPACED ? start : NULL;
    }
    if (word_start && others->words++ < MAX_WORDS) count_bytes(counted, word_start, end);
    others->characters++;
}

static void count_words(counts *counted, const lexicon *read, const uint8_t *at, size_t size) {
    const uint8_t *end = at + size;
    progress others = {0, 0};
    counted->distinct = 0;
    counted->slots = 16;
    while (counted->slots < size + 1 && counted->slots < SLOTS) counted->slots *= 2;
    memset(counted->table, 0, counted->slots * sizeof *counted->table);
    for (size_t runs = 0; runs < MAX_WORDS; runs++) {
        while (at < end && !is_in_run(*at)) at++;
        if (at == end) return;
        const uint8_t *start = at;
        uint32_t crc = ~(uint32_t)0;
        uint8_t bits = 0;
        for (; at < end && is_in_run(*at); at++) bits |= *at, crc = crcs[(crc ^ *at) & 255] ^ crc >> 8;
        if (bits < 128) count(counted, start, (size_t)(at - start), crc);
        else count_run(counted, read, start, at, &others);
    }
}

/* Returns the squared length of a vector of whole numbers, whose squares add up exactly in any order. */
static double squares_of(const double *vector, size_t dimensions) {
    double squares = 0;
    for (size_t at = 0; at < dimensions; at++) squares += vector[at] * vector[at];
    return squares;
}

/* Rounds to a whole number, to the even one from the middle. */
static double rounded(double number) { return number + 0x1.8p52 - 0x1.8p52; }

/* Adds the words of a part to the text's vector; writes their buckets, and returns their number. */
static size_t add_part(const counts *counted, const lexicon *read, double *part, double *text, uint16_t *buckets) {
    memset(part, 0, read->dimensions * sizeof *part);
    for (const word *each = counted->words; each < counted->words + counted->distinct; each++) {
        uint64_t hash = each->crc * UINT64_C(0x9E3779B97F4A7C15), high = hash >> 32;
        double weight = read->weights[each->count + (is_common(read->common, each) ? MOST + 1 : 0)];
        part[high * read->dimensions >> 32] += hash >> 31 & 1 ? weight : -weight;
        *buckets++ = (uint16_t)(high * read->buckets >> 32);
    }
    double squares = squares_of(part, read->dimensions), length = sqrt(squares ? squares : 1);
    for (size_t at = 0; at < read->dimensions; at++) text[at] += rounded(UNIT * (part[at] / length));
    return counted->distinct;
}

/* Embeds texts: the bytes of their parts follow each other, and sizes has their numbers.
 *
 * Writes a vector for each text, the buckets of its parts' distinct words, and the number of these. `sums` is room for
 * two vectors; of buckets, there is room for one a byte. */
void embed_words(const uint8_t *bytes, const size_t *sizes, size_t texts, const lexicon *read, double *sums, float *vectors,
                 uint16_t *buckets, size_t *numbers) {
    static _Thread_local counts counted;
    size_t dimensions = read->dimensions;
    double *part = sums, *text = sums + dimensions;
    for (; texts--; vectors += dimensions, buckets += *numbers++) {
        memset(text, 0, dimensions * sizeof *text);
        *numbers = 0;
        for (int each = 0; each < PARTS; bytes += *sizes++, each++) {
            count_words(&counted, read, bytes, *sizes);
            *numbers += add_part(&counted, read, part, text, buckets + *numbers);
        }
        double squares = squares_of(text, dimensions);
        if (!squares) text[0] = squares = 1; /* no words, or they cancel each other out */
        double length = sqrt(squares);
        for (size_t at = 0; at < dimensions; at++) vectors[at] = (float)(text[at] / length);
    }
}
