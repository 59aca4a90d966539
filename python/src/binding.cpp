/* llm_speed._C: the C library for Python. Thin on purpose: llm_speed/ops.py and llm_speed/engine.py are the interface.
 * Needs no framework's headers, so that one build serves every version of each. */
#include <pybind11/pybind11.h>

#include "arrays.h"
#include "contexts.h"
#include "engine.h"
#include "errors.h"
#include "llmspeed/llmspeed.h"
#include "ops.h"
#include "packed.h"
#include "profile.h"

namespace py = pybind11;

using llm_speed::check;

static py::list variants() {
    py::list rows;
    lls_variant_info v;
    for (int32_t i = 0; lls_variant_at(i, &v); i++) {
        py::dict row;
        row["op"] = v.op;
        row["variant"] = v.variant;
        row["device"] = v.device == LLS_CUDA ? "cuda" : "cpu";
        row["dtypes"] = v.dtypes;
        row["min_sm"] = v.min_sm;
        row["unavailable"] = v.unavailable ? py::object(py::str(v.unavailable)) : py::object(py::none());
        rows.append(row);
    }
    return rows;
}

static py::dict build_info() {
    lls_build_info b = lls_build();
    py::dict d;
    d["version"] = b.version;
    d["compiler"] = b.compiler;
    d["cuda"] = b.cuda;
    d["cpu_level"] = b.cpu_level;
    d["cpu_name"] = b.cpu_name;
    return d;
}

static py::list cuda_devices() {
    py::list devices;
    for (int32_t i = 0; i < lls_cuda_device_count(); i++) {
        lls_cuda_info info;
        check(lls_cuda_device_info(i, &info));
        py::dict d;
        d["name"] = info.name;
        d["driver"] = info.driver;
        d["sm"] = info.sm;
        d["num_sms"] = info.num_sms;
        d["memory_bytes"] = info.memory_bytes;
        d["l2_bytes"] = info.l2_bytes;
        devices.append(d);
    }
    return devices;
}

PYBIND11_MODULE(_C, module) {
    module.doc() = "Binding of libllmspeed; use llm_speed.";
    if (!llm_speed::add_ops(module.ptr())) throw py::error_already_set();
    llm_speed::add_packed_weight(module);
    llm_speed::add_engine(module);
    llm_speed::add_profile(module);
    module.def("variants", &variants, "Every op x variant row, in selection order.");
    module.def("build_info", &build_info, "How the library was built, and what it chose here.");
    module.def("cuda_devices", &cuda_devices, "The CUDA devices that answer; [] without a driver.");
    module.def(
        "block_size",
        [](const std::string &name) {
            lls_dtype dtype = llm_speed::dtype_named(name.c_str());
            if (!dtype) throw py::value_error("no type \"" + name + "\"");
            return py::make_tuple(lls_dtype_block_elems(dtype), lls_dtype_block_bytes(dtype));
        },
        py::arg("name"), "(elements, bytes) of a block of this type.");
    module.def(
        "set_num_threads", [](int32_t n) { check(llm_speed::set_num_threads(n)); }, py::arg("num_threads"));
    module.def("get_num_threads", [] {
        int32_t n = 0;
        check(llm_speed::get_num_threads(&n));
        return n;
    });
    module.def(
        "reserve_workspace",
        [](int32_t device, uintptr_t stream, size_t bytes) {
            check(llm_speed::reserve_workspace({LLS_CUDA, device}, (lls_stream)stream, bytes));
        },
        py::arg("device"), py::arg("stream"), py::arg("bytes"));
}
