/* chat_input.h - what the user types into `deepinfer chat`: libedit with a history file, messages of one line or of several.
 *
 * A backslash at the end of a line continues it on the next one; lines between """ and """ are one message. While a line is typed
 * Ctrl-C is an ordinary key here, so that no signal can arrive: SIGINT is blocked in this program (interrupt.h). */
#ifndef TOOLS_CHAT_INPUT_H
#define TOOLS_CHAT_INPUT_H

#include "core/buf.h"

typedef struct chat_input chat_input;

typedef enum chat_typed {
    CHAT_TYPED,     /* a message */
    CHAT_ABANDONED, /* Ctrl-C; whatever was typed is gone */
    CHAT_CLOSED     /* Ctrl-D, or the terminal went away */
} chat_typed;

/* Standard input must be a terminal. The history lies in $XDG_STATE_HOME/deepinfer, else ~/.local/state/deepinfer; a file that
 * can't be read or written is no error. Errors: DI_E_MEMORY, DI_E_IO. */
di_status chat_input_open(bool keep_history, chat_input **out, di_error *err);
void chat_input_close(chat_input *input); /* writes the history */

/* One message, without its markup, into *text (cleared first). */
chat_typed chat_input_read(chat_input *input, const char *prompt, buf *text);

#endif
