/* One entry for all ops: reads the positional arguments by the op's row of op_table into its C struct, runs it where
 * its first array lives. A plain C function, since these calls are counted in nanoseconds. */
#include "ops.h"

#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "arrays.h"
#include "contexts.h"
#include "errors.h"
#include "op_table.h"
#include "packed.h"

namespace llm_speed {

static bool is_output(Kind kind) {
    return kind == Kind::OUT || kind == Kind::OPTIONAL_OUT;
}
static bool is_array(Kind kind) {
    return kind == Kind::IN || kind == Kind::OPTIONAL_IN || kind == Kind::WEIGHT || is_output(kind);
}
static bool is_optional(Kind kind) {
    return kind == Kind::OPTIONAL_IN || kind == Kind::OPTIONAL_OUT;
}

// One call: the C struct, the views it points to, and where it runs.
struct OpCall {
    const Op *op;
    int num_fields;
    PyObject *const *values;
    alignas(max_align_t) unsigned char args[MAX_ARGS_BYTES];
    // [num_fields]; room for the most, made for those there are.
    alignas(ArrayView) unsigned char view_storage[MAX_FIELDS * sizeof(ArrayView)];
    ArrayView *const views = (ArrayView *)view_storage;
    std::vector<float> floats;      // of the one FLOATS field
    std::vector<PyObject *> copies; // of inputs, owned
    lls_device device;
    lls_stream stream;
    bool synchronise; // JAX knows no streams: it may use the result only when it is there
    enum { UNKNOWN, OFF, ON } grad_recording = UNKNOWN; // torch's grad mode, asked for once

    OpCall(const Op *op, int num_fields, PyObject *const *values) : op(op), num_fields(num_fields), values(values) {
        for (int i = 0; i < num_fields; i++) new (&views[i]) ArrayView;
    }
    ~OpCall() {
        for (int i = 0; i < num_fields; i++) views[i].~ArrayView();
        for (PyObject *copy : copies) Py_DECREF(copy);
    }
    bool needs_no_grad(const ArgumentName &name, PyObject *value);
    bool read();
    bool place();
    bool read_array(int i, PyObject *value);
    bool read_scalar(int i);
    bool replace(int i);
    bool replace_odd_inputs();
    lls_status run();
    template <typename T> T &member(int i) {
        return *(T *)(args + op->fields[i].offset);
    }
};

static bool wrong_type(const Op *op, const Field &field, const char *wanted, PyObject *value) {
    PyErr_Clear();
    return fail("DtypeError", "%s: %s is a %s, must be %s", op->name, field.name, Py_TYPE(value)->tp_name, wanted);
}

// Device and stream of the first array that is no packed weight.
bool OpCall::place() {
    device = {LLS_CPU, 0};
    synchronise = false;
    PyObject *given = values[num_fields];
    stream = nullptr;
    if (given != Py_None) {
        stream = PyLong_AsVoidPtr(given);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return fail("DtypeError", "%s: stream must be the integer handle of a CUDA stream", op->name);
        }
    }
    for (int i = 0; i < num_fields; i++) {
        PyObject *value = values[i];
        if (!is_array(op->fields[i].kind) || value == Py_None || packed_weight(value)) continue;
        const ArrayType *type = array_type(value);
        if (!type) return false;
        ArgumentName name = {op->name, op->fields[i].name};
        if (type->api) { // needs no stream to be opened: once is enough
            if (!views[i].open(name, value, is_output(op->fields[i].kind), nullptr)) return false;
            device = views[i].tensor.device;
        } else if (!device_of(name, value, type, &device)) {
            return false;
        }
        if (device.type != LLS_CUDA) return true;
        synchronise = type->framework == ArrayType::JAX;
        return given != Py_None || current_stream(value, type, device.index, &stream);
    }
    return true;
}

// Merges leading axes until `axes` are left, or puts axes of size 1 in front. False where the strides do not allow it.
static bool set_axes(lls_tensor *t, int axes) {
    while (t->ndim > axes) {
        if (t->shape[1] > 1 && t->shape[0] > 1 && t->stride[0] != t->shape[1] * t->stride[1]) return false;
        t->shape[1] *= t->shape[0];
        if (t->shape[0] > 1 && t->shape[1] == t->shape[0]) t->stride[1] = t->stride[0]; // the inner one had size 1
        t->ndim--;
        std::memmove(t->shape, t->shape + 1, t->ndim * sizeof *t->shape);
        std::memmove(t->stride, t->stride + 1, t->ndim * sizeof *t->stride);
    }
    while (t->ndim < axes) {
        std::memmove(t->shape + 1, t->shape, t->ndim * sizeof *t->shape);
        std::memmove(t->stride + 1, t->stride, t->ndim * sizeof *t->stride);
        t->shape[0] = 1;
        t->stride[0] = t->ndim ? t->shape[1] * t->stride[1] : 1;
        t->ndim++;
    }
    return true;
}

