/* gram_js.c - the JSON machine: which bytes may follow, and what they do to the stack of frames (gram_json.h). */
#include "grammar/gram_machine.h"

static const char *const literals[] = {[GRAM_NULL] = "null", [GRAM_NO] = "false", [GRAM_YES] = "true"};

/* --- Frames ------------------------------------------------------------------------------------------------------- */

uint32_t gram_frame_of(gram_json *j, const gram_frame *frame)
{
    const uint32_t key[] = {frame->kind, frame->anon, frame->parent, frame->view, frame->slot, frame->key, frame->extras};
    bool is_new;
    const uint32_t id = gram_tuple(j->mem, &j->frame_keys, key, sizeof key / sizeof *key, &is_new);
    if (is_new) {
        gram_frame *frames = gram_grow(j->mem, j->frames, id, &j->frame_capacity, sizeof *frames);
        if (frames == NULL) {
            return 0;
        }
        j->frames = frames;
        frames[id] = *frame;
        frames[id].depth = frame->kind == FRAME_ROOT ? 0 : frames[frame->parent].depth + 1;
    }
    return id;
}

/* A new container inside of `ctx` whose contents may open so many levels. */
static uint32_t levels_inside(const gram_json *j, uint32_t ctx)
{
    return gram_frame_levels(j, j->frames[ctx].depth + 1);
}

/* The goal of the value that is written in this frame. */
static uint32_t goal_in(gram_machine *m, uint32_t ctx)
{
    gram_json *j = &m->json;
    const gram_frame *frame = &j->frames[ctx];
    if (frame->kind == FRAME_ROOT) {
        return frame->view;
    }
    return frame->kind == FRAME_OBJECT ? gram_obj_choose(j, frame->view, frame->slot - 1)->goal : gram_arr_choose(j, frame->view)->goal;
}

static gram_step_result go(gram_machine *m, gram_pos *pos, uint32_t ctx, uint32_t lex)
{
    *pos = (gram_pos){ctx, lex, 0};
    return gram_failed(m->mem) || lex == 0 ? GRAM_STEP_DEAD : GRAM_STEP_OK;
}

static gram_step_result go_gap(gram_machine *m, gram_pos *pos, uint32_t ctx, gram_lex_kind kind)
{
    const uint32_t gap = gram_gap_start(m);
    return go(m, pos, ctx, gram_lex_id(m->lexes, kind, &gap, 1));
}

static gram_step_result go_value(gram_machine *m, gram_pos *pos, uint32_t ctx, gram_lex_kind kind, uint32_t goal)
{
    const uint32_t words[] = {gram_gap_start(m), goal};
    return go(m, pos, ctx, gram_lex_id(m->lexes, kind, words, 2));
}

/* --- Ends of values ----------------------------------------------------------------------------------------------- */

/* The names used before and one more. */
static gram_used add_extra(gram_json *j, gram_used extras, uint32_t name)
{
    uint32_t n;
    const uint32_t *chars = gram_tuple_at(&j->forms->names, name, &n);
    return gram_used_add(&j->used, extras, chars, n);
}

static gram_step_result member_done(gram_machine *m, gram_pos *pos, uint32_t bits)
{
    gram_json *j = &m->json;
    const gram_frame frame = j->frames[pos->ctx];
    const uint32_t slot = frame.slot - 1;
    gram_frame next = frame;
    next.view = gram_obj_add(j, frame.view, slot, bits);
    next.slot = 0;
    next.key = 0;
    if (frame.key == GRAM_ANON) {
        next.anon = true;
    } else if (slot >= j->obj_plans[j->obj_states[j->obj_views[frame.view]->state].plan].n_names) {
        next.extras = add_extra(j, frame.extras, frame.key);
    }
    return go_gap(m, pos, gram_frame_of(j, &next), LX_AFTER_MEMBER);
}

static gram_step_result item_done(gram_machine *m, gram_pos *pos, uint32_t bits, const gram_before *before, int byte, bool *textual)
{
    gram_json *j = &m->json;
    gram_frame next = j->frames[pos->ctx];
    gram_form value = GRAM_FALSE;
    if (j->arr_plans[j->arr_views[next.view]->plan].unique) {
        *textual = true;
        if (before == NULL) {
            return GRAM_STEP_EXACT;
        }
        value = gram_js_value_before(m, before, byte);
    }
    next.view = gram_arr_add(j, next.view, bits, value);
    return go_gap(m, pos, gram_frame_of(j, &next), LX_AFTER_ITEM);
}

