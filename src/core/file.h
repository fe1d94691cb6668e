/* file.h - files as this program uses them: read whole, or mapped read-only; paths joined without surprises. */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <deepinfer/base.h>

/* Which file, and in which state: not the same any more when it was replaced, rewritten or cut. */
typedef struct file_identity {
    uint64_t device;
    uint64_t inode;
    uint64_t size;
    int64_t written_ns; /* time of its last change */
} file_identity;

/* False when the system does not tell. */
bool file_identity_of(int fd, file_identity *out);
bool file_identity_equal(const file_identity *a, const file_identity *b);

/* A read-only private mapping. An empty file has size 0 and data != NULL. Owner: whoever called file_map_open. */
typedef struct file_map {
    const uint8_t *data;
    size_t size;
    void *base;  /* private: address for munmap */
    size_t span; /* private */
    file_identity identity; /* when it was mapped */
} file_map;

/* Maps a regular file. Errors: DI_E_IO (message names the path), DI_E_FORMAT for something not a regular file. */
di_status file_map_open(const char *path, file_map *out, di_error *err);
void file_map_close(file_map *map);
/* Gives back the memory of whole pages inside part of a mapping; whoever reads them again gets them from the file. For
 * content that has been copied in another form. Never for other memory than a file_map's. */
void file_map_forget(const uint8_t *data, size_t size);

/* Reads a whole regular file into a malloc'ed buffer with a terminating NUL that `*size` does not count.
 * Errors: DI_E_IO, DI_E_LIMIT when the file is larger than max_bytes, DI_E_MEMORY. */
di_status file_read(const char *path, size_t max_bytes, char **data, size_t *size, di_error *err);

/* Reads a stream (standard input, a pipe) to its end; same ownership and errors. `name` is for messages. */
di_status file_read_stream(int fd, const char *name, size_t max_bytes, char **data, size_t *size, di_error *err);

/* Writes a whole file: temporary name beside it, fsync, rename; so that readers see the old or the new one. */
di_status file_write(const char *path, const void *data, size_t size, di_error *err);

/* The same for a file that is the concatenation of several buffers. */
typedef struct file_part {
    const void *data;
    size_t size;
} file_part;

di_status file_write_parts(const char *path, const file_part *parts, size_t n_parts, di_error *err);

/* malloc'ed "dir/name"; NULL when memory is short. */
char *file_path_join(const char *dir, const char *name);

bool file_exists(const char *path);
bool file_is_dir(const char *path);

#endif
