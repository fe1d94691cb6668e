/* rec_render.h - the writer of a prompt: text, and the places of it that are control tokens.
 *
 * Two functions put bytes into a prompt: rec_put for plain text, whoever wrote it, and rec_put_marker for a control token of the
 * template. User text never reaches the second one; that alone keeps it from becoming a control token (recipe.md 1.3). */
#ifndef RECIPE_REC_RENDER_H
#define RECIPE_REC_RENDER_H

#include "recipe/rec_int.h"

/* Lives while rec_render runs. After a failure everything is a no-op. */
typedef struct rec_writer {
    di_request *r;
    const rec_conversation *talk;
    buf *out;
    size_t capacity; /* of r->ranges and r->markers */
    rec_json_style style;
    bool has_tools;  /* some are listed, or announced later: calls may be made, and reasoning is kept */
    bool failed;     /* memory; the buffer has its own flag */
} rec_writer;

void rec_put(rec_writer *w, rec_str text);
void rec_put_text(rec_writer *w, const char *text);
void rec_put_marker(rec_writer *w, rec_marker marker);

/* Names of the markup, which differ by version (recipe.md 2.2). */
typedef struct rec_tags {
    const char *block;
    const char *call;
    const char *parameter;
} rec_tags;

const rec_tags *rec_tags_of(di_prompt_version version);

/* <｜DSML｜name or </｜DSML｜name, without the end of the tag. */
void rec_put_tag(rec_writer *w, bool closing, const char *name);

/* ---- rec_tool_block.c ---- */

/* What is appended to the first system text: tools and response format, each in front of it an empty line (2.4). */
void rec_put_tool_block(rec_writer *w);
bool rec_has_tool_block(const rec_writer *w);
/* The schemas of tools that become known at a System message. */
void rec_put_announcement(rec_writer *w, const rec_message *message);
/* Text in front of everything, in thinking mode (2.5); "" for none. */
const char *rec_effort_text(const rec_conversation *talk);

/* ---- rec_calls.c ---- */

/* A turn's tool calls as the model would have written them (2.6). */
di_status rec_put_calls(rec_writer *w, const rec_message *message, di_error *err);

#endif
