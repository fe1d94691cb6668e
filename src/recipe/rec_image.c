/* rec_image.c - image references (recipe.md 3.2). Nothing is fetched and no picture is decoded here: what can be told from the
 * reference alone is checked, the bytes are the business of whoever runs the model. */
#include "recipe/rec_read.h"

#include <strings.h>

static di_image_ref *new_image(di_request *r, di_image_kind kind, di_image_detail detail, const char *path, rec_str data)
{
    di_image_ref *const image = arena_alloc(&r->memory, 1, sizeof *image);
    const rec_str place = rec_copy(r, path, strlen(path));
    if (image == NULL || place.data == NULL) {
        return NULL;
    }
    *image = (di_image_ref){.kind = kind, .detail = detail, .path = place.data, .data = data.data, .size = data.size};
    return image;
}

/* ---- data URLs ---- */

typedef enum url_fault { URL_GOOD, URL_NONE, URL_TYPE, URL_PLAIN, URL_PAYLOAD } url_fault;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
}

static rec_str trimmed(const char *begin, const char *end)
{
    while (begin < end && is_blank(*begin)) {
        begin++;
    }
    while (end > begin && is_blank(end[-1])) {
        end--;
    }
    return (rec_str){begin, (size_t)(end - begin)};
}

static bool known_type(rec_str type)
{
    static const char *const types[] = {"image/webp", "image/png", "image/jpeg", "image/jpg", "image/gif"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (type.size == strlen(types[i]) && strncasecmp(type.data, types[i], type.size) == 0) {
            return true;
        }
    }
    return false;
}

