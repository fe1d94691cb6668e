/* interrupt.c - see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

void cli_block_interrupt(bool block)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

bool cli_take_interrupt(void)
{
    const struct timespec now = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    return sigtimedwait(&set, NULL, &now) == SIGINT;
}
