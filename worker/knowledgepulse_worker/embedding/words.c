/* Embeds texts by their words, as lexical.py and scoring/words.py do without a compiler. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    PARTS = 3,               /* of a text; these limits are those of scoring/words.py */
    MAX_WORDS = 4096,        /* of a part that are ASCII, or are not; and characters that are searched for pairs */
    MOST = 3 * MAX_WORDS,    /* words of a part, with pairs */
    SLOTS = 1 << 15,         /* of the table of a part's words, which is never full: it has more slots than words or bytes */
    COMMON_SLOTS = 1024,     /* of the table of common words, as word_vectors.py fills it */
    AT_ONCE = 8,             /* bytes that are hashed at a time */
    UNIT = 1 << 20,          /* of a part's vector */
    LANES = 2,               /* numbers of a register */
};

typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));

enum kind { SEPARATOR, LETTER, UNSPACED };

typedef struct {
    const uint8_t *start;
    size_t length;
    uint64_t letters; /* its first bytes, with zeros behind them */
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

/* The checksums of a byte before so many zeros, from no bytes on, and of so many zeros, from where a checksum begins: those of
 * several bytes are looked up at a time (slicing by 8: Kounavis and Berry 2005, doi:10.1109/ISCC.2005.18). */
static uint32_t crcs[AT_ONCE][256], crcs_of_zeros[AT_ONCE + 1];

__attribute__((constructor)) static void fill_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
        crcs[0][byte] = crc;
    }
    crcs_of_zeros[0] = ~(uint32_t)0;
    for (int zeros = 1; zeros <= AT_ONCE; zeros++) {
        uint32_t crc = crcs_of_zeros[zeros - 1];
        crcs_of_zeros[zeros] = crcs[0][crc & 255] ^ crc >> 8;
        for (int byte = 0; byte < 256 && zeros < AT_ONCE; byte++) {
            crc = crcs[zeros - 1][byte];
            crcs[zeros][byte] = crcs[0][crc & 255] ^ crc >> 8;
        }
    }
}

/* Returns bytes as a number, the first in its lowest bits; room is how many may be read. */
static inline uint64_t number_of(const uint8_t *start, size_t length, size_t room) {
    uint64_t number = 0;
    if (room < sizeof number) memcpy(&number, start, length);
    else {
        memcpy(&number, start, sizeof number);
        if (length < sizeof number) number &= (UINT64_C(1) << 8 * length) - 1;
    }
    return number;
}

/* Returns what bytes contribute to a checksum; the last is in the number's highest bits. */
static inline uint32_t crc_of(uint64_t number) {
    return crcs[7][number & 255] ^ crcs[6][number >> 8 & 255] ^ crcs[5][number >> 16 & 255] ^ crcs[4][number >> 24 & 255]
         ^ crcs[3][number >> 32 & 255] ^ crcs[2][number >> 40 & 255] ^ crcs[1][number >> 48 & 255] ^ crcs[0][number >> 56];
}

static int is_in_run(uint8_t byte) {
    return byte > 127 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

/* Returns where a run ends; tells whether it has bytes beyond ASCII. */
static const uint8_t *end_of_run(const uint8_t *at, const uint8_t *end, int *is_beyond) {
    *is_beyond = 0;
#ifdef __SSE2__
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at), small = _mm_or_si128(bytes, _mm_set1_epi8(' '));
        __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(small, _mm_set1_epi8('a' - 1)), _mm_cmplt_epi8(small, _mm_set1_epi8('z' + 1)));
        __m128i digits = _mm_and_si128(_mm_cmpgt_epi8(bytes, _mm_set1_epi8('0' - 1)), _mm_cmplt_epi8(bytes, _mm_set1_epi8('9' + 1)));
        __m128i others = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('_')), bytes); /* beyond ASCII, the highest bit is set */
        int outside = ~_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(letters, digits), others)) & 0xFFFF;
        int beyond = _mm_movemask_epi8(bytes);
        *is_beyond |= outside ? beyond & ((outside & -outside) - 1) : beyond;
        if (outside) return at + __builtin_ctz((unsigned)outside);
    }
#endif
    for (; at < end && is_in_run(*at); at++) *is_beyond |= *at & 0x80;
    return at;
}

static int is_common(const uint64_t *common, const word *found) {
    if (found->length > sizeof found->letters) return 0;
    for (size_t slot = found->crc % COMMON_SLOTS; common[slot]; slot = (slot + 1) % COMMON_SLOTS)
        if (common[slot] == found->letters) return 1;
    return 0;
}

