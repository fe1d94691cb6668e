/* recipe.h - what other rooms may use of the conversation layer: the public interface is all of it. */
#ifndef RECIPE_RECIPE_H
#define RECIPE_RECIPE_H

#include <deepinfer/recipe.h>

#endif
