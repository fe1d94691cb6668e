/* rig.h - a server over a fake service, for one test. */
#ifndef TESTS_SERVER_RIG_H
#define TESTS_SERVER_RIG_H

#include "fake_service.h"
#include "wire.h"

#include "server/server.h"

typedef struct rig {
    di_service *service;
    srv_server *server;
    const char *url;
} rig;

void rig_start(rig *g, const srv_options *options);
void rig_stop(rig *g);

/* One request on a connection of its own: the status, and a part of the body. */
void rig_ask(const rig *g, const char *request, int status, const char *part);

/* POST of "{}" as JSON; the call as the service sees it, whose answer is the test's. */
di_call *rig_call(const rig *g, wire *w, const char *path);

#endif
