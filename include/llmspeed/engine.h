/* llmspeed/engine.h: a model file, its tokenizer, and an engine that runs several sequences at once.
 *
 *     lls_model *model;  lls_engine *engine;
 *     lls_model_load("model.gguf", NULL, &model);
 *     lls_engine_create(model, NULL, &engine);
 *     lls_tokenize(model, "Hello", 5, NULL, ids, 64, &n);
 *     request.prompt = ids, request.prompt_tokens = n, request.max_new_tokens = 64;
 *     lls_generate(engine, &request, print_piece, NULL, NULL);
 *
 * Formats: GGUF v2 and v3. Architectures: llama, mistral, qwen2, qwen3.
 * Objects are not locked: use one engine on one thread at a time. A model may serve several engines and is read only;
 * it must outlive them. */
#ifndef LLMSPEED_ENGINE_H
#define LLMSPEED_ENGINE_H

#include "llmspeed/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Model ----------------------------------------------------------------------------------- */

typedef struct lls_model lls_model;

typedef void (*lls_progress_fn)(double fraction, void *user);

typedef struct lls_model_options {
    size_t struct_size;
    lls_progress_fn progress; /* called with 0 to 1 while an engine loads the weights; NULL: none */
    void *progress_user;
} lls_model_options;
#define LLS_MODEL_OPTIONS_INIT LLS_ARGS_INIT(lls_model_options)

/* Maps the file and checks all of it but the weights' values. Errors: LLS_ERR_IO, LLS_ERR_FORMAT, LLS_ERR_MODEL. */
LLS_API lls_status lls_model_load(const char *path, const lls_model_options *options, lls_model **out);
LLS_API void lls_model_free(lls_model *model);

typedef struct lls_model_info {
    const char *architecture; /* "llama" */
    const char *name;         /* general.name, or "" */
    int64_t file_bytes;
    int64_t num_parameters;
    int64_t bytes_per_token; /* weights that one decode step reads */
    int32_t num_layers, hidden, num_heads, num_kv_heads, head_dim, ffn, vocab_size, context_length;
    bool has_chat_template;
} lls_model_info;
LLS_API lls_model_info lls_model_describe(const lls_model *model);

/* ---- What a file holds ----------------------------------------------------------------------- */

/* A GGUF file opened to look at: also one whose model this library cannot run. */
typedef struct lls_gguf lls_gguf;

/* Maps and checks the file. Errors: LLS_ERR_IO, LLS_ERR_FORMAT, LLS_ERR_MODEL (a tensor type without a kernel here),
 * LLS_ERR_MEMORY. */
LLS_API lls_status lls_gguf_open(const char *path, lls_gguf **out);
LLS_API void lls_gguf_close(lls_gguf *file);

typedef struct lls_gguf_info {
    int32_t version;
    int64_t file_bytes, data_offset;
    int64_t num_entries, num_tensors;
} lls_gguf_info;
LLS_API lls_gguf_info lls_gguf_describe(const lls_gguf *file);

typedef enum lls_gguf_kind {
    LLS_GGUF_INT = 1,
    LLS_GGUF_FLOAT = 2,
    LLS_GGUF_BOOL = 3,
    LLS_GGUF_STRING = 4,
    LLS_GGUF_NESTED = 5 /* an array within an array: its elements cannot be read */
} lls_gguf_kind;

/* A metadata entry: one value (count 1, is_array false) or an array. The key is not NUL-terminated. */
typedef struct lls_gguf_entry {
    const char *key;
    size_t key_bytes;
    const char *type; /* "u32", "string", ... */
    lls_gguf_kind kind;
    bool is_array;
    int64_t count;
} lls_gguf_entry;

/* One element of an entry: the member that the entry's kind names is set. Strings are not NUL-terminated and may hold
 * any bytes. */
typedef struct lls_gguf_value {
    int64_t integer; /* also a bool, as 0 or 1 */
    double real;
    const char *string;
    size_t string_bytes;
} lls_gguf_value;

typedef struct lls_gguf_tensor {
    const char *name;
    lls_dtype dtype;
    int32_t ndim;
    int64_t shape[LLS_MAX_DIMS]; /* outermost first, as in lls_tensor */
    int64_t bytes;
    int64_t offset; /* from the start of the file */
} lls_gguf_tensor;

