#include "engine.h"

#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "llmspeed/engine.h"

namespace py = pybind11;
using Ids = std::vector<int32_t>;

namespace llm_speed {

// ---- Model ------------------------------------------------------------------------------------------

class Model {
  public:
    explicit Model(const std::string &path) {
        lls_status status;
        {
            py::gil_scoped_release released;
            status = lls_model_load(path.c_str(), nullptr, &model);
        }
        check(status);
    }
    ~Model() {
        lls_model_free(model);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;
    lls_model *model = nullptr;
};

static py::dict describe(const Model &model) {
    lls_model_info info = lls_model_describe(model.model);
    py::dict d;
    d["architecture"] = info.architecture;
    d["name"] = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(info.name, strlen(info.name), "replace"));
    d["file_bytes"] = info.file_bytes;
    d["num_parameters"] = info.num_parameters;
    d["bytes_per_token"] = info.bytes_per_token;
    d["num_layers"] = info.num_layers;
    d["hidden"] = info.hidden;
    d["num_heads"] = info.num_heads;
    d["num_kv_heads"] = info.num_kv_heads;
    d["head_dim"] = info.head_dim;
    d["ffn"] = info.ffn;
    d["vocab_size"] = info.vocab_size;
    d["context_length"] = info.context_length;
    d["has_chat_template"] = info.has_chat_template;
    return d;
}

// Calls tokenizer(ids, capacity, &count) once for the size and once for the ids.
template <typename Tokenizer> static Ids collect_ids(Tokenizer tokenizer) {
    Ids ids;
    size_t count = 0;
    lls_status status;
    {
        py::gil_scoped_release released;
        status = tokenizer(nullptr, 0, &count);
        if (!status) {
            ids.resize(count);
            status = tokenizer(ids.data(), ids.size(), &count);
        }
    }
    check(status);
    return ids;
}

static Ids tokenize(const Model &model, const std::string &text, bool add_special, bool parse_special) {
    lls_tokenize_options options = LLS_TOKENIZE_OPTIONS_INIT;
    options.add_special = add_special;
    options.parse_special = parse_special;
    return collect_ids([&](int32_t *ids, size_t capacity, size_t *count) {
        return lls_tokenize(model.model, text.data(), text.size(), &options, ids, capacity, count);
    });
}

static Ids tokenize_chat(const Model &model, const std::vector<std::pair<std::string, std::string>> &messages) {
    std::vector<lls_chat_message> views;
    for (const auto &m : messages) views.push_back({m.first.c_str(), m.second.c_str()});
    return collect_ids([&](int32_t *ids, size_t capacity, size_t *count) {
        return lls_chat_tokenize(model.model, views.data(), views.size(), ids, capacity, count);
    });
}

static py::object token_bytes(const Model &model, int32_t id) {
    size_t bytes = 0;
    const char *text = lls_token_bytes(model.model, id, &bytes);
    if (!text) return py::none();
    return py::bytes(text, bytes);
}

// ---- Engine -----------------------------------------------------------------------------------------

// The C engine is for one thread at a time: a second one waits its turn, without the GIL.
class Engine {
  public:
    Engine(std::shared_ptr<Model> model, const lls_engine_options &options) : model_(std::move(model)) {
        lls_engine *engine = nullptr;
        lls_status status;
        {
            py::gil_scoped_release released;
            status = lls_engine_create(model_->model, &options, &engine);
        }
        check(status);
        engine_.reset(engine);
    }

    int64_t add(const Ids &prompt, int32_t max_new_tokens, bool ignore_stop_tokens, const Ids &stop_tokens,
                const lls_sampling &sampling) {
        lls_request request = LLS_REQUEST_INIT;
        request.prompt = prompt.data();
        request.prompt_tokens = prompt.size();
        request.max_new_tokens = max_new_tokens;
        request.ignore_stop_tokens = ignore_stop_tokens;
        request.stop_tokens = stop_tokens.data();
        request.num_stop_tokens = stop_tokens.size();
        request.sampling = sampling;
        int64_t id = 0;
        locked([&] { return lls_engine_add(engine_.get(), &request, &id); });
        return id;
    }

    void cancel(int64_t id) {
        locked([&] { return lls_engine_cancel(engine_.get(), id); });
    }

    // ([(id, token or -1, probability, finish), ...], active)
    py::tuple step() {
        std::vector<lls_event> events(capacity_);
        size_t count = 0, active = 0;
        locked([&] { return lls_engine_step(engine_.get(), events.data(), events.size(), &count, &active); });
        py::list list;
        for (size_t i = 0; i < count; i++) {
            const lls_event &e = events[i];
            list.append(py::make_tuple(e.id, e.token, e.probability, (int)e.finish));
        }
        return py::make_tuple(list, active);
    }