/* A value is complete. `byte` is its last one, or -1 when the text before ends with it. */
static gram_step_result value_done(gram_machine *m, gram_pos *pos, uint32_t bits, const gram_before *before, int byte, bool *textual)
{
    switch (m->json.frames[pos->ctx].kind) {
    case FRAME_OBJECT:
        return member_done(m, pos, bits);
    case FRAME_ARRAY:
        return item_done(m, pos, bits, before, byte, textual);
    default:
        return go(m, pos, pos->ctx, gram_lex_id(m->lexes, LX_DONE, NULL, 0));
    }
}

static gram_step_result close_container(gram_machine *m, gram_pos *pos, uint8_t byte, const gram_before *before, bool *textual)
{
    gram_json *j = &m->json;
    const gram_frame frame = j->frames[pos->ctx];
    const bool object = frame.kind == FRAME_OBJECT;
    if (!(object ? gram_obj_closable(j, frame.view) : gram_arr_closable(j, frame.view))) {
        return GRAM_STEP_DEAD;
    }
    const uint32_t bits = object ? gram_obj_result(j, frame.view) : gram_arr_result(j, frame.view);
    pos->ctx = frame.parent;
    return value_done(m, pos, bits, before, byte, textual);
}

/* --- Beginnings of values ----------------------------------------------------------------------------------------- */

static gram_step_result open_container(gram_machine *m, gram_pos *pos, uint32_t goal, bool object)
{
    gram_json *j = &m->json;
    if (j->frames[pos->ctx].depth >= j->max_depth ||
        gram_form_of(j->forms, j->goals[goal].form, object ? GRAM_OBJECT : GRAM_ARRAY) == GRAM_FALSE) {
        return GRAM_STEP_DEAD;
    }
    const uint32_t levels = levels_inside(j, pos->ctx);
    const uint32_t plan = gram_goal_plan(j, goal, object ? GRAM_OBJECT : GRAM_ARRAY);
    gram_frame frame = {.kind = object ? FRAME_OBJECT : FRAME_ARRAY, .parent = pos->ctx};
    if (gram_failed(j->mem)) {
        return GRAM_STEP_DEAD;
    }
    frame.view = object ? gram_obj_start(j, plan, levels) : gram_arr_start(j, plan, levels);
    if (gram_failed(j->mem) || !(object ? gram_obj_viable(j, frame.view) : gram_arr_viable(j, frame.view))) {
        return GRAM_STEP_DEAD;
    }
    const uint32_t ctx = gram_frame_of(j, &frame);
    if (object) {
        return go_gap(m, pos, ctx, LX_FIRST_KEY);
    }
    const gram_arr_choice *choice = gram_arr_choose(j, frame.view);
    return go_value(m, pos, ctx, LX_FIRST_ITEM, choice->allowed ? choice->goal : GRAM_NONE);
}

static uint32_t text_start(gram_machine *m, uint32_t goal)
{
    gram_json *j = &m->json;
    if (gram_form_of(j->forms, j->goals[goal].form, GRAM_STRING) == GRAM_FALSE) {
        return 0;
    }
    return gram_text_start(&j->texts, gram_goal_plan(j, goal, GRAM_STRING), MODE_STRING);
}

static uint32_t number_state(gram_machine *m, uint32_t plan, uint32_t state)
{
    return state == GRAM_NONE ? 0 : gram_lex_id(m->lexes, LX_NUMBER, (const uint32_t[]){plan, state}, 2);
}

static uint32_t number_start(gram_machine *m, uint32_t goal, uint8_t byte)
{
    gram_json *j = &m->json;
    if (gram_form_of(j->forms, j->goals[goal].form, GRAM_NUMBER) == GRAM_FALSE) {
        return 0;
    }
    const uint32_t plan = gram_goal_plan(j, goal, GRAM_NUMBER);
    const uint32_t start = gram_num_start(&j->nums, plan);
    return start == GRAM_NONE ? 0 : number_state(m, plan, gram_num_step(&j->nums, start, byte));
}

static uint32_t literal_start(gram_machine *m, uint32_t goal, gram_type type)
{
    if (gram_form_of(m->forms, m->json.goals[goal].form, type) != GRAM_TRUE) {
        return 0;
    }
    return gram_lex_id(m->lexes, LX_LITERAL, (const uint32_t[]){type, 1}, 2);
}