/* The index-th entry or tensor in file order; false when there is none. A string array is walked from its start for
 * each element. */
LLS_API bool lls_gguf_entry_at(const lls_gguf *file, int64_t index, lls_gguf_entry *out);
LLS_API bool lls_gguf_value_at(const lls_gguf *file, int64_t entry, int64_t element, lls_gguf_value *out);
LLS_API bool lls_gguf_tensor_at(const lls_gguf *file, int64_t index, lls_gguf_tensor *out);

/* ---- Text ------------------------------------------------------------------------------------ */

typedef struct lls_tokenize_options {
    size_t struct_size;
    bool add_special; /* add BOS / EOS as the file says */
    bool
        /* recognise control tokens such as <|im_end|> written in the text; leave off for text from users */
        parse_special;
} lls_tokenize_options;
#define LLS_TOKENIZE_OPTIONS_INIT LLS_ARGS_INIT(lls_tokenize_options)

/* Writes up to `capacity` ids and the full count to *count; call with capacity 0 to size a buffer. text is UTF-8 and
 * may hold NUL bytes.
 * Errors: LLS_ERR_ENCODING with the byte offset. */
LLS_API lls_status lls_tokenize(const lls_model *model, const char *text, size_t text_bytes,
                                const lls_tokenize_options *options, int32_t *ids, size_t capacity, size_t *count);
/* Bytes of a token (not always whole characters). NULL for an id outside the vocabulary. */
LLS_API const char *lls_token_bytes(const lls_model *model, int32_t id, size_t *bytes);

/* Ids to text as they come: whole characters only, U+FFFD for bytes that cannot become one. */
typedef struct lls_detokenizer lls_detokenizer;
/* prompt: the ids in front of those to come, or NULL at the start of a text. They decide whether a space that comes
 * first is the text's own or one that a SentencePiece vocabulary put there. show_control: control tokens appear as they
 * are spelled; otherwise they are hidden. The model must outlive it. */
LLS_API lls_status lls_detokenizer_create(const lls_model *model, const int32_t *prompt, size_t prompt_tokens,
                                          bool show_control, lls_detokenizer **out);
/* The characters that this token completes: not NUL-terminated, valid until the next call. id -1 ends the text: U+FFFD
 * when a character is incomplete. Errors: LLS_ERR_ARGUMENT for an id outside the vocabulary. */
LLS_API lls_status lls_detokenize(lls_detokenizer *detokenizer, int32_t id, const char **text, size_t *bytes);
LLS_API void lls_detokenizer_free(lls_detokenizer *detokenizer);

typedef struct lls_chat_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} lls_chat_message;

/* Ids of a conversation in the model's own chat format, ending where the assistant speaks. Control tokens come from the
 * template alone: the same text inside a message stays text. Errors: LLS_ERR_MODEL when the file has no chat template
 * that this library recognises, LLS_ERR_ARGUMENT for a role. */
LLS_API lls_status lls_chat_tokenize(const lls_model *model, const lls_chat_message *messages, size_t num_messages,
                                     int32_t *ids, size_t capacity, size_t *count);

/* ---- Engine ---------------------------------------------------------------------------------- */

typedef struct lls_engine lls_engine;

typedef struct lls_engine_options {
    size_t struct_size;
    lls_device device;      /* {0}: CPU */
    int32_t num_threads;    /* CPU; 0: all cores */
    int32_t context_length; /* tokens a sequence may hold, prompt included; 0: the smaller of the model's and 4096 */
    int32_t
        /* that run at once; 0: 1. The KV pool holds max_sequences * context_length tokens unless kv_tokens says
         * otherwise */
        max_sequences;
    int64_t kv_tokens;    /* size of the KV pool in tokens; 0: as above */
    lls_dtype kv_dtype;   /* f16, bf16 or f32; 0: f16 */
    int32_t page_size;    /* tokens a KV page; 0: 32 */
    int32_t chunk_tokens; /* prompt tokens a step at most; 0: 512 */
    bool
        /* CPU with quantised weights: keep activations in fp32 instead of two int8 planes (exact, slower) */
        f32_activations;
} lls_engine_options;
#define LLS_ENGINE_OPTIONS_INIT LLS_ARGS_INIT(lls_engine_options)

/* Places the weights on the device. Errors: LLS_ERR_MODEL (a tensor is missing or has the wrong shape), LLS_ERR_MEMORY,
 * LLS_ERR_ARGUMENT, LLS_ERR_NO_DEVICE. */
