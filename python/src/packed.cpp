#include "packed.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include "arrays.h"
#include "contexts.h"
#include "errors.h"
#include "llmspeed/ops.h"

namespace py = pybind11;

namespace llm_speed {

struct PackedWeight {
    lls_tensor tensor;
    std::unique_ptr<void, decltype(&std::free)> buffer{nullptr, std::free};
    size_t bytes = 0;
};

static PyTypeObject *packed_type;

const lls_tensor *packed_weight(PyObject *object) {
    if (Py_TYPE(object) != packed_type) return nullptr;
    return &py::handle(object).cast<PackedWeight *>()->tensor;
}

static std::unique_ptr<PackedWeight> pack(const py::list &weights, const py::object &weight_type) {
    auto packed = std::make_unique<PackedWeight>();
    size_t count = weights.size();
    std::vector<std::unique_ptr<ArrayView>> views;
    std::vector<lls_tensor> tensors;
    ArgumentName name = {"linear_pack", "weights"};
    for (size_t i = 0; i < count; i++) {
        views.push_back(std::make_unique<ArrayView>());
        PyObject *weight = py::handle(weights[i]).ptr();
        if (!views[i]->open(name, weight, false, nullptr)) throw py::error_already_set();
        if (!weight_type.is_none() && !view_as_blocks(name, &views[i]->tensor, weight_type.cast<std::string>().c_str()))
            throw py::error_already_set();
        tensors.push_back(views[i]->tensor);
    }
    struct Job {
        const std::vector<lls_tensor> *tensors;
        PackedWeight *packed;
    } job = {&tensors, packed.get()};
    check(run_on(
        {LLS_CPU, 0}, nullptr,
        [](lls_ctx *ctx, const void *arg, lls_stream) {
            const Job *job = (const Job *)arg;
            PackedWeight *p = job->packed;
            int32_t n = (int32_t)job->tensors->size();
            lls_status status = lls_linear_packed_bytes(ctx, job->tensors->data(), n, &p->bytes);
            if (status) return status;
            p->buffer.reset(std::aligned_alloc(256, (p->bytes + 255) / 256 * 256));
            if (!p->buffer) return LLS_ERR_MEMORY;
            return lls_linear_pack(ctx, job->tensors->data(), n, p->buffer.get(), p->bytes, &p->tensor);
        },
        &job));
    return packed;
}

void add_packed_weight(py::module_ &module) {
    py::class_<PackedWeight> cls(module, "PackedWeight", "Weights [n, k] in the order of the CPU's vector units.");
    cls.def(py::init(&pack), py::arg("weights"), py::arg("weight_type") = py::none())
        .def_property_readonly(
            "shape", [](const PackedWeight &p) { return py::make_tuple(p.tensor.shape[0], p.tensor.shape[1]); })
        .def_property_readonly("dtype", [](const PackedWeight &p) { return lls_dtype_name(p.tensor.dtype); })
        .def_property_readonly("nbytes", [](const PackedWeight &p) { return p.bytes; });
    packed_type = (PyTypeObject *)cls.ptr();
}

} // namespace llm_speed
