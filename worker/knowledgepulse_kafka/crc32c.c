/* The checksum of record batches (CRC-32C: RFC 3720, appendix B.4) by the processor's instruction, on three parts at a time.
 *
 * The instruction takes three cycles, and one can begin in each: a single checksum would wait for itself. */
#include <cpuid.h>
#include <nmmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PART = 1024 }; /* bytes */

/* What a checksum becomes behind PART zero bytes, by each of its bytes. */
static uint32_t behind_zeros[4][256];

static uint32_t of_bytes(uint32_t crc, const uint8_t *at, size_t size) {
    uint64_t wide = crc, eight;
    for (; size >= sizeof eight; at += sizeof eight, size -= sizeof eight) {
        memcpy(&eight, at, sizeof eight);
        wide = _mm_crc32_u64(wide, eight);
    }
    for (; size; size--) wide = _mm_crc32_u8((uint32_t)wide, *at++);
    return (uint32_t)wide;
}

static uint32_t shifted(uint32_t crc) {
    return behind_zeros[0][crc & 255] ^ behind_zeros[1][crc >> 8 & 255] ^ behind_zeros[2][crc >> 16 & 255] ^ behind_zeros[3][crc >> 24];
}

/* Returns whether the processor has the instruction; called once, before any checksum. */
int open_crc32c(void) {
    static const uint8_t zeros[PART];
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_2)) return 0;
    for (unsigned place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) behind_zeros[place][byte] = of_bytes(byte << (8 * place), zeros, PART);
    return 1;
}

/* Returns the checksum of the bytes from a start to an end, of none if the end comes first. */
uint32_t crc32c(const uint8_t *bytes, size_t start, size_t end) {
    const uint8_t *at = bytes + start;
    size_t size = end > start ? end - start : 0;
    uint64_t first = UINT32_MAX, eight;
    for (; size >= 3 * PART; at += 3 * PART, size -= 3 * PART) {
        uint64_t second = 0, third = 0;
        for (const uint8_t *part = at; part < at + PART; part += sizeof eight) {
            memcpy(&eight, part, sizeof eight), first = _mm_crc32_u64(first, eight);
            memcpy(&eight, part + PART, sizeof eight), second = _mm_crc32_u64(second, eight);
            memcpy(&eight, part + 2 * PART, sizeof eight), third = _mm_crc32_u64(third, eight);
        }
        first = shifted(shifted((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    return ~of_bytes((uint32_t)first, at, size);
}