/* Counts a word; end is that of the bytes that may be read. */
static void count(counts *counted, const uint8_t *start, size_t length, const uint8_t *end) {
    word found = {start, length, number_of(start, length < AT_ONCE ? length : AT_ONCE, (size_t)(end - start)), 0, 1};
    size_t first = (length - 1) % AT_ONCE + 1;
    uint32_t crc = crc_of(found.letters << 8 * (AT_ONCE - first)) ^ crcs_of_zeros[first];
    for (const uint8_t *at = start + first; at < start + length; at += AT_ONCE) crc = crc_of(number_of(at, AT_ONCE, AT_ONCE) ^ crc);
    found.crc = ~crc;
    size_t slot = found.crc & (counted->slots - 1);
    for (; counted->table[slot]; slot = (slot + 1) & (counted->slots - 1)) {
        word *other = counted->words + counted->table[slot] - 1;
        if (other->crc != found.crc || other->length != length || other->letters != found.letters) continue;
        if (length <= AT_ONCE || !memcmp(other->start + AT_ONCE, start + AT_ONCE, length - AT_ONCE)) {
            other->count++;
            return;
        }
    }
    counted->words[counted->distinct++] = found;
    counted->table[slot] = (uint16_t)counted->distinct;
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
            if (others->words++ < MAX_WORDS) count(counted, word_start, (size_t)(start - word_start), end);
            word_start = NULL;
        }
        if (kind == LETTER && !word_start) word_start = start;
        if (kind == UNSPACED) {
            if (others->words++ < MAX_WORDS) count(counted, start, (size_t)(at - start), end);
            if (unspaced && others->characters <= MAX_WORDS) count(counted, unspaced, (size_t)(at - unspaced), end);
        }
        unspaced = kind == UNSPACED ? start : NULL;
    }
    if (word_start && others->words++ < MAX_WORDS) count(counted, word_start, (size_t)(end - word_start), end);
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
        int is_beyond;
        at = end_of_run(at, end, &is_beyond);
        if (is_beyond) count_run(counted, read, start, at, &others);
        else count(counted, start, (size_t)(at - start), end);
    }
}

/* Returns the squared length of a vector of whole numbers, whose squares add up exactly in any order. */
static double squares_of(const double *vector, size_t dimensions) {
    doubles first = {0}, second = {0}, a, b;
    double sum = 0;
    size_t at = 0;
    for (; at + 2 * LANES <= dimensions; at += 2 * LANES) {
        memcpy(&a, vector + at, sizeof a), memcpy(&b, vector + at + LANES, sizeof b);
        first += a * a, second += b * b;
    }
    for (; at < dimensions; at++) sum += vector[at] * vector[at];
    return sum + (first[0] + first[1]) + (second[0] + second[1]);
}

/* Adds a part's vector to its text's, with length 1, in whole numbers: to the even one from the middle. */
static void add_units(double *restrict text, const double *restrict part, double length, size_t dimensions) {
    size_t at = 0;
    for (; at + LANES <= dimensions; at += LANES) {
        doubles numbers, sum;
        memcpy(&numbers, part + at, sizeof numbers), memcpy(&sum, text + at, sizeof sum);
        sum += UNIT * (numbers / length) + 0x1.8p52 - 0x1.8p52;
        memcpy(text + at, &sum, sizeof sum);
    }
    for (; at < dimensions; at++) text[at] += UNIT * (part[at] / length) + 0x1.8p52 - 0x1.8p52;
}

/* Adds the words of a part to the text's vector; writes their buckets, and returns their number. */
static size_t add_part(const counts *counted, const lexicon *read, double *part, double *text, uint16_t *buckets) {
    if (!counted->distinct) return 0;
    memset(part, 0, read->dimensions * sizeof *part);
    for (const word *each = counted->words; each < counted->words + counted->distinct; each++) {
        uint64_t hash = each->crc * UINT64_C(0x9E3779B97F4A7C15), high = hash >> 32;
        double weight = read->weights[each->count + (is_common(read->common, each) ? MOST + 1 : 0)];
        part[high * read->dimensions >> 32] += hash >> 31 & 1 ? weight : -weight;
        *buckets++ = (uint16_t)(high * read->buckets >> 32);
    }
    double squares = squares_of(part, read->dimensions), length = sqrt(squares ? squares : 1);
    add_units(text, part, length, read->dimensions);
    return counted->distinct;
}

/* Embeds texts: the bytes of their parts follow each other, and sizes has their numbers.
 *
 * Writes a vector for each text, the buckets of its parts' distinct words, and the number of these. `sums` is room for
 * two vectors; of buckets, there is room for one a byte. */
void embed_words(const uint8_t *bytes, const size_t *sizes, size_t texts, const lexicon *read, double *sums, float *vectors,
                 uint16_t *buckets, size_t *numbers) {
    static _Thread_local counts room;
    counts *counted = &room;
    size_t dimensions = read->dimensions;
    double *part = sums, *text = sums + dimensions;
    for (; texts--; vectors += dimensions, buckets += *numbers++) {
        memset(text, 0, dimensions * sizeof *text);
        *numbers = 0;
        for (int each = 0; each < PARTS; bytes += *sizes++, each++) {
            count_words(counted, read, bytes, *sizes);
            *numbers += add_part(counted, read, part, text, buckets + *numbers);
        }
        double squares = squares_of(text, dimensions);
        if (!squares) text[0] = squares = 1; /* no words, or they cancel each other out */
        double length = sqrt(squares);
        for (size_t at = 0; at < dimensions; at++) vectors[at] = (float)(text[at] / length);
    }
}
