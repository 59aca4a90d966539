#include "engine.h"

#include <pybind11/stl.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
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

class Detokenizer {
  public:
    Detokenizer(std::shared_ptr<Model> model, const Ids &prompt, bool show_control) : model_(std::move(model)) {
        check(lls_detokenizer_create(model_->model, prompt.data(), prompt.size(), show_control, &detokenizer_));
    }
    ~Detokenizer() {
        lls_detokenizer_free(detokenizer_);
    }
    Detokenizer(const Detokenizer &) = delete;
    Detokenizer &operator=(const Detokenizer &) = delete;

    py::str next(int32_t id) {
        const char *text;
        size_t bytes;
        check(lls_detokenize(detokenizer_, id, &text, &bytes));
        return py::str(text, bytes);
    }

  private:
    std::shared_ptr<Model> model_; // outlives it
    lls_detokenizer *detokenizer_ = nullptr;
};

// ---- Engine -----------------------------------------------------------------------------------------

// Serves threads in the order in which they came: none waits longer than one step of each of the others.
class FairMutex {
  public:
    void lock() {
        std::unique_lock<std::mutex> guard(mutex_);
        uint64_t ticket = next_++;
        turn_.wait(guard, [&] { return serving_ == ticket; });
    }
    void unlock() {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            serving_++;
        }
        turn_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable turn_;
    uint64_t next_ = 0, serving_ = 0;
};

class Session;

// The C engine is for one thread at a time: others wait for their turn, without the GIL. Requests belong to sessions; a
// step computes those of all sessions and puts each event where its session finds it.
class Engine {
  public:
    Engine(std::shared_ptr<Model> model, const lls_engine_options &options) : model_(std::move(model)) {
        lls_status status;
        {
            py::gil_scoped_release released;
            status = lls_engine_create(model_->model, &options, &engine_);
        }
        check(status);
        events_.resize(2 * (size_t)(options.max_sequences > 0 ? options.max_sequences : 1));
    }
    ~Engine() {
        lls_engine_destroy(engine_);
    }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    // Runs work(engine) alone and raises what its status says. False: the engine is closed.
    template <typename Work> bool try_locked(Work work) {
        lls_status status = LLS_OK;
        bool open;
        {
            py::gil_scoped_release released;
            std::lock_guard<FairMutex> guard(mutex_);
            open = engine_ != nullptr;
            if (open) status = work(engine_);
        }
        check(status);
        return open;
    }
    template <typename Work> void locked(Work work) {
        if (try_locked(work)) return;
        fail("ArgumentError", "the engine is closed");
        throw py::error_already_set();
    }

    void close() {
        try_locked([&](lls_engine *engine) {
            lls_engine_destroy(engine);
            engine_ = nullptr;
            owners_.clear();
            return LLS_OK;
        });
    }

    // The logits as bytes of float32, or None.
    py::object logits(int64_t id) {
        std::vector<float> copy; // the engine's own are good until its next step
        locked([&](lls_engine *engine) {
            const float *values = lls_engine_logits(engine, id);
            if (values) copy.assign(values, values + lls_model_describe(model_->model).vocab_size);
            return LLS_OK;
        });
        if (copy.empty()) return py::none();
        return py::bytes((const char *)copy.data(), sizeof(float) * copy.size());
    }

