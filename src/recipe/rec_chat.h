/* rec_chat.h - inside of the Chat reader. */
#ifndef RECIPE_REC_CHAT_H
#define RECIPE_REC_CHAT_H

#include "recipe/rec_read.h"

/* tools -> r->declared: their form and names. */
di_status rec_chat_tools(di_request *r, di_error *err);

/* tool_choice. name->data is NULL unless one function is named. */
di_status rec_chat_choice(di_request *r, rec_choice *choice, rec_str *name, di_error *err);

/* Checks of tools and choice: fills r->talk.tools. */
di_status rec_chat_settle_tools(di_request *r, rec_choice choice, rec_str name, di_error *err);

/* messages -> r->talk, missing reasoning and misplaced prefixes included; the tools are known already. */
di_status rec_chat_messages(di_request *r, di_error *err);

#endif
