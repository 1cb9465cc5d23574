/* Checks a trace and finds what its score takes, in one pass, with no object for any member.
 *
 * It accepts only what the schema accepts, of which scanned_traces.py makes the tables, and leaves each doubt to the decoder: names with
 * escapes, members that appear twice, exponents, unusual date-times, lone surrogates, more steps or tools than there is room for.
 *
 * Each function returns the byte behind what it has read, or NULL in doubt. A value ends with a zero byte, which no JSON may
 * have outside of texts, so that only texts need to know their end. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    DEPTH = 100,   /* of nested members that no one reads */
    SLOTS = 16,    /* of a trace; this and the next two are those of scanned_traces.py */
    ROWS = 1024,   /* of steps */
    COLUMNS = 4,   /* of a step: its type, the name of its tool, its content and its input */
    TOOLS = 64,    /* with different names */
};

enum kind { ANY, OBJECT, MAP, ARRAY, STEPS, TEXT, NOT_EMPTY, PREFIXED, CHOICE, DATE_TIME, FLAG, WHOLE, REAL, NOT_NEGATIVE, SHARE, UNKNOWN };

enum form { NEGATIVE = 1, FRACTION = 2, EXPONENT = 4 };

/* Of the value's bytes; of a choice, its number from 1 on; of a flag, 0 or 1. All zeros for a null, unless it stands for a number. */
typedef struct {
    uint32_t start, end;
} range;

typedef struct {
    uint16_t kind, is_nullable;
    uint16_t first, count; /* the members of an object, or the choices; of maps and arrays, first is the items' type */
    uint32_t required;     /* members of an object, by their bits */
} type;

/* A member of an object, a choice, or a prefix. */
typedef struct {
    uint16_t name, length; /* where the bytes of names have it */
    uint16_t type;
    int16_t slot;          /* where its range goes, in the trace or in its row; -1 to drop it */
} member;

typedef struct {
    const type *types; /* the first is that of a trace */
    const member *members;
    const uint8_t *names;
    uint32_t recovery, observation; /* the numbers of these types of steps */
} schema;

typedef struct {
    range columns[COLUMNS];
    uint32_t escaped; /* columns, by their bits */
} row;

typedef struct {
    uint32_t escaped; /* slots, by their bits */
    uint32_t steps, types, recoveries, tools;
    range slots[SLOTS];
    row rows[ROWS];
} scanned;

typedef struct {
    const uint8_t *start, *end;
    const schema *schema;
    scanned *found;
    int only_checks; /* rows are written over */
} source;

/* Where ranges go: the slots of a trace, or the columns of a row. */
typedef struct {
    range *ranges;
    uint32_t *escaped;
} target;

static const uint8_t *space(const uint8_t *at) {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
    return at;
}

/* Passes over ASCII characters without quotes and backslashes. */
static const uint8_t *plain(const uint8_t *at, const uint8_t *end) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), least = _mm_set1_epi8(' ');
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at), ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        int found = _mm_movemask_epi8(_mm_or_si128(ends, _mm_cmplt_epi8(bytes, least))); /* signed: beyond ASCII, too */
        if (found) return at + __builtin_ctz((unsigned)found);
    }
#endif
    while (at < end && *at >= ' ' && *at < 0x80 && *at != '"' && *at != '\\') at++;
    return at;
}

static int is_next(const uint8_t *at) { return (*at & 0xC0) == 0x80; }

/* Reads a character of UTF-8 beyond ASCII. */
static const uint8_t *character(const uint8_t *at, const uint8_t *end) {
    uint8_t lead = at[0];
    if (lead < 0xC2 || lead > 0xF4) return NULL;
    ptrdiff_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (end - at < length) return NULL;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) return NULL;
    for (ptrdiff_t next = 2; next < length; next++)
        if (!is_next(at + next)) return NULL;
    return at + length;
}

/* Returns the number of four hexadecimal digits; -1 if they are none. */
static int32_t hexadecimal(const uint8_t *at) {
    int32_t number = 0;
    for (int digit = 0; digit < 4; digit++, at++) {
        if (*at >= '0' && *at <= '9') number = number << 4 | (*at - '0');
        else if ((*at | 32) >= 'a' && (*at | 32) <= 'f') number = number << 4 | ((*at | 32) - 'a' + 10);
        else return -1;
    }
    return number;
}