    py::dict stats() {
        lls_engine_stats s;
        locked([&](lls_engine *engine) {
            s = lls_engine_get_stats(engine);
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
        locked([&](lls_engine *engine) {
            lls_engine_reset_stats(engine);
            return LLS_OK;
        });
    }

  private:
    friend class Session;
    lls_status step(size_t *active); // locked

    std::shared_ptr<Model> model_; // outlives the engine
    lls_engine *engine_ = nullptr; // NULL once closed
    FairMutex mutex_;
    std::vector<lls_event> events_;
    std::unordered_map<int64_t, Session *> owners_; // of the requests that have not ended
};

// The requests of one caller. When it goes, they are cancelled: so no interrupt leaves any behind.
class Session {
  public:
    explicit Session(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {
    }
    ~Session() {
        try {
            close();
        } catch (py::error_already_set &error) { // only an engine that failed already has steps that fail
            error.discard_as_unraisable("llm_speed: cancelling requests");
        }
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    int64_t add(const Ids &prompt, int32_t max_new_tokens, bool ignore_stop_tokens, const Ids &stop_tokens,
                float temperature, int32_t top_k, float top_p, float min_p, float repetition_penalty, int64_t seed) {
        lls_request request = LLS_REQUEST_INIT;
        request.prompt = prompt.data();
        request.prompt_tokens = prompt.size();
        request.max_new_tokens = max_new_tokens;
        request.ignore_stop_tokens = ignore_stop_tokens;
        request.stop_tokens = stop_tokens.data();
        request.num_stop_tokens = stop_tokens.size();
        request.sampling = {temperature, top_k, top_p, min_p, repetition_penalty, seed};
        int64_t id = 0;
        engine_->locked([&](lls_engine *engine) {
            lls_status status = lls_engine_add(engine, &request, &id);
            if (!status) engine_->owners_[id] = this, active_++;
            return status;
        });
        return id;
    }

    // Nothing for a request that has ended, or is another session's.
    void cancel(int64_t id) {
        engine_->locked([&](lls_engine *engine) {
            auto found = engine_->owners_.find(id);
            return found != engine_->owners_.end() && found->second == this ? lls_engine_cancel(engine, id) : LLS_OK;
        });
    }

    // ([(id, token or -1, probability, finish), ...], active): what other threads' steps have left here, else one step.
    py::tuple step() {
        std::vector<lls_event> events;
        size_t active = 0;
        engine_->locked([&](lls_engine *) {
            lls_status status = LLS_OK;
            size_t all;
            if (inbox_.empty() && active_ > 0) status = engine_->step(&all);
            events.swap(inbox_);
            active = active_;
            return status;
        });
        py::list list;
        for (const lls_event &e : events) list.append(py::make_tuple(e.id, e.token, e.probability, (int)e.finish));
        return py::make_tuple(list, active);
    }

    // Cancels what still runs; its memory is free at once unless other sessions run too, then after their next step.
    void close() {
        engine_->try_locked([&](lls_engine *engine) {
            for (auto owner = engine_->owners_.begin(); owner != engine_->owners_.end();) {
                if (owner->second == this) {
                    lls_engine_cancel(engine, owner->first);
                    owner = engine_->owners_.erase(owner);
                } else {
                    ++owner;
                }
            }
            lls_status status = LLS_OK;
            for (size_t left = active_; left > 0 && !status && engine_->owners_.empty();) status = engine_->step(&left);
            active_ = 0;
            inbox_.clear();
            return status;
        });
    }

  private:
    friend class Engine;
    std::shared_ptr<Engine> engine_;
    std::vector<lls_event> inbox_; // guarded by the engine's mutex, like active_
    size_t active_ = 0;
};

lls_status Engine::step(size_t *active) {
    size_t count = 0;
    lls_status status = lls_engine_step(engine_, events_.data(), events_.size(), &count, active);
    for (size_t i = 0; i < count && !status; i++) {
        auto owner = owners_.find(events_[i].id);
        if (owner == owners_.end()) continue; // of a session that is closed
        owner->second->inbox_.push_back(events_[i]);
        if (!events_[i].finish) continue;
        owner->second->active_--;
        owners_.erase(owner);
    }
    return status;
}

static std::shared_ptr<Engine> make_engine(std::shared_ptr<Model> model, bool cuda, int32_t device_index,
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
    options.page_size = page_size;
    options.chunk_tokens = chunk_tokens;
    options.f32_activations = f32_activations;
    if (!options.kv_dtype) {
        fail("ArgumentError", "engine: kv_dtype is \"%s\", must be f16, bf16 or f32", kv_dtype.c_str());
        throw py::error_already_set();
    }
    return std::make_shared<Engine>(std::move(model), options);
}

void add_engine(py::module_ &module) {
    py::class_<Model, std::shared_ptr<Model>>(module, "Model")
        .def(py::init<const std::string &>(), py::arg("path"))
        .def("describe", &describe)
        .def("tokenize", &tokenize, py::arg("text"), py::arg("add_special"), py::arg("parse_special"))
        .def("tokenize_chat", &tokenize_chat, py::arg("messages"))
        .def("token_bytes", &token_bytes, py::arg("id"));
    py::class_<Detokenizer>(module, "Detokenizer")
        .def(py::init<std::shared_ptr<Model>, const Ids &, bool>(), py::arg("model"), py::arg("prompt"),
             py::arg("show_control"))
        .def("next", &Detokenizer::next, py::arg("id"));
    py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine")
        .def(py::init(&make_engine), py::arg("model"), py::arg("cuda"), py::arg("device_index"), py::arg("num_threads"),
             py::arg("context_length"), py::arg("max_sequences"), py::arg("kv_tokens"), py::arg("kv_dtype"),
             py::arg("page_size"), py::arg("chunk_tokens"), py::arg("f32_activations"))
        .def("logits", &Engine::logits, py::arg("id"))
        .def("stats", &Engine::stats)
        .def("reset_stats", &Engine::reset_stats)
        .def("close", &Engine::close);
    py::class_<Session>(module, "Session")
        .def(py::init<std::shared_ptr<Engine>>(), py::arg("engine"))
        .def("add", &Session::add, py::arg("prompt"), py::arg("max_new_tokens"), py::arg("ignore_stop_tokens"),
             py::arg("stop_tokens"), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"), py::arg("min_p"),
             py::arg("repetition_penalty"), py::arg("seed"))
        .def("cancel", &Session::cancel, py::arg("id"))
        .def("step", &Session::step)
        .def("close", &Session::close);
}

} // namespace llm_speed
