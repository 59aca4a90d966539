/* Part of an operand on its way to shared memory through registers, four elements that are neighbours on the contiguous
 * axis at a time, in one load where alignment allows. A thread fetches the next step's while the block still multiplies
 * this one's. */
#pragma once

#include "ops/gemm/tile.cuh"

/* LINES lines by DEPTH, dealt out to THREADS threads: COUNT quads each. */
template <typename T, int LINES, int DEPTH, int THREADS> struct lls__gemm_quads {
    enum { COUNT = LINES * DEPTH / 4 / THREADS };
    lls__gemm_operand x; /* begins at the next step */
    bool by_depth;       /* the neighbours are; else they are lines */
    bool aligned;
    T quads[COUNT][4];

    __device__ __forceinline__ void start(const lls__gemm_operand &operand) {
        x = operand;
        by_depth = x.depth_stride == 1 || x.line_stride != 1;
        int64_t along = by_depth ? x.depth_stride : x.line_stride, other = by_depth ? x.line_stride : x.depth_stride;
        aligned = along == 1 && (uint64_t)x.data % (4 * sizeof(T)) == 0 && other % 4 == 0;
    }
    /* First element of quad i. */
    __device__ __forceinline__ int line_of(int i) const {
        int number = threadIdx.x + i * THREADS;
        return by_depth ? number / (DEPTH / 4) : number % (LINES / 4) * 4;
    }
    __device__ __forceinline__ int depth_of(int i) const {
        int number = threadIdx.x + i * THREADS;
        return by_depth ? number % (DEPTH / 4) * 4 : number / (LINES / 4);
    }

    /* The next step to `quads`; 0 for what is not there. */
    __device__ __forceinline__ void fetch() {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int line = line_of(i), depth = depth_of(i);
            const T *from = (const T *)x.data + line * x.line_stride + depth * x.depth_stride;
            int64_t stride = by_depth ? x.depth_stride : x.line_stride;
            int64_t left = by_depth ? x.depth - depth : x.lines - line;
            if (by_depth ? line >= x.lines : depth >= x.depth) left = 0;
            if (aligned && left >= 4) {
                struct __align__(4 * sizeof(T)) vector {
                    T x[4];
                }
                all = *(const vector *)from;
#pragma unroll
                for (int e = 0; e < 4; e++) quads[i][e] = all.x[e];
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) quads[i][e] = e < left ? from[e * stride] : lls__from_f32<T>(0);
            }
        }
        x.data += x.depth_stride * DEPTH * (int64_t)sizeof(T), x.depth -= DEPTH;
    }

    /* put(line, depth, element) for all that were fetched. */
    template <typename PUT> __device__ __forceinline__ void put(PUT put) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int line = line_of(i), depth = depth_of(i);
#pragma unroll
            for (int e = 0; e < 4; e++) put(line + (by_depth ? 0 : e), depth + (by_depth ? e : 0), quads[i][e]);
        }
    }
};
