/* config_file.h - a flat YAML file, `key: value` or `key: [values]`, as a stream of entries.
 *
 * What YAML can do beyond that (nesting, anchors, aliases, tags, several documents) is refused, so that a file means what it says at
 * first sight. Values are text with a note whether they were quoted; what they mean is for the caller to say. Every message begins
 * with "FILE:LINE: ". */
#ifndef TOOLS_CONFIG_FILE_H
#define TOOLS_CONFIG_FILE_H

#include <deepinfer/base.h>

#define CONFIG_MAX_BYTES 65536
#define CONFIG_MAX_VALUES 64 /* of a list */

typedef struct config_value {
    const char *text; /* NUL-terminated, no NUL inside */
    bool quoted;      /* in quotes or as a block: text, whatever it looks like */
} config_value;

typedef struct config_entry {
    const char *key;
    int line;
    bool is_list;
    size_t n;
    config_value values[CONFIG_MAX_VALUES]; /* [n]; one unless is_list */
} config_entry;

/* The entry is borrowed, its values' texts are not: they stay in `memory`. An error that is returned gets "FILE:LINE: " in front. */
typedef di_status (*config_entry_fn)(void *user, const config_entry *entry, di_error *err);

/* Room for what values say; at most CONFIG_MAX_BYTES in all. */
typedef struct config_memory {
    char text[CONFIG_MAX_BYTES];
    size_t n;
} config_memory;

/* Calls fn for every entry in order until one returns an error. A file that is empty, or has comments only, has no entries. `name` is for
 * messages. Errors: DI_E_FORMAT, DI_E_LIMIT (size, number of values), DI_E_MEMORY, those of fn. */
di_status config_read(const char *text, size_t size, const char *name, config_memory *memory, config_entry_fn fn, void *user,
                      di_error *err);

#endif