/* The state behind the first byte of a scalar, 0 when there is none. */
static uint32_t scalar_start(gram_machine *m, uint32_t goal, uint8_t byte)
{
    switch (byte) {
    case '"':
        return text_start(m, goal);
    case 'n':
        return literal_start(m, goal, GRAM_NULL);
    case 'f':
        return literal_start(m, goal, GRAM_NO);
    case 't':
        return literal_start(m, goal, GRAM_YES);
    default:
        return byte == '-' || (byte >= '0' && byte <= '9') ? number_start(m, goal, byte) : 0;
    }
}

static gram_step_result begin_value(gram_machine *m, gram_pos *pos, uint32_t goal, uint8_t byte)
{
    if (byte == '{' || byte == '[') {
        return open_container(m, pos, goal, byte == '{');
    }
    return go(m, pos, pos->ctx, scalar_start(m, goal, byte));
}

/* --- Names -------------------------------------------------------------------------------------------------------- */

static uint32_t plan_of_frame(const gram_json *j, const gram_frame *frame)
{
    return j->obj_states[j->obj_views[frame->view]->state].plan;
}

static gram_step_result begin_name(gram_machine *m, gram_pos *pos, bool has_text)
{
    gram_json *j = &m->json;
    const gram_frame frame = j->frames[pos->ctx];
    const uint32_t plan = plan_of_frame(j, &frame);
    if (frame.anon && !has_text) {
        return GRAM_STEP_EXACT; /* the unknown name must not come again */
    }
    const uint32_t vec = gram_obj_key_vec(j, plan);
    gram_obj_prepare_keys(j, frame.view);
    if (gram_failed(m->mem) || !gram_obj_more(j, frame.view)) {
        return GRAM_STEP_DEAD;
    }
    /* Where every text begins a name, and there is nothing to be told apart from, no byte needs a second look. */
    const gram_mode mode = j->obj_views[frame.view]->open && frame.extras == GRAM_NONE_USED ? MODE_KEY : MODE_KEY_CHECK;
    const gram_step_result result = go(m, pos, pos->ctx, gram_chars_state(m->lexes, mode, vec, 0));
    pos->n = frame.extras;
    return result;
}

/* The slot of a name that ends in a vector; GRAM_NONE when it is not allowed. */
static uint32_t slot_of(gram_machine *m, const gram_frame *frame, uint32_t vec)
{
    gram_json *j = &m->json;
    const gram_obj_plan *plan = &j->obj_plans[plan_of_frame(j, frame)];
    const gram_obj_view *view = j->obj_views[frame->view];
    const gram_vec *rests = &m->lexes->vecs[vec];
    uint32_t list;
    uint32_t from;
    uint32_t to;
    if (gram_nullable(m->lang, rests->ex[0]) && gram_ex_is_words(m->lang, rests->ex[0], &list, &from, &to)) {
        return gram_has(view->words, from) ? plan->word_slot[from] : GRAM_NONE;
    }
    uint32_t k = 1;
    for (uint32_t i = 0; i < plan->n_classes; i++) {
        if ((plan->key_classes >> i & 1) == 0) {
            continue;
        }
        if (gram_nullable(m->lang, rests->ex[k])) {
            return (view->classes >> i & 1) != 0 ? plan->n_names + i : GRAM_NONE;
        }
        k++;
    }
    return GRAM_NONE;
}

static gram_step_result end_name(gram_machine *m, gram_pos *pos, const gram_before *before, bool *textual)
{
    gram_json *j = &m->json;
    gram_frame frame = j->frames[pos->ctx];
    const uint32_t slot = slot_of(m, &frame, gram_lex_at(m->lexes, pos->lex)->words[1]);
    if (slot == GRAM_NONE) {
        return GRAM_STEP_DEAD;
    }
    frame.slot = slot + 1;
    if (slot >= j->obj_plans[plan_of_frame(j, &frame)].n_names) {
        *textual = true;
        if (gram_used_ends(&j->used, pos->n)) {
            return GRAM_STEP_DEAD; /* it was there before */
        }
        frame.key = before != NULL ? gram_js_name_before(m, before) : GRAM_ANON;
    }
    return go_gap(m, pos, gram_frame_of(j, &frame), LX_COLON);
}