static PyObject *contiguous_copy(PyObject *array) {
    PyObject *arrays = PyImport_ImportModule("llm_speed.arrays");
    PyObject *copy = arrays ? PyObject_CallMethod(arrays, "contiguous", "O", array) : nullptr;
    Py_XDECREF(arrays);
    return copy;
}

bool OpCall::needs_no_grad(const ArgumentName &name, PyObject *value) {
    if (grad_recording == UNKNOWN) {
        int recording = is_grad_recorded();
        if (recording < 0) return false;
        grad_recording = recording ? ON : OFF;
    }
    return grad_recording == OFF || check_no_grad(name, value);
}

bool OpCall::read_array(int i, PyObject *value) {
    const Field &field = op->fields[i];
    const lls_tensor *&target = member<const lls_tensor *>(i);
    target = nullptr;
    if (value == Py_None) {
        if (is_optional(field.kind)) return true;
        return fail("DtypeError", "%s: %s is None, must be an array", op->name, field.name);
    }
    if (field.kind == Kind::WEIGHT && (target = packed_weight(value))) return true;
    ArgumentName name = {op->name, field.name};
    ArrayView &view = views[i];
    if (!view.type() && !view.open(name, value, is_output(field.kind), stream)) return false;
    if (view.type()->framework == ArrayType::TORCH && !needs_no_grad(name, value)) return false;
    target = &view.tensor;
    if (!field.axes || set_axes(&view.tensor, field.axes)) return true;
    if (is_output(field.kind) || value != values[i]) { // an output, or a copy already
        return fail("ArgumentError", "%s: %s has strides that do not let its leading axes be seen as one", op->name,
                    field.name);
    }
    return replace(i);
}

// Puts a contiguous copy in the place of an input.
bool OpCall::replace(int i) {
    PyObject *copy = contiguous_copy(values[i]);
    if (!copy) return false;
    copies.push_back(copy);
    views[i].release();
    return read_array(i, copy);
}

bool OpCall::read_scalar(int i) {
    const Field &field = op->fields[i];
    PyObject *value = values[i];
    switch (field.kind) {
    case Kind::FLOAT: {
        double number = PyFloat_AsDouble(value);
        if (number == -1 && PyErr_Occurred()) return wrong_type(op, field, "a number", value);
        member<float>(i) = (float)number;
        return true;
    }
    case Kind::INT: {
        int overflow;
        long number = PyLong_AsLongAndOverflow(value, &overflow);
        if (number == -1 && PyErr_Occurred()) return wrong_type(op, field, "an integer", value);
        if (overflow || number != (int32_t)number) {
            return fail("ArgumentError", "%s: %s is %S, must fit 32 bits", op->name, field.name, value);
        }
        member<int32_t>(i) = (int32_t)number;
        return true;
    }
    case Kind::BOOL: {
        int truth = PyObject_IsTrue(value);
        if (truth < 0) return false;
        member<bool>(i) = truth;
        return true;
    }
    case Kind::BLOCKS:
    case Kind::STRING: {
        if (value == Py_None) return true;
        const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
        if (!text) return wrong_type(op, field, "a string", value);
        if (field.kind == Kind::STRING) {
            member<const char *>(i) = text;
            return true;
        }
        // The tensor field comes just before; its view is the binding's own.
        const lls_tensor *tensor = member<const lls_tensor *>(i);
        if (tensor->layout == LLS_PACKED) return true;
        return view_as_blocks({op->name, op->fields[i - 1].name}, &views[i - 1].tensor, text);
    }
    case Kind::FLOATS: {
        if (value == Py_None) return true;
        PyObject *list = PySequence_Fast(value, "");
        if (!list) return wrong_type(op, field, "a sequence of numbers", value);
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(list); j++)
            floats.push_back((float)PyFloat_AsDouble(PySequence_Fast_GET_ITEM(list, j)));
        Py_DECREF(list);
        if (PyErr_Occurred()) return wrong_type(op, field, "a sequence of numbers", value);
        // The C side reads as many as there are pairs, at most LLS_ROPE_MAX_PAIRS.
        if (floats.size() < LLS_ROPE_MAX_PAIRS) floats.resize(LLS_ROPE_MAX_PAIRS, 0.0f);
        member<const float *>(i) = floats.data();
        return true;
    }
    default: return true;
    }
}

bool OpCall::read() {
    op->init(args);
    if (!place()) return false;
    for (int i = 0; i < num_fields; i++) {
        if (!(is_array(op->fields[i].kind) ? read_array(i, values[i]) : read_scalar(i))) return false;
    }
    return true;
}

