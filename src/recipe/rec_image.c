/* rec_image.c - image references (recipe.md 3.2). Nothing is fetched and no picture is decoded here: what can be told from the
 * reference alone is checked, the bytes are the business of whoever runs the model. */
#include "recipe/rec_read.h"

#include <strings.h>

static const char *const formats[] = {"webp", "png", "jpeg", "gif", NULL};

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

/* "data:image/png;base64,...": *format is what follows "image/". False when it is no base64 data URL of an image type. */
static bool split_data_url(rec_str url, rec_str *format)
{
    static const char head[] = "data:image/";
    static const char middle[] = ";base64,";
    if (url.size < sizeof head - 1 || memcmp(url.data, head, sizeof head - 1) != 0) {
        return false;
    }
    const char *const name = url.data + sizeof head - 1;
    const size_t left = url.size - (sizeof head - 1);
    const char *const end = memmem(name, left, middle, sizeof middle - 1);
    if (end == NULL || memchr(name, ',', (size_t)(end - name)) != NULL) {
        return false;
    }
    *format = (rec_str){name, (size_t)(end - name)};
    return true;
}

static bool known_format(rec_str format)
{
    for (size_t i = 0; formats[i] != NULL; i++) {
        if (format.size == strlen(formats[i]) && memcmp(format.data, formats[i], format.size) == 0) {
            return true;
        }
    }
    return false;
}

di_status rec_image_url(di_request *r, rec_str url, di_image_detail detail, const char *path, const char *long_path,
                        di_image_ref **out, di_error *err)
{
    const bool external = url.size >= 4 && strncasecmp(url.data, "http", 4) == 0;
    rec_str format;
    if (external && url.size > REC_MAX_URL) {
        return err_set(err, DI_E_ARGUMENT,
                       "%s: image_url.url external link length %zu too long, max link length %d. Consider passing file data "
                       "directly with base64 data url instead.",
                       long_path, url.size, REC_MAX_URL);
    }
    if (!external && !split_data_url(url, &format)) {
        return err_set(err, DI_E_ARGUMENT, "%s: Unsupported image_url format", path);
    }
    if (!external && !known_format(format)) {
        return err_set(err, DI_E_ARGUMENT,
                       "%s: You have uploaded an unsupported image. Please make sure your image is valid and has one of the "
                       "following formats: webp, png, jpeg, and gif.",
                       path);
    }
    *out = new_image(r, external ? DI_IMAGE_URL : DI_IMAGE_DATA_URL, detail, path, url);
    return *out != NULL ? DI_OK : rec_no_memory(r, err);
}

/* Standard alphabet in groups of four; more padding than needed is let pass and cut off, as the official package does. */
static bool cut_base64(rec_str *text)
{
    size_t n = text->size;
    while (n > 0 && text->data[n - 1] == '=') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text->data[i];
        const unsigned char lower = (unsigned char)(c | 0x20);
        if (!((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/')) {
            return false;
        }
    }
    const size_t padding = n % 4 != 0 ? 4 - n % 4 : 0;
    if (padding == 3 || text->size - n < padding) {
        return false;
    }
    text->size = n + padding;
    return true;
}

di_status rec_image_base64(di_request *r, rec_str media_type, rec_str data, const char *path, di_image_ref **out, di_error *err)
{
    if (rec_str_equal(media_type, REC_STR("image/jpg"))) {
        media_type = REC_STR("image/jpeg");
    }
    if (!cut_base64(&data)) {
        return err_set(err, DI_E_ARGUMENT, "%s: base64 decode error", path);
    }
    const rec_str head = rec_join(r, REC_STR("data:"), "", media_type);
    const rec_str url = head.data != NULL ? rec_join(r, head, ";base64,", data) : head;
    *out = url.data != NULL ? new_image(r, DI_IMAGE_DATA_URL, DI_DETAIL_HIGH, path, url) : NULL;
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
