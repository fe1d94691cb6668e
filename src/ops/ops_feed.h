/* ops_feed.h - routed experts that are not all in memory: a stage says which ones it needs and takes them as they arrive.
 *
 * The stage decides nothing about memory, the feed nothing about numbers: an output is the sum of its experts' contributions in
 * ascending id, whatever the order in which they came. Thread: the device's. */
#ifndef OPS_OPS_FEED_H
#define OPS_OPS_FEED_H

#include "ops/ops_types.h"

/* A routed or shared expert: w1 gate branch, w3 up branch, w2 down. */
typedef struct ops_expert {
    const ops_matrix *w1; /* [inter, hidden] */
    const ops_matrix *w2; /* [hidden, inter] */
    const ops_matrix *w3; /* [inter, hidden] */
} ops_expert;

typedef struct ops_feed ops_feed;

struct ops_feed { /* owner: who gives it to the stage */
    /* These experts, ids [n] in ascending order, are needed, each once. Starts reading and does not wait. */
    void (*begin)(ops_feed *feed, const int32_t *ids, int32_t n);
    /* Experts that are there now and were not taken yet, at least one of those that are left: waits when there is none. experts[id] is set
     * for each of ids [*n], which has room for all. They stay until `done`. */
    di_status (*take)(ops_feed *feed, int32_t *ids, int32_t *n, ops_expert *experts, di_error *err);
    /* What was taken is used no more. */
    void (*done)(ops_feed *feed);
};

#endif