    // The logits as bytes of float32, or None.
    py::object logits(int64_t id) {
        std::vector<float> copy; // the engine's own are good until its next step
        locked([&] {
            const float *values = lls_engine_logits(engine_.get(), id);
            if (values) copy.assign(values, values + lls_model_describe(model_->model).vocab_size);
            return LLS_OK;
        });
        if (copy.empty()) return py::none();
        return py::bytes((const char *)copy.data(), sizeof(float) * copy.size());
    }

    py::dict stats() {
        lls_engine_stats s;
        locked([&] {
            s = lls_engine_get_stats(engine_.get());
            return LLS_OK;
        });
        py::dict d;
        d["prefill_tokens"] = s.prefill_tokens;
        d["decode_tokens"] = s.decode_tokens;
        d["prefill_seconds"] = s.prefill_seconds;
        d["decode_seconds"] = s.decode_seconds;
        d["weight_bytes"] = s.weight_bytes;
        d["kv_bytes"] = s.kv_bytes;
        d["kv_pages"] = s.kv_pages;
        d["kv_pages_used"] = s.kv_pages_used;
        d["bytes_per_decode_token"] = s.bytes_per_decode_token;
        return d;
    }

    void reset_stats() {
        locked([&] {
            lls_engine_reset_stats(engine_.get());
            return LLS_OK;
        });
    }

    size_t capacity_ = 2;

  private:
    template <typename Work> void locked(Work work) {
        lls_status status;
        {
            py::gil_scoped_release released;
            std::lock_guard<std::mutex> guard(mutex_);
            status = work();
        }
        check(status);
    }

    std::shared_ptr<Model> model_; // outlives the engine
    std::unique_ptr<lls_engine, decltype(&lls_engine_destroy)> engine_{nullptr, lls_engine_destroy};
    std::mutex mutex_;
};

static std::unique_ptr<Engine> make_engine(std::shared_ptr<Model> model, bool cuda, int32_t device_index,
                                           int32_t num_threads, int32_t context_length, int32_t max_sequences,
                                           int64_t kv_tokens, const std::string &kv_dtype, int32_t page_size,
                                           int32_t chunk_tokens, bool f32_activations) {
    lls_engine_options options = LLS_ENGINE_OPTIONS_INIT;
    options.device = {cuda ? LLS_CUDA : LLS_CPU, device_index};
    options.num_threads = num_threads;
    options.context_length = context_length;
    options.max_sequences = max_sequences;
    options.kv_tokens = kv_tokens;
    options.kv_dtype = dtype_named(kv_dtype.c_str());
    if (!options.kv_dtype) throw py::value_error("engine: kv_dtype is \"" + kv_dtype + "\", must be f16, bf16 or f32");
    options.page_size = page_size;
    options.chunk_tokens = chunk_tokens;
    options.f32_activations = f32_activations;
    auto engine = std::make_unique<Engine>(std::move(model), options);
    engine->capacity_ = 2 * (size_t)(max_sequences > 0 ? max_sequences : 1);
    return engine;
}

static int64_t add_request(Engine &engine, const Ids &prompt, int32_t max_new_tokens, bool ignore_stop_tokens,
                           const Ids &stop_tokens, float temperature, int32_t top_k, float top_p, float min_p,
                           float repetition_penalty, int64_t seed) {
    return engine.add(prompt, max_new_tokens, ignore_stop_tokens, stop_tokens,
                      {temperature, top_k, top_p, min_p, repetition_penalty, seed});
}

void add_engine(py::module_ &module) {
    py::class_<Model, std::shared_ptr<Model>>(module, "Model")
        .def(py::init<const std::string &>(), py::arg("path"))
        .def("describe", &describe)
        .def("tokenize", &tokenize, py::arg("text"), py::arg("add_special"), py::arg("parse_special"))
        .def("tokenize_chat", &tokenize_chat, py::arg("messages"))
        .def("token_bytes", &token_bytes, py::arg("id"));
    py::class_<Engine>(module, "Engine")
        .def(py::init(&make_engine), py::arg("model"), py::arg("cuda"), py::arg("device_index"), py::arg("num_threads"),
             py::arg("context_length"), py::arg("max_sequences"), py::arg("kv_tokens"), py::arg("kv_dtype"),
             py::arg("page_size"), py::arg("chunk_tokens"), py::arg("f32_activations"))
        .def("add", &add_request, py::arg("prompt"), py::arg("max_new_tokens"), py::arg("ignore_stop_tokens"),
             py::arg("stop_tokens"), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"), py::arg("min_p"),
             py::arg("repetition_penalty"), py::arg("seed"))
        .def("cancel", &Engine::cancel, py::arg("id"))
        .def("step", &Engine::step)
        .def("logits", &Engine::logits, py::arg("id"))
        .def("stats", &Engine::stats)
        .def("reset_stats", &Engine::reset_stats);
}

} // namespace llm_speed
