#include "engine/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensor.h"

static lls__str spelling(const lls__tokenizer *tokenizer, int32_t id) {
    return id == LLS__VOCAB_NONE ? (lls__str){"", 0} : lls__token_bytes(tokenizer, id);
}

static char *copy_string(const char *text, size_t size) {
    char *copy = malloc(size + 1);
    if (!copy) return NULL;
    if (size) memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

static lls_status load_tokenizer(lls_model *model) {
    lls__vocab vocab;
    void *storage = NULL;
    LLS_TRY(lls__vocab_from_gguf(model->gguf, &vocab, &storage));
    lls_status status = lls__tokenizer_create(&vocab, &model->tokenizer);
    free(storage);
    if (status) return status;
    if (lls__tokenizer_size(model->tokenizer) > model->config.vocab_size) {
        return lls__fail(LLS_ERR_FORMAT, "%s: tokenizer.ggml.tokens has %d tokens, token_embd.weight has only %d rows",
                         model->gguf->name, lls__tokenizer_size(model->tokenizer), model->config.vocab_size);
    }
    return LLS_OK;
}

// A model without a usable template still generates: the reason is kept for who asks for a chat.
static lls_status load_chat(lls_model *model) {
    lls__gguf_str text;
    LLS_TRY(lls__gguf_string(model->gguf, "tokenizer.chat_template", &text));
    model->turn_end_id = LLS__VOCAB_NONE;
    const char *reason = "the file has no tokenizer.chat_template";
    if (text.data) {
        lls__str chat_template = {text.data, text.size};
        lls_status status =
            lls__chat_create(chat_template, spelling(model->tokenizer, lls__tokenizer_bos(model->tokenizer)),
                             spelling(model->tokenizer, lls__tokenizer_eos(model->tokenizer)), &model->chat);
        if (status == LLS_ERR_MEMORY) return status;
        reason = status ? lls_last_error() : NULL;
    }
    if (reason) {
        model->chat_missing = copy_string(reason, strlen(reason));
        return model->chat_missing ? LLS_OK : lls__fail(LLS_ERR_MEMORY, "model: out of memory");
    }
    lls__str end = lls__chat_end_of_turn(model->chat);
    model->turn_end_id = lls__token_find(model->tokenizer, end.data, end.size);
    return LLS_OK;
}

lls_status lls_model_load(const char *path, const lls_model_options *options, lls_model **out) {
    if (!path || !out) return lls__fail(LLS_ERR_ARGUMENT, "model_load: %s is NULL", path ? "out" : "path");
    *out = NULL;
    lls_model_options opt = LLS_MODEL_OPTIONS_INIT;
    if (options) LLS_TRY(lls__copy_args("model_load", &opt, sizeof opt, options));
    lls_model *model = calloc(1, sizeof *model);
    if (!model) return lls__fail(LLS_ERR_MEMORY, "model_load: out of memory");
    model->progress = opt.progress, model->progress_user = opt.progress_user;
    lls__gguf_str name = {0};
    lls_status status = lls__gguf_open(path, &model->gguf);
    if (!status) status = lls__model_config_read(model->gguf, &model->config);
    if (!status) status = lls__gguf_string(model->gguf, "general.name", &name);
    if (!status) status = load_tokenizer(model);
    if (!status) status = load_chat(model);
    if (!status && !(model->name = copy_string(name.data, name.size)))
        status = lls__fail(LLS_ERR_MEMORY, "model_load: out of memory");
    if (status) {
        lls_model_free(model);
        return status;
    }
    *out = model;
    return LLS_OK;
}

void lls_model_free(lls_model *model) {
    if (!model) return;
    lls__chat_destroy(model->chat);
    lls__tokenizer_destroy(model->tokenizer);
    lls__gguf_close(model->gguf);
    free(model->chat_missing);
    free(model->name);
    free(model);
}

static int64_t numel(const lls__gguf_tensor *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

lls_model_info lls_model_describe(const lls_model *model) {
    const lls__model_config *c = &model->config;
    lls_model_info info = {
        .architecture = lls__arch_name(c->arch),
        .name = model->name,
        .file_bytes = (int64_t)model->gguf->file_bytes,
        .num_layers = c->num_layers,
        .hidden = c->hidden,
        .num_heads = c->num_heads,
        .num_kv_heads = c->num_kv_heads,
        .head_dim = c->head_dim,
        .ffn = c->ffn,
        .vocab_size = c->vocab_size,
        .context_length = c->context_length,
        .has_chat_template = model->chat != NULL,
    };
    for (size_t i = 0; i < model->gguf->num_tensors; i++) {
        const lls__gguf_tensor *t = &model->gguf->tensors[i];
        bool gathered = strcmp(t->name, "token_embd.weight") == 0 && !c->tied_embeddings; // one row a token
        info.num_parameters += numel(t);
        if (!gathered) info.bytes_per_token += (int64_t)t->nbytes;
    }
    return info;
}

bool lls__model_is_stop(const lls_model *model, int32_t id) {
    return id >= 0 && (id == lls__tokenizer_eos(model->tokenizer) || id == lls__tokenizer_eot(model->tokenizer) ||
                       id == model->turn_end_id);
}

// The two-call protocol of the public functions: as many ids as fit, and the full count.
static void hand_out(const lls__ids *from, int32_t *ids, size_t capacity, size_t *count) {
    size_t n = from->size < capacity ? from->size : capacity;
    if (n) memcpy(ids, from->data, n * sizeof *ids);
    *count = from->size;
}

lls_status lls_tokenize(const lls_model *model, const char *text, size_t text_bytes,
                        const lls_tokenize_options *options, int32_t *ids, size_t capacity, size_t *count) {
    if (!model || (!text && text_bytes) || (!ids && capacity) || !count) {
        return lls__fail(LLS_ERR_ARGUMENT, "tokenize: %s is NULL",
                         !model                ? "model"
                         : !count              ? "count"
                         : !text && text_bytes ? "text"
                                               : "ids");
    }
    lls_tokenize_options opt = LLS_TOKENIZE_OPTIONS_INIT;
    if (options) LLS_TRY(lls__copy_args("tokenize", &opt, sizeof opt, options));
    lls__ids found = {0};
    lls_status status = lls__tokenize(model->tokenizer, text, text_bytes, opt.add_special, opt.parse_special, &found);
    if (!status) hand_out(&found, ids, capacity, count);
    free(found.data);
    return status;
}

const char *lls_token_bytes(const lls_model *model, int32_t id, size_t *bytes) {
    lls__str text = lls__token_bytes(model->tokenizer, id);
    *bytes = text.size;
    return text.data;
}

lls_status lls_chat_tokenize(const lls_model *model, const lls_chat_message *messages, size_t num_messages,
                             int32_t *ids, size_t capacity, size_t *count) {
    if (!model || (!messages && num_messages) || (!ids && capacity) || !count) {
        return lls__fail(LLS_ERR_ARGUMENT, "chat_tokenize: %s is NULL",
                         !model                      ? "model"
                         : !count                    ? "count"
                         : !messages && num_messages ? "messages"
                                                     : "ids");
    }
    if (!model->chat) return lls__fail(LLS_ERR_MODEL, "chat_tokenize: %s: %s", model->gguf->name, model->chat_missing);
    lls__message *turns = calloc(num_messages ? num_messages : 1, sizeof *turns);
    if (!turns) return lls__fail(LLS_ERR_MEMORY, "chat_tokenize: out of memory for %zu messages", num_messages);
    lls_status status = LLS_OK;
    for (size_t i = 0; i < num_messages && !status; i++) {
        const lls_chat_message *m = &messages[i];
        if (!m->role || !m->content)
            status =
                lls__fail(LLS_ERR_ARGUMENT, "chat_tokenize: messages[%zu].%s is NULL", i, m->role ? "content" : "role");
        else turns[i] = (lls__message){{m->role, strlen(m->role)}, {m->content, strlen(m->content)}};
    }
    lls__prompt prompt = {0};
    lls__ids found = {0};
    if (!status) status = lls__chat_render(model->chat, turns, num_messages, true, &prompt);
    if (!status) status = lls__tokenize_parts(model->tokenizer, prompt.parts, prompt.num_parts, false, &found);
    if (!status) hand_out(&found, ids, capacity, count);
    free(found.data);
    lls__prompt_free(&prompt);
    free(turns);
    return status;
}