// What no op can walk: a stride below 0, or an inner one above 1.
static bool is_odd(const lls_tensor &t) {
    for (int i = 0; i < t.ndim; i++) {
        if (t.shape[i] > 1 && (t.stride[i] < 0 || (i == t.ndim - 1 && t.stride[i] != 1))) return true;
    }
    return false;
}

// Replaces inputs with such strides by contiguous copies, as the frameworks' own ops do. Outputs are never replaced.
// False when there are none, or with a Python error set.
bool OpCall::replace_odd_inputs() {
    bool any = false;
    for (int i = 0; i < num_fields; i++) {
        const Field &field = op->fields[i];
        if (!is_array(field.kind) || is_output(field.kind) || values[i] == Py_None || packed_weight(values[i]))
            continue;
        if (!is_odd(views[i].tensor)) continue;
        if (!replace(i)) return false;
        any = true;
    }
    return any;
}

lls_status OpCall::run() {
    lls_status status = run_on(device, stream, op->call, args);
    if (status == LLS_ERR_WORKSPACE && op->workspace) {
        struct Query {
            const OpCall *call;
            size_t bytes;
        } query = {this, 0};
        Call ask = [](lls_ctx *ctx, const void *q, lls_stream) {
            Query *query = (Query *)q;
            return query->call->op->workspace(ctx, query->call->args, &query->bytes);
        };
        status = run_on(device, stream, ask, &query);
        if (!status) status = reserve_workspace(device, stream, query.bytes);
        if (!status) status = run_on(device, stream, op->call, args);
    }
    if (!status && synchronise) {
        status = run_on(
            device, stream, [](lls_ctx *ctx, const void *, lls_stream s) { return lls_synchronize(ctx, s); }, nullptr);
    }
    return status;
}

static int count_fields(const Op *op) {
    int n = 0;
    while (n < MAX_FIELDS && op->fields[n].name) n++;
    return n;
}

static PyObject *call_op(PyObject *self, PyObject *const *values, Py_ssize_t count) {
    const Op *op = (const Op *)PyCapsule_GetPointer(self, nullptr);
    int num_fields = count_fields(op);
    if (count != num_fields + 1) {
        return PyErr_Format(PyExc_TypeError, "_C.%s takes %d positional arguments, got %d", op->name, num_fields + 1,
                            (int)count);
    }
    OpCall call(op, num_fields, values);
    if (!call.read()) return nullptr;
    lls_status status = call.run();
    if (status == LLS_ERR_STRIDE && call.replace_odd_inputs()) status = call.run();
    if (PyErr_Occurred()) return nullptr;
    if (status) return raise(status);
    Py_RETURN_NONE;
}

// [(name, kind), ...], kind one of "in", "in?", "out", "out?", "float", "int", "bool", "str?", "float[]?".
static PyObject *op_fields(PyObject *, PyObject *op_name) {
    const char *text = PyUnicode_AsUTF8(op_name);
    if (!text) return nullptr;
    for (const Op *op = op_table; op->name; op++) {
        if (std::strcmp(op->name, text) != 0) continue;
        static const char *const kinds[] = {"in",    "in?", "in",   "out",  "out?",    "str?",
                                            "float", "int", "bool", "str?", "float[]?"};
        PyObject *list = PyList_New(0);
        for (int i = 0; list && i < count_fields(op); i++) {
            PyObject *pair = Py_BuildValue("(ss)", op->fields[i].name, kinds[(int)op->fields[i].kind]);
            if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
            Py_XDECREF(pair);
        }
        return list;
    }
    return PyErr_Format(PyExc_KeyError, "no op \"%s\"", text);
}

static PyObject *op_names(PyObject *, PyObject *) {
    PyObject *list = PyList_New(0);
    for (const Op *op = op_table; list && op->name; op++) {
        PyObject *name = PyUnicode_FromString(op->name);
        if (!name || PyList_Append(list, name)) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

bool add_ops(PyObject *module) {
    static PyMethodDef table_defs[] = {
        {"op_names", op_names, METH_NOARGS, "The ops, in layer order."},
        {"op_fields", op_fields, METH_O, "The arguments of an op: [(name, kind), ...]."},
        {},
    };
    static std::vector<PyMethodDef> defs; // Python keeps pointers to them
    if (defs.empty()) {
        for (const Op *op = op_table; op->name; op++)
            defs.push_back({op->name, (PyCFunction)(void *)call_op, METH_FASTCALL, "See llm_speed.ops."});
    }
    for (size_t i = 0; i < defs.size(); i++) {
        PyObject *self = PyCapsule_New((void *)&op_table[i], nullptr, nullptr);
        PyObject *function = self ? PyCFunction_New(&defs[i], self) : nullptr;
        Py_XDECREF(self);
        if (!function || PyModule_AddObject(module, defs[i].ml_name, function)) return false;
    }
    return PyModule_AddFunctions(module, table_defs) == 0;
}

} // namespace llm_speed
