/* gram_tools.c - tool calls in the model's own form. */
#include "grammar/gram_grammar.h"

di_status di_grammar_compile_tools(const di_grammar_tools *tools, const di_grammar_options *options, di_grammar **out,
                                   di_grammar_fault *fault, di_error *err)
{
    (void)tools;
    (void)options;
    (void)out;
    if (fault != NULL) {
        *fault = (di_grammar_fault){.offset = -1};
    }
    return err_set(err, DI_E_UNSUPPORTED, "tool calls are not enforced yet");
}