typedef struct name_check {
    gram_machine *m;
    const gram_obj_plan *plan;
    const gram_obj_view *view;
    gram_used used; /* what is left of the names used before */
} name_check;

static bool any_word_allowed(const gram_obj_view *view, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (i % 32 == 0 && to - i >= 32) {
            if (view->words[i / 32] != 0) {
                return true;
            }
            i += 31;
        } else if (gram_has(view->words, i)) {
            return true;
        }
    }
    return false;
}

/* A name that may come goes on with this vector, without the names in `used`. */
static bool goes_on(name_check *c, uint32_t vec, gram_used used)
{
    gram_lang *l = c->m->lang;
    const gram_vec rests = c->m->lexes->vecs[vec];
    uint32_t list;
    uint32_t from;
    uint32_t to;
    if (gram_ex_is_words(l, rests.ex[0], &list, &from, &to) && any_word_allowed(c->view, from, to)) {
        return true;
    }
    uint32_t k = 1;
    for (uint32_t i = 0; i < c->plan->n_classes; i++) {
        if ((c->plan->key_classes >> i & 1) == 0) {
            continue;
        }
        const gram_ex rest = rests.ex[k++];
        if ((c->view->classes >> i & 1) != 0 && gram_used_leaves(&c->m->json.used, l, rest, used)) {
            return true;
        }
    }
    return false;
}

static bool accept_vec(void *user, uint32_t vec, uint32_t first, uint32_t last)
{
    name_check *c = user;
    if (first > last || c->used == GRAM_NONE_USED) {
        return goes_on(c, vec, c->used);
    }
    for (uint32_t i = first; i <= last && gram_spend(c->m->mem, 1); i++) { /* most characters leave the used names behind */
        if (goes_on(c, vec, gram_used_step(&c->m->json.used, c->used, i))) {
            return true;
        }
    }
    return false;
}

uint32_t gram_js_class_names(gram_machine *m, uint32_t ctx, uint32_t vec)
{
    const gram_json *j = &m->json;
    const gram_obj_view *view = j->obj_views[j->frames[ctx].view];
    const gram_obj_plan *plan = &j->obj_plans[j->obj_states[view->state].plan];
    gram_stack *work = &m->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(m->mem, work, GRAM_EX_NONE);
    for (uint32_t i = 0; i < plan->n_classes; i++) {
        if ((plan->key_classes >> i & 1) != 0) {
            const gram_ex ex = m->lexes->vecs[vec].ex[work->n - base];
            (void)gram_push(m->mem, work, (view->classes >> i & 1) != 0 ? ex : GRAM_EX_NONE);
        }
    }
    const uint32_t names = gram_failed(m->mem) ? 0 : gram_vec_id(m->lexes, work->words + base, work->n - base, true);
    work->n = base;
    return gram_chars_state(m->lexes, MODE_KEY, names, 0);
}

/* A byte inside of a name that the context must look at. */
static gram_step_result go_on_name(gram_machine *m, gram_pos *pos, uint8_t byte, uint32_t next)
{
    gram_json *j = &m->json;
    const gram_frame *frame = &j->frames[pos->ctx];
    next = next != 0 ? next : gram_chars_next(m->lexes, pos->lex, byte);
    if (next == 0) {
        return GRAM_STEP_DEAD;
    }
    const uint32_t c = gram_chars_ended(m->lexes, pos->lex, byte);
    if (c != GRAM_NONE) {
        pos->n = gram_used_step(&j->used, pos->n, c);
    }
    pos->lex = next;
    const gram_lex *state = gram_lex_at(m->lexes, next);
    const bool free = pos->n == GRAM_NONE_USED && state->kind == LX_CHAR; /* no name used before begins like this */
    if (free && m->lexes->vecs[state->words[1]].ex[0] == GRAM_EX_NONE) { /* nor a declared one: no more looking */
        pos->lex = gram_js_class_names(m, pos->ctx, state->words[1]);
        return pos->lex != 0 ? GRAM_STEP_OK : GRAM_STEP_DEAD;
    }
    if (j->obj_views[frame->view]->open) {
        if (free) {
            pos->lex = gram_chars_state(m->lexes, MODE_KEY, state->words[1], 0);
        }
        return pos->lex != 0 ? GRAM_STEP_OK : GRAM_STEP_DEAD;
    }
    name_check check = {m, &j->obj_plans[plan_of_frame(j, frame)], j->obj_views[frame->view], pos->n};
    return gram_chars_reaches(m->lexes, next, accept_vec, &check) && !gram_failed(m->mem) ? GRAM_STEP_OK : GRAM_STEP_DEAD;
}