LLS_API lls_status lls_engine_create(const lls_model *model, const lls_engine_options *options, lls_engine **out);
LLS_API void lls_engine_destroy(lls_engine *engine);

typedef struct lls_sampling {
    float temperature;        /* 0: greedy */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 or 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 0 or 1: off */
    int64_t seed;
} lls_sampling;

typedef enum lls_finish {
    LLS_RUNNING = 0,
    LLS_FINISH_STOP = 1,         /* an end-of-text token, which is not reported as text */
    LLS_FINISH_LENGTH = 2,       /* max_new_tokens reached */
    LLS_FINISH_CONTEXT_FULL = 3, /* context_length reached */
    LLS_FINISH_CANCELLED = 4,
    LLS_FINISH_NUMERIC = 5 /* no logit was a number: a damaged model file */
} lls_finish;

typedef struct lls_request {
    size_t struct_size;
    const int32_t *prompt;      /* ids, copied */
    size_t prompt_tokens;       /* 0 needs a model with a BOS token, which then stands for the prompt */
    int32_t max_new_tokens;     /* -1: until a stop token or a full context */
    bool ignore_stop_tokens;    /* go on past end-of-text tokens (benchmarks) */
    const int32_t *stop_tokens; /* more stop tokens beside the model's own */
    size_t num_stop_tokens;
    lls_sampling sampling;
} lls_request;
#define LLS_REQUEST_INIT LLS_ARGS_INIT(lls_request)

/* Queues a request and gives it an id. Nothing runs yet. A prompt longer than the context: LLS_ERR_CONTEXT_FULL with
 * both numbers (one that fills it exactly ends with LLS_FINISH_CONTEXT_FULL before its first token);
 * ids outside the vocabulary, impossible sampling parameters: LLS_ERR_ARGUMENT. */
LLS_API lls_status lls_engine_add(lls_engine *engine, const lls_request *request, int64_t *id);
LLS_API lls_status lls_engine_cancel(lls_engine *engine, int64_t id);

typedef struct lls_event {
    int64_t id;
    int32_t token;     /* -1 when the event only reports the finish */
    float probability; /* of the token, after temperature and filters */
    lls_finish finish;
} lls_event;

/* One model step: decodes every running sequence and prefills what fits of waiting prompts. Writes up to `capacity`
 * events (max_sequences * 2 always suffices) and their number; *active is the count of requests not finished. A
 * sequence that the KV pool cannot hold waits; if it is the only one it ends with CONTEXT_FULL. */
LLS_API lls_status lls_engine_step(lls_engine *engine, lls_event *events, size_t capacity, size_t *count,
                                   size_t *active);

/* Logits [vocab_size] f32 of the last step's row for this request (valid until the next step); NULL when the request
 * took no sample in it. Host memory. */
LLS_API const float *lls_engine_logits(lls_engine *engine, int64_t id);

typedef struct lls_engine_stats {
    int64_t prefill_tokens, decode_tokens; /* since creation or lls_engine_reset_stats */
    double prefill_seconds, decode_seconds;
    int64_t weight_bytes; /* on the device */
    int64_t kv_bytes;     /* the whole pool */
    int64_t kv_pages, kv_pages_used;
    int64_t bytes_per_decode_token; /* weights read by one decode step; a batch shares them */
} lls_engine_stats;
LLS_API lls_engine_stats lls_engine_get_stats(const lls_engine *engine);
LLS_API void lls_engine_reset_stats(lls_engine *engine);

/* ---- One prompt, streamed -------------------------------------------------------------------- */

/* A piece of text: whole UTF-8 characters, not NUL-terminated. Return false to stop (LLS_FINISH_CANCELLED). */
typedef bool (*lls_text_fn)(const char *text, size_t bytes, void *user);

typedef struct lls_generate_result {
    lls_finish finish;
    int64_t prompt_tokens, new_tokens;
} lls_generate_result;

/* Runs one request to its end on an idle engine. At the end an incomplete character is written as U+FFFD. `result` may
 * be NULL. */
LLS_API lls_status lls_generate(lls_engine *engine, const lls_request *request, lls_text_fn on_text, void *user,
                                lls_generate_result *result);

#ifdef __cplusplus
}
#endif

#endif
