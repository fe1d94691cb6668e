/* file.c - see file.h. Files are opened without following what is not a regular file into blocking reads (O_NONBLOCK
 * guards against a FIFO in the place of a checkpoint); sizes come from fstat of the opened descriptor, never of the path. */
#include "core/file.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAM_CHUNK_BYTES ((size_t)64 << 10)
#define TEMPORARY_NAMES 1000

static di_status open_regular(const char *path, int *fd, size_t *size, di_error *err)
{
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) {
        return err_set_errno(err, errno, "cannot open %s", path);
    }
    di_status status = DI_OK;
    struct stat info;
    if (fstat(opened, &info) != 0) {
        status = err_set_errno(err, errno, "cannot inspect %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = err_set(err, DI_E_FORMAT, "%s is not a regular file", path);
    } else if (info.st_size < 0 || (uintmax_t)info.st_size > SIZE_MAX) {
        status = err_set(err, DI_E_LIMIT, "%s is too large for this machine", path);
    }
    if (status != DI_OK) {
        close(opened);
        return status;
    }
    *fd = opened;
    *size = (size_t)info.st_size;
    return DI_OK;
}

bool file_identity_of(int fd, file_identity *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return false;
    }
    *out = (file_identity){.device = (uint64_t)info.st_dev,
                           .inode = (uint64_t)info.st_ino,
                           .size = (uint64_t)info.st_size,
                           .written_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec};
    return true;
}

bool file_identity_equal(const file_identity *a, const file_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->written_ns == b->written_ns;
}

di_status file_map_open(const char *path, file_map *out, di_error *err)
{
    int fd;
    size_t size;
    file_identity identity;
    const di_status status = open_regular(path, &fd, &size, err);
    if (status != DI_OK) {
        return status;
    }
    if (!file_identity_of(fd, &identity)) {
        const int saved = errno;
        close(fd);
        return err_set_errno(err, saved, "cannot inspect %s", path);
    }
    if (size == 0) {
        static const uint8_t nothing[1];
        close(fd);
        *out = (file_map){.data = nothing, .identity = identity};
        return DI_OK;
    }
    void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int map_errno = errno;
    close(fd);
    if (base == MAP_FAILED) {
        return err_set_errno(err, map_errno, "cannot map %s (%zu bytes)", path, size);
    }
    *out = (file_map){.data = base, .size = size, .base = base, .span = size, .identity = identity};
    return DI_OK;
}

void file_map_close(file_map *map)
{
    if (map == NULL) {
        return;
    }
    if (map->base != NULL) {
        munmap(map->base, map->span);
    }
    memset(map, 0, sizeof *map);
}

void file_map_forget(const uint8_t *data, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + size) / page * page;
    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* a wish: without it the pages stay until memory is short */
    }
}

static di_status limit_error(const char *name, size_t max_bytes, di_error *err)
{
    return err_set(err, DI_E_LIMIT, "%s is larger than the limit of %zu bytes", name, max_bytes);
}

di_status file_read(const char *path, size_t max_bytes, char **data, size_t *size, di_error *err)
{
    int fd;
    size_t file_size;
    di_status status = open_regular(path, &fd, &file_size, err);
    if (status != DI_OK) {
        return status;
    }
    /* The size is only a first bound: the loop reads to the end, so a file that grows meanwhile is still whole. */
    if (file_size > max_bytes) {
        status = limit_error(path, max_bytes, err);
    } else {
        status = file_read_stream(fd, path, max_bytes, data, size, err);
    }
    close(fd);
    return status;
}

static size_t stream_hint(int fd)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && (uintmax_t)info.st_size < SIZE_MAX / 2) {
        return (size_t)info.st_size + 2;
    }
    return STREAM_CHUNK_BYTES;
}

di_status file_read_stream(int fd, const char *name, size_t max_bytes, char **data, size_t *size, di_error *err)
{
    const size_t limit = max_bytes < SIZE_MAX / 4 ? max_bytes : SIZE_MAX / 4;
    size_t capacity = stream_hint(fd); /* one byte more than the file, so that its end is seen without growing */
    size_t used = 0;
    char *bytes = malloc(capacity);
    if (bytes == NULL) {
        return err_memory(err, name, capacity);
    }
    di_status status = DI_OK;
    for (;;) {
        if (used + 1 == capacity) {
            capacity *= 2;
            char *grown = realloc(bytes, capacity);
            if (grown == NULL) {
                status = err_memory(err, name, capacity);
                goto out;
            }
            bytes = grown;
        }
        const ssize_t got = read(fd, bytes + used, capacity - 1 - used);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            status = err_set_errno(err, errno, "cannot read %s", name);
            goto out;
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
        if (used > limit) {
            status = limit_error(name, max_bytes, err);
            goto out;
        }
    }
    bytes[used] = '\0';
    *data = bytes;
    *size = used;
    bytes = NULL;

out:
    free(bytes);
    return status;
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        const ssize_t put = write(fd, data, size);
        if (put < 0) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        data += put;
        size -= (size_t)put;
    }
    return true;
}

/* Opens "<path>.<pid>.<i>.tmp" for the first i that is free, so that two writers never share a temporary file. */
static int open_temporary(const char *path, char *name, size_t name_bytes)
{
    for (int i = 0; i < TEMPORARY_NAMES; i++) {
        snprintf(name, name_bytes, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

di_status file_write_parts(const char *path, const file_part *parts, size_t n_parts, di_error *err)
{
    const size_t name_bytes = strlen(path) + 48;
    char *name = malloc(name_bytes);
    if (name == NULL) {
        return err_memory(err, path, name_bytes);
    }
    di_status status = DI_OK;
    const int fd = open_temporary(path, name, name_bytes);
    if (fd < 0) {
        status = err_set_errno(err, errno, "cannot create %s", path);
        goto out_name;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < n_parts; i++) {
        ok = write_all(fd, parts[i].data, parts[i].size);
    }
    if (!ok || fsync(fd) != 0) {
        status = err_set_errno(err, errno, "cannot write %s", path);
    }
    if (close(fd) != 0 && status == DI_OK) {
        status = err_set_errno(err, errno, "cannot write %s", path);
    }
    if (status == DI_OK && rename(name, path) != 0) {
        status = err_set_errno(err, errno, "cannot replace %s", path);
    }
    if (status != DI_OK) {
        unlink(name);
    }

out_name:
    free(name);
    return status;
}

di_status file_write(const char *path, const void *data, size_t size, di_error *err)
{
    const file_part whole = {.data = data, .size = size};
    return file_write_parts(path, &whole, 1, err);
}

char *file_path_join(const char *dir, const char *name)
{
    const size_t dir_size = strlen(dir);
    const size_t name_size = strlen(name);
    const bool slash = dir_size > 0 && dir[dir_size - 1] != '/';
    char *path = malloc(dir_size + name_size + 2);
    if (path == NULL) {
        return NULL;
    }
    snprintf(path, dir_size + name_size + 2, "%s%s%s", dir, slash ? "/" : "", name);
    return path;
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
