/* faulty.h - a disk that lies: the I/O table of io.h with errors, short transfers and delays that a test turns on and off while the
 * store runs. Transfers are made by the thread that submits them and come back when their delay is over. */
#ifndef SUPPORT_FAULTY_H
#define SUPPORT_FAULTY_H

#include "core/io.h"

#include <stdatomic.h>

typedef struct faulty {
    io_table table;
    atomic_int read_error;     /* errno of every read; 0 = none */
    atomic_int write_error;
    atomic_int sync_error;
    atomic_int allocate_error;
    atomic_int create_error;   /* of opening for writing */
    atomic_int remove_error;
    atomic_bool is_short;      /* transfers end at the first multiple of 4096 inside them */
    atomic_int delay_ms;       /* of transfers */
    atomic_int n_writes;       /* so far */
    atomic_int writes_left;    /* then write_error begins; negative: never */
} faulty;

void faulty_init(faulty *f);

#endif
