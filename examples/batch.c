/* batch.c - answers a file of Chat Completions bodies, one a line, with one line each: batch MODEL_DIR FILE.jsonl. Progress goes to
 * standard error. As many run together as fit; every answer is the one that its body would get alone. */
#define _POSIX_C_SOURCE 200809L /* getline */

#include <deepinfer/chat.h>

#include <stdio.h>
#include <stdlib.h>

static void must(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static bool show(void *user, const di_batch_progress *p)
{
    (void)user;
    fprintf(stderr, "\r%zu of %zu, %lld tokens%s", p->n_done, p->n, (long long)p->completion_tokens, p->n_done == p->n ? "\n" : "");
    return true; /* false would stop it */
}

int main(int argc, char **argv)
{
    FILE *const file = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: batch MODEL_DIR FILE.jsonl\n");
        return 1;
    }
    di_batch_item *items = NULL;
    size_t n = 0;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, file)) > 0) {
        di_batch_item *const more = realloc(items, (n + 1) * sizeof *items);
        if (more == NULL) {
            return 1;
        }
        items = more;
        items[n++] = (di_batch_item){.route = DI_ROUTE_CHAT, .body = line, .n = (size_t)size};
        line = NULL; /* the item has it now */
        capacity = 0;
    }
    fclose(file);

    di_error err;
    di_model *model;
    di_service *service;
    must(di_model_open(argv[1], NULL, &model, &err), &err);
    must(di_service_open(model, di_model_tokenizer(model), NULL, &service, &err), &err);
    must(di_service_run(service, items, n, show, NULL, &err), &err);
    for (size_t i = 0; i < n; i++) {
        puts(items[i].reply);
        free((char *)items[i].body);
    }
    di_batch_fini(items, n);
    di_service_close(service);
    di_model_close(model);
    free(items);
    free(line);
    return 0;
}
