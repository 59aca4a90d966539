#include "profile.h"

#include "contexts.h"
#include "errors.h"

namespace py = pybind11;

namespace llm_speed {

static thread_local std::vector<RecordedCall> calls;

static py::tuple triple(const uint32_t size[3]) {
    return py::make_tuple(size[0], size[1], size[2]);
}

static py::list record_stop() {
    record_calls(nullptr);
    py::list list;
    for (const RecordedCall &call : calls) {
        const lls_record &r = call.record;
        py::dict d;
        d["op"] = r.op;
        d["variant"] = r.variant;
        d["cuda"] = r.device.type == LLS_CUDA;
        d["device_index"] = r.device.index;
        d["stream"] = (uintptr_t)call.stream;
        d["math"] = (int)r.math;
        d["flops"] = r.flops;
        d["bytes"] = r.bytes;
        d["num_kernels"] = r.num_kernels;
        d["kernel"] = r.kernel;
        d["grid"] = triple(r.grid);
        d["block"] = triple(r.block);
        d["shared_bytes"] = r.shared_bytes;
        d["registers"] = r.registers;
        d["occupancy"] = r.occupancy;
        list.append(d);
    }
    calls.clear();
    return list;
}

static lls_ceilings measure_ceilings(bool cuda, int32_t device_index) {
    lls_ceilings ceilings = {};
    lls_ceilings *out = &ceilings;
    Call measure = [](lls_ctx *ctx, const void *out, lls_stream) {
        return lls_measure_ceilings(ctx, *(lls_ceilings *const *)out);
    };
    check(run_on({cuda ? LLS_CUDA : LLS_CPU, device_index}, nullptr, measure, &out));
    return ceilings;
}

static py::tuple classify(const lls_ceilings &ceilings, int math, double flops, double bytes, double seconds) {
    double share = 0;
    lls_bound bound = lls_classify(&ceilings, (lls_math)math, flops, bytes, seconds, &share);
    return py::make_tuple(lls_bound_name(bound), share);
}

void add_profile(py::module_ &module) {
    module.def(
        "record_start",
        [] {
            calls.clear();
            record_calls(&calls);
        },
        "From now on this thread's op calls are recorded.");
    module.def("record_stop", &record_stop, "Ends that; the calls, in order.");
    py::class_<lls_ceilings>(module, "Ceilings", "What a device reaches at most, a second; 0: not known.")
        .def_readonly("read_bytes_per_s", &lls_ceilings::read_bytes_per_s)
        .def_readonly("f32_flops", &lls_ceilings::f32_flops)
        .def_readonly("f16_flops", &lls_ceilings::f16_flops)
        .def_readonly("i8_ops", &lls_ceilings::i8_ops)
        .def_readonly("tf32_flops", &lls_ceilings::tf32_flops)
        .def_readonly("f8_flops", &lls_ceilings::f8_flops)
        .def("classify", &classify, py::arg("math"), py::arg("flops"), py::arg("bytes"), py::arg("seconds"),
             "(bound, floor / seconds) of a call.");
    module.def("measure_ceilings", &measure_ceilings, py::arg("cuda"), py::arg("device_index"));
}

} // namespace llm_speed
