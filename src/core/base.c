/* base.c - version and status names of <deepinfer/base.h>. */
#include <deepinfer/base.h>

#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *di_version(void)
{
    return VERSION_TEXT(DI_VERSION_MAJOR, DI_VERSION_MINOR, DI_VERSION_PATCH);
}

int32_t di_version_number(void)
{
    return DI_VERSION;
}

const char *di_status_name(di_status status)
{
    switch (status) {
    case DI_OK:
        return "ok";
    case DI_E_ARGUMENT:
        return "argument";
    case DI_E_FORMAT:
        return "format";
    case DI_E_UNSUPPORTED:
        return "unsupported";
    case DI_E_IO:
        return "io";
    case DI_E_MEMORY:
        return "memory";
    case DI_E_LIMIT:
        return "limit";
    case DI_E_STATE:
        return "state";
    case DI_E_DEVICE:
        return "device";
    case DI_E_CANCELLED:
        return "cancelled";
    case DI_E_MISMATCH:
        return "mismatch";
    case DI_E_INTERNAL:
        return "internal";
    }
    return "unknown";
}
