/* cpu.h - the CPU backend's table. Only ops/backend_list.c includes this. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "ops/ops.h"

extern const ops_backend cpu_backend;

#endif
