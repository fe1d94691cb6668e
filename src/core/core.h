/* core.h - everything the core room offers; include this or the single headers. Knows nothing of models. */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include "core/arena.h"
#include "core/arith.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/err.h"
#include "core/file.h"
#include "core/json.h"
#include "core/json_scan.h"
#include "core/log.h"
#include "core/log_text.h"
#include "core/metrics.h"
#include "core/pool.h"
#include "core/safetensors.h"
#include "core/utf8.h"

#endif