/* --- Steps -------------------------------------------------------------------------------------------------------- */

static gram_step_result end_text(gram_machine *m, gram_pos *pos, const gram_before *before, bool *textual)
{
    gram_json *j = &m->json;
    const uint32_t goal = goal_in(m, pos->ctx);
    const uint32_t plan = gram_goal_plan(j, goal, GRAM_STRING);
    if (!gram_text_complete(&j->texts, plan, pos->lex, pos->n)) {
        return GRAM_STEP_DEAD;
    }
    return value_done(m, pos, gram_goal_bits(j, goal, GRAM_STRING, pos->lex, pos->n), before, '"', textual);
}

/* A number has no end of its own: the byte behind it belongs to what follows. */
static gram_step_result end_number(gram_machine *m, gram_pos *pos, uint8_t byte, const gram_before *before, bool *textual)
{
    const uint32_t bits = gram_goal_bits(&m->json, goal_in(m, pos->ctx), GRAM_NUMBER, pos->lex, 0);
    const gram_step_result done = value_done(m, pos, bits, before, -1, textual);
    if (done != GRAM_STEP_OK) {
        return done;
    }
    const uint32_t *row = gram_machine_row(m, pos->lex);
    const uint32_t cell = row != NULL ? row[byte] : GRAM_DEAD;
    if ((cell & GRAM_SLOW) != 0) {
        return gram_js_step(m, pos, byte, cell & GRAM_ID, before, textual);
    }
    pos->n += (cell & GRAM_COUNT) != 0;
    pos->lex = cell & GRAM_ID;
    return pos->lex != 0 ? GRAM_STEP_OK : GRAM_STEP_DEAD;
}

static gram_step_result after_item(gram_machine *m, gram_pos *pos)
{
    const gram_arr_choice *choice = gram_arr_choose(&m->json, m->json.frames[pos->ctx].view);
    return choice->allowed ? go_value(m, pos, pos->ctx, LX_VALUE, choice->goal) : GRAM_STEP_DEAD;
}

gram_step_result gram_js_step(gram_machine *m, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before, bool *textual)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos->lex);
    switch ((gram_lex_kind)state->kind) {
    case LX_NUMBER:
        return end_number(m, pos, byte, before, textual);
    case LX_LITERAL:
        return value_done(m, pos, gram_goal_bits(&m->json, goal_in(m, pos->ctx), (gram_type)state->words[0], 0, 0), before, byte, textual);
    case LX_VALUE:
        return begin_value(m, pos, state->words[1], byte);
    case LX_FIRST_ITEM:
        return byte == ']' ? close_container(m, pos, byte, before, textual)
                           : state->words[1] != GRAM_NONE ? begin_value(m, pos, state->words[1], byte) : GRAM_STEP_DEAD;
    case LX_FIRST_KEY:
        return byte == '}' ? close_container(m, pos, byte, before, textual) : begin_name(m, pos, before != NULL);
    case LX_NEXT_KEY:
        return begin_name(m, pos, before != NULL);
    case LX_COLON:
        return go_value(m, pos, pos->ctx, LX_VALUE, goal_in(m, pos->ctx));
    case LX_AFTER_MEMBER:
        if (byte == ',') {
            return gram_obj_more(&m->json, m->json.frames[pos->ctx].view) ? go_gap(m, pos, pos->ctx, LX_NEXT_KEY) : GRAM_STEP_DEAD;
        }
        return close_container(m, pos, byte, before, textual);
    case LX_AFTER_ITEM:
        return byte == ',' ? after_item(m, pos) : close_container(m, pos, byte, before, textual);
    default:
        if (byte == '"' && state->kind == LX_CHAR) {
            return state->mode == MODE_STRING ? end_text(m, pos, before, textual) : end_name(m, pos, before, textual);
        }
        return go_on_name(m, pos, byte, hint);
    }
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static void fill_number(gram_machine *m, const gram_lex *state, uint32_t *row)
{
    gram_nums *nums = &m->json.nums;
    const uint32_t plan = state->words[0];
    const uint32_t at = state->words[1];
    for (const char *byte = "0123456789.eE+-"; *byte != '\0'; byte++) {
        row[(uint8_t)*byte] = number_state(m, plan, gram_num_step(nums, at, (uint8_t)*byte));
    }
    for (const char *byte = ",]} \t\n\r"; *byte != '\0' && gram_num_complete(nums, at); byte++) {
        row[(uint8_t)*byte] = GRAM_SLOW;
    }
}

