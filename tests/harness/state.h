/* Inside the harness: the buffers of the case that runs now. */
#ifndef TESTS_HARNESS_STATE_H
#define TESTS_HARNESS_STATE_H

#include "core/ctx.h"
#include "harness/harness.h"

enum { TH_MAX_BUFFERS = 128 };

typedef double th_fill(int64_t i, const void *user);

typedef struct th_buffer {
    lls_tensor view, host_view; /* on the device under test; in its host image */
    void *device;               /* guards included */
    char *host, *initial;       /* host image now, and as it was before the call */
    size_t bytes;               /* without guards */
    const char *output;         /* NULL: an input */
    double tol;
    bool allow_nan;
    th_fill *fill; /* made the elements; NULL: not th_filled */
    bool normal;   /* th_normal did */
    uint64_t seed; /* of the state once they were made */
} th_buffer;

struct th_state {
    th_buffer buffers[TH_MAX_BUFFERS];
    int num_buffers;
    uint64_t seed;
    bool reference, failed, refused, error_case;
    double worst;
    char message[512], refusal[512];
    const struct th_state *twin; /* of the side that ran before: the same calls made the same numbers; NULL: none did */
    struct th_walk *walk;
};

uint64_t th_seed_from(const char *text);
th_buffer *th_find(th *h, const lls_tensor *t);
void th_refresh(th *h, th_buffer *b);
void th_check_guards(th *h);
void th_compare(th *h, const th_buffer *got, const th_buffer *want);

#endif
