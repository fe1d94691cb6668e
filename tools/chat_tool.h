/* chat_tool.h - programs that answer tool calls of `deepinfer chat` (--tool-command).
 *
 * "NAME=COMMAND" serves the tool NAME, "COMMAND" every tool that has none of its own. The command runs in a shell: the arguments
 * (JSON) on its standard input, the tool's name in DI_TOOL, its standard output is the result. */
#ifndef TOOLS_CHAT_TOOL_H
#define TOOLS_CHAT_TOOL_H

#include "options.h"

#include "core/buf.h"

/* NULL when no entry serves the tool. */
const char *chat_tool_command(const cli_list *commands, const char *name);

/* Runs the command to its end. *result: its output without one newline at the end; when it fails, that and how it ended.
 * The command has a process group of its own: Ctrl-C interrupts it, and kills it when it takes longer than a second to end; then
 * *interrupted is set. Errors: DI_E_IO (it can't be started), DI_E_MEMORY. */
di_status chat_tool_run(const char *command, const char *name, const buf *arguments, buf *result, bool *interrupted, di_error *err);

#endif
