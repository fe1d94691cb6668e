/* cmd_cache.c - `deepinfer cache`: what a directory of the disk tier holds, whether it is whole, and its care: compact, purge. */
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <deepinfer/cache.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct figure { /* a line of the answer */
    const char *name;
    const char *text; /* for people */
    int64_t value;
} figure;

static void print_figures(const char *action, const char *dir, bool json, const figure *figures, size_t n)
{
    if (!json) {
        for (size_t i = 0; i < n; i++) {
            printf("%-32s %15" PRId64 "\n", figures[i].text, figures[i].value);
        }
        return;
    }
    buf out;
    buf_init(&out, (size_t)1 << 16);
    buf_printf(&out, "{\"action\":\"%s\",\"dir\":", action);
    buf_json_string(&out, dir, strlen(dir));
    for (size_t i = 0; i < n; i++) {
        buf_printf(&out, ",\"%s\":%" PRId64, figures[i].name, figures[i].value);
    }
    buf_puts(&out, "}\n");
    if (!out.failed) {
        fwrite(out.data, 1, out.size, stdout);
    }
    buf_fini(&out);
}

static void print_tenant(const char *dir, bool json, const di_cache_tenant *t)
{
    buf out;
    buf_init(&out, (size_t)1 << 16);
    if (json) {
        buf_puts(&out, "{\"action\":\"stats\",\"dir\":");
        buf_json_string(&out, dir, strlen(dir));
        buf_printf(&out, ",\"tenant\":\"%s\",\"bytes\":%" PRId64 ",\"units\":%" PRId64 ",\"snapshots\":%" PRId64, t->id, t->bytes, t->units,
                   t->snapshots);
        buf_printf(&out, ",\"pinned_bytes\":%" PRId64 "}\n", t->pinned_bytes);
    } else {
        buf_printf(&out, "%s %15" PRId64 " %10" PRId64 " %10" PRId64 " %15" PRId64 "\n", t->id, t->bytes, t->units, t->snapshots,
                   t->pinned_bytes);
    }
    if (!out.failed) {
        fwrite(out.data, 1, out.size, stdout);
    }
    buf_fini(&out);
}

