/* Shared memory has 32 banks of 4 bytes. Rows of 128 bytes lie exactly above each other, so that eight threads reading
 * the same 16 bytes of eight rows would queue at the same four banks. Exchanging the 16-byte chunks of a row by an
 * exclusive or with the row's number spreads them over all banks: any eight rows of a chunk, and any eight chunks of a
 * row, are then read or written without a conflict. It is the order of TMA's 128-byte swizzle. */
#pragma once

#include <stdint.h>

/* Byte offset of a 16-byte chunk (0 to 7) of a 128-byte row. Bits 4 to 6 alone depend on the chunk: offset(row, x ^ y)
 * = offset(row, x) ^ 16 y. */
__device__ __forceinline__ uint32_t lls__swizzle_128(uint32_t row, uint32_t chunk) {
    return row * 128 + ((chunk ^ row) & 7) * 16;
}