/* Value of a base64 digit, -1 for others. */
static int digit(char c)
{
    const char lower = (char)(c | 0x20);
    if (lower >= 'a' && lower <= 'z') {
        return c >= 'a' ? c - 'a' + 26 : c - 'A';
    }
    return c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int hex_digit(char c)
{
    const char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Base64 as web pages may write it: blanks do not count, %41 is "A", padding is complete or absent. */
static bool forgiving_base64(const char *p, const char *end)
{
    size_t n = 0;
    size_t n_pads = 0;
    while (p < end) {
        char c = *p++;
        if (c == '%' && end - p >= 2 && hex_digit(p[0]) >= 0 && hex_digit(p[1]) >= 0) {
            c = (char)(hex_digit(p[0]) * 16 + hex_digit(p[1]));
            p += 2;
        }
        if (is_blank(c)) {
            continue;
        }
        if (c != '=' && (digit(c) < 0 || n_pads > 0)) {
            return false;
        }
        n += c != '=' ? 1 : 0;
        n_pads += c == '=' ? 1 : 0;
    }
    return n_pads == 0 ? n % 4 != 1 : n_pads <= 2 && (n + n_pads) % 4 == 0;
}

/* Of what the first fault is: no data URL, no image, not in base64, not base64. */
static url_fault check_data_url(rec_str url)
{
    static const char scheme[] = "data:";
    static const char encoding[] = "base64,";
    const rec_str text = trimmed(url.data, url.data + url.size);
    const char *const hash = memchr(text.data, '#', text.size);
    const char *const end = hash != NULL ? hash : text.data + text.size;
    if (end - text.data < 5 || strncasecmp(text.data, scheme, 5) != 0) {
        return URL_NONE;
    }
    const char *const head = text.data + 5;
    const char *const comma = memchr(head, ',', (size_t)(end - head));
    if (comma == NULL) {
        return URL_NONE;
    }
    const char *const semicolon = memchr(head, ';', (size_t)(comma - head));
    if (!known_type(trimmed(head, semicolon != NULL ? semicolon : comma))) {
        return URL_TYPE;
    }
    const char *const found = memmem(head, (size_t)(end - head), encoding, sizeof encoding - 1);
    if (found == NULL) {
        return URL_PLAIN;
    }
    return forgiving_base64(found + sizeof encoding - 1, end) ? URL_GOOD : URL_PAYLOAD;
}

static di_status unsupported_format(const char *path, di_error *err)
{
    return err_set(err, DI_E_ARGUMENT, "%s: Unsupported image_url format", path);
}

static di_status unsupported_type(const char *path, const char *what, di_error *err)
{
    return err_set(err, DI_E_ARGUMENT,
                   "%s: You have uploaded an unsupported %s. Please make sure your %s is valid and has one of the following formats: "
                   "webp, png, jpeg, and gif.",
                   path, what, what);
}

di_status rec_image_url(di_request *r, rec_str url, di_image_detail detail, const char *path, const char *long_path,
                        di_image_ref **out, di_error *err)
{
    const bool external = url.size >= 4 && strncasecmp(url.data, "http", 4) == 0;
    if (external && url.size > REC_MAX_URL) {
        return err_set(err, DI_E_ARGUMENT,
                       "%s: image_url.url external link length %zu too long, max link length %d. Consider passing file data "
                       "directly with base64 data url instead.",
                       long_path, url.size, REC_MAX_URL);
    }
    switch (external ? URL_GOOD : check_data_url(url)) {
    case URL_GOOD:
        break;
    case URL_NONE:
    case URL_PLAIN:
        return unsupported_format(path, err);
    case URL_TYPE:
        return unsupported_type(path, "image", err);
    case URL_PAYLOAD:
        return err_set(err, DI_E_ARGUMENT, "%s: Invalid base64 data", path);
    }
    *out = new_image(r, external ? DI_IMAGE_URL : DI_IMAGE_DATA_URL, detail, path, url);
    return *out != NULL ? DI_OK : rec_no_memory(r, err);
}

di_status rec_image_file(di_request *r, rec_str url, const char *path, di_image_ref **out, di_error *err)
{
    switch (check_data_url(url)) {
    case URL_GOOD:
        break;
    case URL_NONE:
    case URL_PAYLOAD:
        return err_set(err, DI_E_ARGUMENT, "%s: file_data is not a valid base64 data url", path);
    case URL_PLAIN:
        return unsupported_format(path, err);
    case URL_TYPE:
        return unsupported_type(path, "file", err);
    }
    *out = new_image(r, DI_IMAGE_DATA_URL, DI_DETAIL_HIGH, path, url);
    return *out != NULL ? DI_OK : rec_no_memory(r, err);
}

/* ---- base64 with a media type ---- */

/* Standard alphabet, no bits left over, some padding where there must be; how much of it is not asked, as in the official package.
 * Cuts the padding off and gives what belongs there. */
static bool cut_base64(rec_str *text, const char **padding)
{
    size_t n = text->size;
    while (n > 0 && text->data[n - 1] == '=') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        if (digit(text->data[i]) < 0) {
            return false;
        }
    }
    const size_t over = n % 4;
    if (over == 1 || (over != 0 && n == text->size)) {
        return false;
    }
    if (over != 0 && (digit(text->data[n - 1]) & (over == 2 ? 15 : 3)) != 0) {
        return false;
    }
    text->size = n;
    *padding = over == 2 ? "==" : over == 3 ? "=" : "";
    return true;
}

di_status rec_image_base64(di_request *r, rec_str media_type, rec_str data, const char *path, di_image_ref **out, di_error *err)
{
    const char *padding;
    if (rec_str_equal(media_type, REC_STR("image/jpg"))) {
        media_type = REC_STR("image/jpeg");
    }
    if (!cut_base64(&data, &padding)) {
        return err_set(err, DI_E_ARGUMENT, "%s: base64 decode error", path);
    }
    buf url;
    buf_init(&url, rec_memory_left(r));
    buf_puts(&url, "data:");
    buf_append(&url, media_type.data, media_type.size);
    buf_puts(&url, ";base64,");
    buf_append(&url, data.data, data.size);
    buf_puts(&url, padding);
    const rec_str whole = rec_from_buf(r, &url);
    *out = whole.data != NULL ? new_image(r, DI_IMAGE_DATA_URL, DI_DETAIL_HIGH, path, whole) : NULL;
    return *out != NULL ? DI_OK : rec_no_memory(r, err);
}

di_status rec_read_detail(const js_value *object, const rec_path *at, di_image_detail *out, di_error *err)
{
    static const char *const names[] = {"high", "low", "original", "auto", NULL};
    int detail = DI_DETAIL_HIGH;
    const di_status status = rec_get_variant(object, at, "detail", names, &detail, NULL, err);
    *out = (di_image_detail)detail;
    return status;
}
