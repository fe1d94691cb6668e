/* rec_tool_block.c - the fixed texts of a prompt: the tool instructions, the response format, the effort line (recipe.md 2.4, 2.5).
 *
 * The instructions are one template. Bytes 1-7 in it stand for what is put in: control tokens, the version's tag names, the schema
 * lines. No text of a request passes through the template, so these bytes can't come from outside. */
#include "recipe/rec_render.h"

#define T_DSML "\1"
#define T_BLOCK "\2"
#define T_CALL "\3"
#define T_PARAMETER "\4"
#define T_THINK "\5"
#define T_END_THINK "\6"
#define T_SCHEMAS "\7"

static const char instructions[] =
    "\n\n## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"<" T_DSML T_BLOCK
    ">\" block like the following:\n\n"
    "<" T_DSML T_BLOCK ">\n"
    "<" T_DSML T_CALL " name=\"$TOOL_NAME\">\n"
    "<" T_DSML T_PARAMETER " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" T_DSML T_PARAMETER ">\n"
    "...\n"
    "</" T_DSML T_CALL ">\n"
    "<" T_DSML T_CALL " name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</" T_DSML T_CALL ">\n"
    "</" T_DSML T_BLOCK ">\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, "
    "objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by " T_THINK "), you MUST output your complete reasoning inside " T_THINK "..." T_END_THINK
    " BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after " T_END_THINK " with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n" T_SCHEMAS "\n\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

/* {"name": ..., "description": ..., "parameters": ...} */
static void put_schema_line(rec_writer *w, const rec_tool *tool)
{
    rec_put_text(w, "{\"name\": ");
    rec_json_string(w->out, tool->name.data, tool->name.size);
    rec_put_text(w, ", \"description\": ");
    rec_json_string(w->out, tool->description.data, tool->has_description ? tool->description.size : 0);
    rec_put_text(w, ", \"parameters\": ");
    if (tool->parameters != NULL) {
        rec_json_value(w->out, tool->parameters, w->style);
    } else {
        rec_put_text(w, "{}");
    }
    rec_put_text(w, "}");
}

/* One line a tool, no line feed behind the last. V4 knows nothing of deferring: it lists them all. */
static void put_schema_lines(rec_writer *w, rec_tool *const *tools, size_t n, bool deferred_too)
{
    const char *between = "";
    for (size_t i = 0; i < n; i++) {
        if (!tools[i]->deferred || deferred_too) {
            rec_put_text(w, between);
            put_schema_line(w, tools[i]);
            between = "\n";
        }
    }
}

static void put_instructions(rec_writer *w)
{
    const rec_tags *const tags = rec_tags_of(w->talk->version);
    const char *p = instructions;
    for (;;) {
        const size_t plain = strcspn(p, T_DSML T_BLOCK T_CALL T_PARAMETER T_THINK T_END_THINK T_SCHEMAS);
        rec_put(w, (rec_str){p, plain});
        p += plain;
        switch (*p++) {
        case '\0':
            return;
        case '\1': /* T_DSML */
            rec_put_marker(w, REC_DSML);
            break;
        case '\2': /* T_BLOCK */
            rec_put_text(w, tags->block);
            break;
        case '\3': /* T_CALL */
            rec_put_text(w, tags->call);
            break;
        case '\4': /* T_PARAMETER */
            rec_put_text(w, tags->parameter);
            break;
        case '\5': /* T_THINK */
            rec_put_marker(w, REC_THINK);
            break;
        case '\6': /* T_END_THINK */
            rec_put_marker(w, REC_END_THINK);
            break;
        default:
            put_schema_lines(w, w->talk->tools, w->talk->n_tools, w->talk->version == DI_V4);
            break;
        }
    }
}

static void put_format(rec_writer *w)
{
    const bool object = w->talk->format == REC_FORMAT_JSON_OBJECT;
    if (object && w->talk->version == DI_V4) {
        rec_put_text(w, "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.");
        return;
    }
    if (object || w->talk->format == REC_FORMAT_JSON_SCHEMA) {
        rec_put_text(w, "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
    }
    if (object) {
        rec_put_text(w, "{\"type\": \"json_object\"}");
    } else if (w->talk->format == REC_FORMAT_JSON_SCHEMA) {
        rec_json_value(w->out, w->talk->schema, w->style);
    }
}

bool rec_has_tool_block(const rec_writer *w)
{
    return w->has_tools || w->talk->format == REC_FORMAT_JSON_OBJECT || w->talk->format == REC_FORMAT_JSON_SCHEMA;
}

void rec_put_tool_block(rec_writer *w)
{
    if (w->has_tools) {
        put_instructions(w);
    }
    put_format(w);
}

void rec_put_announcement(rec_writer *w, const rec_message *message)
{
    if (message->n_announced > 0 && w->has_tools && w->talk->version == DI_V41) {
        rec_put_text(w, "\n\n### Updated Tool Schemas\n\n");
        put_schema_lines(w, message->announced, message->n_announced, true);
    }
}

const char *rec_effort_text(const rec_conversation *talk)
{
#define SCALE " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    static const char *const v41[] = {
        [REC_EFFORT_ABSENT] = "Reasoning Effort: 75" SCALE, [REC_EFFORT_LOW] = "Reasoning Effort: 50" SCALE,
        [REC_EFFORT_HIGH] = "Reasoning Effort: 75" SCALE,   [REC_EFFORT_XHIGH] = "Reasoning Effort: 75" SCALE,
        [REC_EFFORT_MAX] = "Reasoning Effort: 100" SCALE,
    };
#undef SCALE
    static const char v4_high[] =
        "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
        "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously "
        "stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
        "Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and "
        "rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
    static const char v4_max[] =
        "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
        "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem "
        "into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than "
        "any surface symptom.\n"
        "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no "
        "assumption remains unchecked and no error remains undiscovered.\n\n";
    if (!talk->thinking) {
        return "";
    }
    if (talk->version == DI_V41) {
        return v41[talk->effort];
    }
    if (talk->effort == REC_EFFORT_LOW) {
        return "";
    }
    return talk->effort == REC_EFFORT_MAX ? v4_max : v4_high;
}
