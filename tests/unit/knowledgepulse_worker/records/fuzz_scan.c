/* Scans edited traces, in arrays without a byte to spare; for sanitizers.
 *
 * `fuzz_scan FOLDER SEED SECONDS`: the folder has traces, a line each, and the schema's tables. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scan.c"

static size_t drawn(size_t limit) { return (size_t)rand() % limit; }

static uint8_t *read_file(const char *folder, const char *name, size_t *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(2);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size);
    if (fread(bytes, 1, *size, file) != *size) exit(2);
    fclose(file);
    return bytes;
}

/* Returns a line of the traces with a few edits, behind which is a zero. */
static uint8_t *edited(const uint8_t *traces, size_t total, size_t *size) {
    static const char letters[] = "\"\\{}[],:nt0-.eE u\xff\xe4\xbf\xae\xf0\x9f\x98\x80\xed\xa0";
    size_t start = drawn(total), end;
    while (start && traces[start - 1] != '\n') start--;
    for (end = start; end < total && traces[end] != '\n'; end++);
    *size = drawn(4) ? end - start : drawn(end - start + 1);
    size_t edits = 1 + drawn(4);
    uint8_t *value = malloc(*size + 1);
    memcpy(value, traces + start, *size);
    value[*size] = 0;
    while (edits-- && *size) {
        size_t at = drawn(*size);
        if (drawn(2)) value[at] = (uint8_t)letters[drawn(sizeof letters - 1)];
        else if (drawn(2)) value[at] = (uint8_t)(rand() >> 7);
        else {
            size_t other = drawn(*size), most = *size - (at > other ? at : other);
            memmove(value + at, value + other, drawn(most + 1));
        }
    }
    return value;
}

int main(int arguments, char **argument) {
    if (arguments != 4) return 2;
    srand((unsigned)atoi(argument[2]));
    size_t size;
    uint8_t *types = read_file(argument[1], "types", &size), *members = read_file(argument[1], "members", &size);
    uint8_t *names = read_file(argument[1], "names", &size), *traces = read_file(argument[1], "traces", &size);
    schema read = {(const type *)types, (const member *)members, names, 4, 3};
    time_t end = time(NULL) + atoi(argument[3]);
    long runs = 0, accepted = 0;
    do {
        size_t length;
        uint8_t *value = edited(traces, size, &length);
        scanned *found = malloc(sizeof *found);
        int is_trace = check_trace(value, length, &read, found);
        if (scan_trace(value, length, &read, found)) {
            if (!is_trace) abort();
            size_t room = drawn(9000);
            uint8_t *text = malloc(room + !room);
            if (steps_text(value, length, &read, found, text, room) > (ptrdiff_t)room) abort();
            free(text), accepted++;
        }
        free(value), free(found);
    } while (++runs < 20000 || time(NULL) < end);
    free(types), free(members), free(names), free(traces);
    printf("%ld values, %ld accepted\n", runs, accepted);
    return 0;
}