static const uint8_t *escape(const uint8_t *at, const uint8_t *end) {
    if (end - at < 2) return NULL;
    switch (at[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': return at + 2;
    case 'u': break;
    default: return NULL;
    }
    int32_t unit = end - at < 6 ? -1 : hexadecimal(at + 2);
    if (unit < 0xD800 || unit > 0xDFFF) return unit < 0 ? NULL : at + 6;
    if (unit > 0xDBFF || end - at < 12 || at[6] != '\\' || at[7] != 'u') return NULL;
    int32_t second = hexadecimal(at + 8);
    return second >= 0xDC00 && second <= 0xDFFF ? at + 12 : NULL;
}

/* Reads a text from its opening quote on. */
static const uint8_t *text(const uint8_t *at, const uint8_t *end, uint32_t *is_escaped) {
    *is_escaped = 0;
    for (at++;;) {
        at = plain(at, end);
        if (at >= end) return NULL;
        if (*at == '"') return at + 1;
        if (*at == '\\') {
            *is_escaped = 1;
            if (!(at = escape(at, end))) return NULL;
        } else if (*at < 0x80) return NULL;
        else while (at < end && *at >= 0x80)
            if (!(at = character(at, end))) return NULL;
    }
}

static const uint8_t *digits(const uint8_t *at) {
    while (*at >= '0' && *at <= '9') at++;
    return at;
}

static const uint8_t *number(const uint8_t *at, unsigned *form) {
    const uint8_t *behind;
    *form = 0;
    if (*at == '-') *form |= NEGATIVE, at++;
    behind = *at == '0' ? at + 1 : digits(at);
    if (behind == at) return NULL;
    if (*behind == '.') {
        *form |= FRACTION, at = behind + 1, behind = digits(at);
        if (behind == at) return NULL;
    }
    if ((*behind | 32) == 'e') {
        *form |= EXPONENT, at = behind + 1;
        if (*at == '+' || *at == '-') at++;
        behind = digits(at);
        if (behind == at) return NULL;
    }
    return behind;
}

static const uint8_t *word(const uint8_t *at, const char *letters) {
    for (; *letters; letters++, at++)
        if (*at != (uint8_t)*letters) return NULL;
    return at;
}

/* Passes over a value of any type. */
static const uint8_t *skip(const uint8_t *at, const uint8_t *end, int depth) {
    uint32_t is_escaped;
    unsigned form;
    if (depth > DEPTH) return NULL;
    switch (*at) {
    case '"': return text(at, end, &is_escaped);
    case 't': return word(at, "true");
    case 'f': return word(at, "false");
    case 'n': return word(at, "null");
    case '{':
    case '[': break;
    default: return number(at, &form);
    }
    uint8_t is_object = *at == '{', closing = is_object ? '}' : ']';
    at = space(at + 1);
    if (*at == closing) return at + 1;
    for (;; at = space(at + 1)) {
        if (is_object) {
            if (*at != '"' || !(at = text(at, end, &is_escaped)) || *(at = space(at)) != ':') return NULL;
            at = space(at + 1);
        }
        if (!(at = skip(at, end, depth + 1))) return NULL;
        at = space(at);
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
    }
}

static int is_equal(const schema *read, const member *known, const uint8_t *name, size_t length) {
    return known->length == length && !memcmp(read->names + known->name, name, length);
}

/* Returns two digits as a number, or -1 if it is larger than the most. */
static int two_digits(const uint8_t *at, int most) {
    if (at[0] < '0' || at[0] > '9' || at[1] < '0' || at[1] > '9') return -1;
    int number = (at[0] - '0') * 10 + at[1] - '0';
    return number <= most ? number : -1;
}

/* Returns whether a text is a date-time in UTC such as 2026-01-31T12:00:00.123Z; others are left to the decoder. */
static int is_date_time(const uint8_t *at, size_t length) {
    static const int days[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (length < 20 || length > 27 || at[length - 1] != 'Z') return 0;
    if (at[4] != '-' || at[7] != '-' || at[10] != 'T' || at[13] != ':' || at[16] != ':') return 0;
    int month = two_digits(at + 5, 12), day = two_digits(at + 8, 31);
    if (two_digits(at, 99) < 1 || two_digits(at + 2, 99) < 0 || month < 1 || day < 1 || day > days[month]) return 0;
    if (two_digits(at + 11, 23) < 0 || two_digits(at + 14, 59) < 0 || two_digits(at + 17, 59) < 0) return 0;
    return length == 20 || (at[19] == '.' && length > 21 && digits(at + 20) == at + length - 1);
}

/* Returns whether a text is what the type demands; sets the range of a choice. */
static int fits(const schema *read, const type *wanted, const uint8_t *at, size_t length, uint32_t is_escaped, range *found) {
    const member *known = read->members + wanted->first;
    switch (wanted->kind) {
    case TEXT: return 1;
    case NOT_EMPTY: return length > 0;
    case PREFIXED: return !is_escaped && length >= known->length && !memcmp(at, read->names + known->name, known->length);
    case DATE_TIME: return !is_escaped && is_date_time(at, length);
    case CHOICE:
        for (uint16_t choice = 0; choice < wanted->count; choice++)
            if (is_equal(read, known + choice, at, length)) return (int)(found->start = found->end = choice + 1u);
    }
    return 0;
}

/* Returns whether a number is what the type demands, in few enough digits to be read exactly alike. */
static int is_in_range(uint16_t kind, const uint8_t *at, size_t length, unsigned form) {
    if (length > 24 || form & EXPONENT) return 0;
    if (kind == REAL) return 1;
    if (form & NEGATIVE) return 0;
    if (kind == WHOLE) return !form && length <= 15;
    if (kind == NOT_NEGATIVE || *at == '0') return 1;
    if (*at != '1') return 0; /* a share, up to 1.000 */
    for (size_t digit = 1; digit < length; digit++)
        if (at[digit] != (digit == 1 ? '.' : '0')) return 0;
    return 1;
}

static const uint8_t *value(source *from, const uint8_t *at, uint16_t number, target to, int slot, int depth);

static const uint8_t *object(source *from, const uint8_t *at, const type *wanted, target to, int depth) {
    const schema *read = from->schema;
    uint32_t seen = 0;
    uint16_t next = 0; /* members mostly have the order of the schema */
    if (*at != '{') return NULL;
    at = space(at + 1);
    if (*at == '}') return wanted->required ? NULL : at + 1;
    for (;; at = space(at + 1)) {
        uint32_t is_escaped;
        const uint8_t *name = at + 1;
        if (*at != '"' || !(at = text(at, from->end, &is_escaped)) || is_escaped) return NULL;
        size_t length = (size_t)(at - name) - 1;
        if (*(at = space(at)) != ':') return NULL;
        at = space(at + 1);
        const member *known = NULL;
        for (uint16_t tried = 0; tried < wanted->count && !known; tried++, next++) {
            if (next >= wanted->count) next = 0;
            if (is_equal(read, read->members + wanted->first + next, name, length)) known = read->members + wanted->first + next;
        }
        if (known) {
            uint32_t bit = UINT32_C(1) << (known - read->members - wanted->first);
            if (seen & bit) return NULL;
            seen |= bit;
            at = value(from, at, known->type, to, known->slot, depth + 1);
        } else at = skip(at, from->end, depth + 1);
        if (!at) return NULL;
        at = space(at);
        if (*at == '}') return (seen & wanted->required) == wanted->required ? at + 1 : NULL;
        if (*at != ',') return NULL;
    }
}

/* Reads an array, of steps into a row for each, or an object with names of any kind. */
static const uint8_t *items(source *from, const uint8_t *at, const type *wanted, target to, int depth) {
    uint8_t is_map = wanted->kind == MAP, closing = is_map ? '}' : ']';
    scanned *found = from->found;
    if (*at != (is_map ? '{' : '[')) return NULL;
    at = space(at + 1);
    if (*at == closing) return wanted->required ? NULL : at + 1;
    for (;; at = space(at + 1)) {
        if (is_map) {
            uint32_t is_escaped;
            if (*at != '"' || !(at = text(at, from->end, &is_escaped)) || *(at = space(at)) != ':') return NULL;
            at = space(at + 1);
        }
        if (wanted->kind == STEPS) {
            if (found->steps == ROWS) {
                if (!from->only_checks) return NULL;
                found->steps = 0;
            }
            row *step = found->rows + found->steps++;
            memset(step, 0, sizeof *step);
            to = (target){step->columns, &step->escaped};
        }
        if (!(at = value(from, at, wanted->first, to, -1, depth + 1))) return NULL;
        at = space(at);
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
    }
}

/* Reads a value of a type of the schema, and puts its range into a slot, if it has one. */
static const uint8_t *value(source *from, const uint8_t *at, uint16_t number_of_type, target to, int slot, int depth) {
    const type *wanted = from->schema->types + number_of_type;
    const uint8_t *start = at;
    uint32_t is_escaped = 0;
    unsigned form;
    range found = {0, 0};
    if (depth > DEPTH) return NULL;
    if (*at == 'n' && wanted->is_nullable) {
        if (!(at = word(at, "null"))) return NULL;
        if (wanted->kind >= WHOLE) found = (range){(uint32_t)(start - from->start), (uint32_t)(at - from->start)};
    } else switch (wanted->kind) {
    case ANY:
        if (!(at = skip(at, from->end, depth))) return NULL;
        found = (range){(uint32_t)(start - from->start), (uint32_t)(at - from->start)};
        break;
    case OBJECT:
        if (!(at = object(from, at, wanted, to, depth))) return NULL;
        found = (range){(uint32_t)(start - from->start), (uint32_t)(at - from->start)};
        break;
    case MAP:
    case ARRAY:
    case STEPS:
        if (!(at = items(from, at, wanted, to, depth))) return NULL;
        found = (range){(uint32_t)(start - from->start), (uint32_t)(at - from->start)};
        break;
    case FLAG:
        found.start = found.end = *at == 't';
        at = word(at, *at == 't' ? "true" : "false");
        break;
    case WHOLE:
    case REAL:
    case NOT_NEGATIVE:
    case SHARE:
        at = number(at, &form);
        if (!at || !is_in_range(wanted->kind, start, (size_t)(at - start), form)) return NULL;
        found = (range){(uint32_t)(start - from->start), (uint32_t)(at - from->start)};
        break;
    case UNKNOWN: return NULL;
    default:
        if (*at != '"' || !(at = text(at, from->end, &is_escaped))) return NULL;
        found = (range){(uint32_t)(start + 1 - from->start), (uint32_t)(at - 1 - from->start)};
        if (!fits(from->schema, wanted, start + 1, (size_t)(at - start) - 2, is_escaped, &found)) return NULL;
    }
    if (slot >= 0) to.ranges[slot] = found, *to.escaped |= is_escaped << slot;
    return at;
}

/* Writes a character in UTF-8. */
static uint8_t *encoded(uint32_t character, uint8_t *to) {
    if (character < 0x80) return *to = (uint8_t)character, to + 1;
    int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    *to++ = (uint8_t)((0xFF << (7 - more) & 0xFF) | character >> 6 * more);
    while (more--) *to++ = (uint8_t)(0x80 | (character >> 6 * more & 63));
    return to;
}

/* Writes what a text that was checked holds, up to its closing quote, in no more bytes than it has. */
static uint8_t *contents(const uint8_t **at, const uint8_t *end, uint8_t *to) {
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    for (;;) {
        const uint8_t *behind = plain(*at, end);
        while (*behind >= 0x80) behind = plain(behind + 1, end);
        memcpy(to, *at, (size_t)(behind - *at));
        to += behind - *at, *at = behind;
        if (*behind == '"') return to;
        const char *letter = strchr(letters, (*at)[1]);
        if ((*at)[1] != 'u') *to++ = letter ? (uint8_t)meant[letter - letters] : (*at)[1], *at += 2;
        else {
            uint32_t character = (uint32_t)hexadecimal(*at + 2), is_pair = character >> 10 == 0xD800 >> 10;
            if (is_pair) character = 0x10000 + ((character & 0x3FF) << 10) + ((uint32_t)hexadecimal(*at + 8) & 0x3FF);
            to = encoded(character, to), *at += is_pair ? 12 : 6;
        }
    }
}

static int is_between_words(uint8_t byte) {
    switch (byte) {
    case ' ': case '\t': case '\n': case '\r': case '{': case '}': case '[': case ']': case ':': case ',': return 1;
    }
    return 0;
}

/* Writes the names and values of an object, with spaces between them, but for its nulls. */
static uint8_t *names_and_values(const uint8_t *at, const uint8_t *end, uint8_t *to) {
    while (at < end) {
        if (*at == '"') {
            at++, to = contents(&at, end, to), at++;
            *to++ = ' ';
        } else if (is_between_words(*at)) at++;
        else {
            const uint8_t *start = at;
            while (!is_between_words(*at)) at++;
            if (*start == 'n') continue;
            memcpy(to, start, (size_t)(at - start));
            to += at - start;
            *to++ = ' ';
        }
    }
    return to;
}

/* Counts the types of steps, and the different names of tools; returns 0 in doubt. */
static int count_steps(const uint8_t *start, const schema *read, scanned *found) {
    const range *tools[TOOLS];
    for (const row *step = found->rows; step < found->rows + found->steps; step++) {
        const range *kind = step->columns, *tool = step->columns + 1;
        found->types |= UINT32_C(1) << (kind->start - 1);
        found->recoveries += kind->start == read->recovery;
        if (!tool->start) continue;
        if (step->escaped & 2) return 0;
        uint32_t length = tool->end - tool->start, known = 0;
        while (known < found->tools && (tools[known]->end - tools[known]->start != length || memcmp(start + tools[known]->start, start + tool->start, length))) known++;
        if (known < found->tools) continue;
        if (known == TOOLS) return 0;
        tools[found->tools++] = tool;
    }
    return 1;
}

static int is_trace(source *from) {
    const uint8_t *start = from->start;
    if (from->end - start > UINT32_MAX) return 0;
    memset(from->found, 0, offsetof(scanned, rows));
    start = value(from, space(start), 0, (target){from->found->slots, &from->found->escaped}, -1, 0);
    return start && space(start) == from->end;
}

/* Returns whether a value, behind which is a zero byte, is a trace, and what was found in it. */
int scan_trace(const uint8_t *bytes, size_t size, const schema *read, scanned *found) {
    source from = {bytes, bytes + size, read, found, 0};
    return is_trace(&from) && count_steps(bytes, read, found);
}

/* The same for traces with any number of steps, of which nothing is told. */
int check_trace(const uint8_t *bytes, size_t size, const schema *read, scanned *found) {
    source from = {bytes, bytes + size, read, found, 1};
    return is_trace(&from);
}

/* Writes the texts of a trace's steps that scoring/text.py reads of them, with spaces between them, after scan_trace has found
 * them; returns their size, or -1 if they have more bytes than there is room for. */
ptrdiff_t steps_text(const uint8_t *bytes, size_t size, const schema *read, const scanned *found, uint8_t *text, size_t room) {
    uint8_t *to = text;
    for (const row *step = found->rows; step < found->rows + found->steps; step++) {
        const range *tool = step->columns + 1, *content = step->columns + 2, *input = step->columns + 3;
        int is_observation = step->columns->start == read->observation;
        size_t needed = (size_t)(content->end - content->start) + (tool->end - tool->start) + (input->end - input->start) + 3;
        if (needed > room - (size_t)(to - text)) return -1;
        if (content->start && !(is_observation && tool->start)) {
            const uint8_t *at = bytes + content->start;
            to = contents(&at, bytes + size, to);
        }
        *to++ = ' ';
        if (is_observation) continue;
        if (tool->start) {
            const uint8_t *at = bytes + tool->start;
            to = contents(&at, bytes + size, to);
            *to++ = ' ';
        }
        if (input->start) to = names_and_values(bytes + input->start, bytes + input->end, to);
    }
    return to - text;
}