/* Of the tenant with this name, or of all with NULL. */
static di_status show_tenants(const char *dir, bool json, const char *name, di_error *err)
{
    char id[DI_CACHE_TENANT_ID_BYTES];
    size_t n = 0;
    size_t all = 0;
    di_status status = name != NULL ? di_cache_tenant_id(name, strlen(name), id, err) : DI_OK;
    if (status == DI_OK) {
        status = di_cache_read_tenants(dir, NULL, 0, &n, err);
    }
    if (status != DI_OK) {
        return status;
    }
    di_cache_tenant *const tenants = ar_calloc(n, sizeof *tenants);
    if (tenants == NULL) {
        return err_memory(err, "tenants", n * sizeof *tenants);
    }
    status = di_cache_read_tenants(dir, tenants, n, &all, err);
    n = status != DI_OK ? 0 : all < n ? all : n;
    if (!json) {
        printf("%-32s %15s %10s %10s %15s\n", "tenant", "bytes", "units", "snapshots", "bytes pinned");
    }
    for (size_t i = 0; i < n; i++) {
        if (name == NULL || strcmp(tenants[i].id, id) == 0) {
            print_tenant(dir, json, &tenants[i]);
        }
    }
    free(tenants);
    return status;
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static di_status show_stats(const char *dir, bool json, di_error *err)
{
    di_cache_dir_stats s;
    const di_status status = di_cache_read_stats(dir, &s, err);
    if (status == DI_OK) {
        const figure figures[] = {
            {"bytes", "bytes on disk", s.bytes},
            {"segments", "segments", s.segments},
            {"units", "units (128 tokens)", s.units},
            {"snapshots", "snapshots", s.snapshots},
            {"record_bytes", "bytes of both", s.record_bytes},
            {"pinned_bytes", "bytes pinned", s.pinned_bytes},
            {"expired", "records expired", s.expired},
        };
        print_figures("stats", dir, json, figures, N_OF(figures));
    }
    return status;
}

/* Damage is a failure here: a script asks whether all is well. */
static di_status verify(const char *dir, bool json, di_error *err)
{
    di_cache_report r;
    const di_status status = di_cache_verify(dir, &r, err);
    if (status != DI_OK) {
        return status;
    }
    const figure figures[] = {
        {"segments", "segments", r.segments},
        {"segments_damaged", "segments damaged", r.segments_damaged},
        {"records", "records", r.records},
        {"record_bytes", "bytes of records", r.record_bytes},
        {"records_damaged", "records damaged", r.records_damaged},
    };
    print_figures("verify", dir, json, figures, N_OF(figures));
    if (r.segments_damaged == 0 && r.records_damaged == 0) {
        return DI_OK;
    }
    return err_set(err, DI_E_MISMATCH, "%s: %" PRId64 " records and %" PRId64 " segments are damaged; a server takes them for missing", dir,
                   r.records_damaged, r.segments_damaged);
}

static di_status compact(const char *dir, bool json, const di_cache_dir_options *options, di_error *err)
{
    int64_t freed = 0;
    const di_status status = di_cache_compact(dir, options, &freed, err);
    if (status == DI_OK) {
        print_figures("compact", dir, json, &(figure){"freed_bytes", "bytes freed", freed}, 1);
    }
    return status;
}

static di_status purge(const char *dir, bool json, const di_cache_dir_options *options, const char *salt, di_error *err)
{
    int64_t n = 0;
    const di_status status = di_cache_purge(dir, options, salt, &n, err);
    if (status == DI_OK) {
        print_figures("purge", dir, json, &(figure){"records", "records purged", n}, 1);
    }
    return status;
}

int cmd_cache(int argc, char **argv)
{
    bool json = false;
    bool all = false;
    bool tenants = false;
    di_cache_dir_options options = {.shared = false};
    const char *tenant = NULL;
    cli_parser p;
    char **args;
    size_t n_args;
    di_error err;
    cli_parser_init(&p, "stats|verify|compact|purge DIR", 2, 2,
                    "Look at and after a directory of the KV cache on disk.\v"
                    "stats and verify only read, and may run beside a server. compact removes expired records and holes. purge removes the "
                    "records of --tenant, or everything with --all. Both need the directory for themselves, or --shared.\n"
                    "stats --tenants lists what each tenant has, by an id that is a digest of its name; with --tenant only that one.");
    cli_add_flag(&p, "json", &json, "one JSON object, or one for each tenant");
    cli_add_flag(&p, "shared", &options.shared, "servers that share the directory may be running");
    cli_add_flag(&p, "tenants", &tenants, "stats: what each tenant has");
    cli_add_string(&p, "tenant", "NAME", &tenant, "purge, stats: whose records; the name that the server knows the tenant by");
    cli_add_flag(&p, "all", &all, "purge: everybody's records");
    cli_parse(&p, argc, argv, &args, &n_args);
    const char *const action = args[0];
    const char *const dir = args[1];
    di_status status;
    if (strcmp(action, "stats") == 0) {
        status = tenants || tenant != NULL ? show_tenants(dir, json, tenant, &err) : show_stats(dir, json, &err);
    } else if (strcmp(action, "verify") == 0) {
        status = verify(dir, json, &err);
    } else if (strcmp(action, "compact") == 0) {
        status = compact(dir, json, &options, &err);
    } else if (strcmp(action, "purge") != 0) {
        return cli_usage(&p, "unknown action '%s'", action);
    } else if (all == (tenant != NULL)) {
        return cli_usage(&p, "purge needs either --tenant or --all");
    } else {
        status = purge(dir, json, &options, tenant, &err);
    }
    if (status == DI_OK && fflush(stdout) != 0) {
        status = err_set(&err, DI_E_IO, "standard output: write failed");
    }
    return status == DI_OK ? CLI_OK : cli_fail(&err);
}