static void fill_value(gram_machine *m, const gram_lex *state, uint32_t *row)
{
    gram_json *j = &m->json;
    const uint32_t goal = state->words[1];
    for (const char *byte = "\"nft-0123456789"; goal != GRAM_NONE && *byte != '\0'; byte++) {
        const uint32_t to = scalar_start(m, goal, (uint8_t)*byte);
        row[(uint8_t)*byte] = to == 0 ? GRAM_DEAD : gram_gap_is_counted(state->words[0]) ? GRAM_SLOW : to;
    }
    if (goal != GRAM_NONE) {
        row['{'] = gram_form_of(j->forms, j->goals[goal].form, GRAM_OBJECT) != GRAM_FALSE ? GRAM_SLOW : GRAM_DEAD;
        row['['] = gram_form_of(j->forms, j->goals[goal].form, GRAM_ARRAY) != GRAM_FALSE ? GRAM_SLOW : GRAM_DEAD;
    }
    if (state->kind == LX_FIRST_ITEM) {
        row[']'] = GRAM_SLOW;
    }
}

static void fill_literal(gram_machine *m, const gram_lex *state, uint32_t *row)
{
    const char *text = literals[state->words[0]];
    const uint32_t taken = state->words[1];
    const bool last = text[taken + 1] == '\0';
    row[(uint8_t)text[taken]] = last ? GRAM_SLOW : gram_lex_id(m->lexes, LX_LITERAL, (const uint32_t[]){state->words[0], taken + 1}, 2);
}

void gram_js_fill(gram_machine *m, uint32_t lex)
{
    gram_lex *state = gram_lex_at(m->lexes, lex);
    uint32_t *row = gram_lex_new_row(m->lexes);
    if (row == NULL) {
        return;
    }
    const char *bytes = "";
    switch ((gram_lex_kind)state->kind) {
    case LX_NUMBER:
        fill_number(m, state, row);
        break;
    case LX_LITERAL:
        fill_literal(m, state, row);
        break;
    case LX_FIRST_KEY:
        bytes = "\"}";
        break;
    case LX_NEXT_KEY:
        bytes = "\"";
        break;
    case LX_COLON:
        bytes = ":";
        break;
    case LX_AFTER_MEMBER:
        bytes = ",}";
        break;
    case LX_AFTER_ITEM:
        bytes = ",]";
        break;
    default:
        break;
    }
    if (state->kind >= LX_VALUE && state->kind <= LX_AFTER_ITEM) {
        gram_gap_fill(m, lex, row);
        if (gram_gap_may_end(m, state->words[0])) {
            for (; *bytes != '\0'; bytes++) {
                row[(uint8_t)*bytes] = GRAM_SLOW;
            }
            if (state->kind <= LX_FIRST_ITEM) {
                fill_value(m, state, row);
            }
        }
    }
    if (!gram_failed(m->mem)) {
        gram_lex_publish(state, row);
    }
}

bool gram_js_is_done(gram_machine *m, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    if (state->kind != LX_DONE && state->kind != LX_NUMBER) {
        return false;
    }
    return m->json.frames[pos.ctx].kind == FRAME_ROOT && (state->kind == LX_DONE || gram_num_complete(&m->json.nums, state->words[1]));
}

bool gram_js_start(gram_machine *m, uint32_t goal, uint32_t after, gram_pos *out)
{
    gram_json *j = &m->json;
    const gram_frame root = {.kind = FRAME_ROOT, .view = goal, .slot = after};
    const uint32_t ctx = gram_frame_of(j, &root);
    if (gram_failed(m->mem) || !gram_sat(j, j->goals[goal].form, gram_frame_levels(j, 0))) {
        return false;
    }
    /* Nothing but the value: no white space before it. */
    const uint32_t words[] = {GRAM_NO_GAP, goal};
    *out = (gram_pos){ctx, gram_lex_id(m->lexes, LX_VALUE, words, 2), 0};
    return !gram_failed(m->mem);
}
