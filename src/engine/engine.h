/* engine.h - what other rooms may use of the engine, beyond the public <deepinfer/engine.h>: nothing yet. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <deepinfer/engine.h>

#endif
