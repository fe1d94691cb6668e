/* rig.c - see rig.h. */
#include "rig.h"

#include "support/unit.h"

#include <string.h>

void rig_start(rig *g, const srv_options *options)
{
    di_error err;
    g->service = fake_new();
    if (srv_open(g->service, options, &g->server, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    g->url = srv_url(g->server);
}

void rig_stop(rig *g)
{
    srv_close(g->server);
    fake_free(g->service);
}

void rig_ask(const rig *g, const char *request, int status, const char *part)
{
    wire_reply r;
    wire_ask(g->url, request, strncmp(request, "HEAD", 4) != 0 && status != 204, &r);
    wire_expect(&r, status, part);
    wire_fini(&r);
}

di_call *rig_call(const rig *g, wire *w, const char *path)
{
    const size_t n = fake_n_calls(g->service);
    wire_open(w, g->url);
    wire_post(w, path, "", "{}");
    return fake_call(g->service, n);
}
