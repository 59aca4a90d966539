#include "arrays.h"

#include <cstring>
#include <vector>

#include "errors.h"

namespace llm_speed {

// Puts "op: argument ..." before the message of the error that a framework raised.
static bool prefix_error(const ArgumentName &name) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const char *kind = PyErr_GivenExceptionMatches(type, PyExc_TypeError) ? "DtypeError" : "ArgumentError";
    PyObject *text = value ? PyObject_Str(value) : nullptr;
    PyObject *lines = text ? PyUnicode_Splitlines(text, 0) : nullptr; // torch appends a C++ stack trace
    PyObject *first = lines ? PyList_GetItem(lines, 0) : nullptr;     // borrowed
    PyErr_Clear();
    fail(kind, "%s: %s cannot be viewed: %S", name.op, name.argument, first ? first : Py_None);
    Py_XDECREF(text), Py_XDECREF(lines);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    return false;
}

// ---- Types ------------------------------------------------------------------------------------------

// Is `object` of class `name` of a module that is loaded? A module that is not loaded has made no object.
static int is_instance_of(PyObject *object, const char *module, const char *name) {
    PyObject *key = PyUnicode_FromString(module);
    PyObject *loaded = key ? PyImport_GetModule(key) : nullptr;
    Py_XDECREF(key);
    if (!loaded) return PyErr_Occurred() ? -1 : 0;
    PyObject *cls = PyObject_GetAttrString(loaded, name);
    Py_DECREF(loaded);
    if (!cls) { // a half-imported module
        PyErr_Clear();
        return 0;
    }
    int found = PyObject_IsInstance(object, cls);
    Py_DECREF(cls);
    return found;
}

static const dlpack::ExchangeApi *exchange_api(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (!capsule) {
        PyErr_Clear();
        return nullptr;
    }
    const dlpack::ExchangeApi *api = nullptr;
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        api = (const dlpack::ExchangeApi *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        while (api && api->version.major != 1) api = api->previous;
        if (api && !api->view_of_object) api = nullptr;
    }
    Py_DECREF(capsule); // the table itself lives as long as its framework
    return api;
}

const ArrayType *array_type(PyObject *object) {
    // Types are few. Each is kept alive, so that its address stays its own. The GIL guards this.
    static std::vector<ArrayType *> known;
    static const ArrayType *last;
    PyTypeObject *type = Py_TYPE(object);
    if (last && last->type == type) return last;
    for (const ArrayType *t : known) {
        if (t->type == type) return last = t;
    }
    ArrayType found = {type, exchange_api(type), ArrayType::OTHER};
    struct {
        const char *module, *name;
        ArrayType::Framework framework;
    } frameworks[] = {{"torch", "Tensor", ArrayType::TORCH},
                      {"numpy", "ndarray", ArrayType::NUMPY},
                      {"jax", "Array", ArrayType::JAX}};
    for (const auto &f : frameworks) {
        int is = is_instance_of(object, f.module, f.name);
        if (is < 0) return nullptr;
        if (is) found.framework = f.framework;
    }
    Py_INCREF(type);
    known.push_back(new ArrayType(found));
    return last = known.back();
}

// ---- Dtypes -----------------------------------------------------------------------------------------

static lls_dtype dtype_of(uint8_t code, int bits) {
    switch (code << 8 | bits) {
    case dlpack::FLOAT << 8 | 32: return LLS_F32;
    case dlpack::FLOAT << 8 | 16: return LLS_F16;
    case dlpack::BFLOAT << 8 | 16: return LLS_BF16;
    case dlpack::INT << 8 | 8: return LLS_I8;
    case dlpack::UINT << 8 | 8: return LLS_U8;
    case dlpack::INT << 8 | 32: return LLS_I32;
    case dlpack::INT << 8 | 64: return LLS_I64;
    case dlpack::FLOAT8_E4M3FN << 8 | 8: return LLS_F8_E4M3;
    case dlpack::FLOAT8_E5M2 << 8 | 8: return LLS_F8_E5M2;
    default: return (lls_dtype)0;
    }
}

static bool unknown_dtype(const ArgumentName &name, PyObject *object) {
    PyObject *dtype = object ? PyObject_GetAttrString(object, "dtype") : nullptr;
    PyErr_Clear();
    fail("DtypeError", "%s: %s has dtype %S, which no op takes", name.op, name.argument, dtype ? dtype : Py_None);
    Py_XDECREF(dtype);
    return false;
}

lls_dtype dtype_named(const char *name) {
    for (int i = 1; i < 64; i++) {
        if (lls_dtype_block_elems((lls_dtype)i) && std::strcmp(lls_dtype_name((lls_dtype)i), name) == 0)
            return (lls_dtype)i;
    }
    return (lls_dtype)0;
}

bool view_as_blocks(const ArgumentName &name, lls_tensor *t, const char *dtype_name) {
    lls_dtype dtype = dtype_named(dtype_name);
    if (!dtype)
        return fail("ArgumentError", "%s: %s has type \"%s\", which is none of GGUF's", name.op, name.argument,
                    dtype_name);
    if (t->dtype == dtype) return true;
    if (t->dtype != LLS_U8 || t->ndim < 1 || t->ndim > 2) {
        return fail("DtypeError", "%s: %s must be uint8 [rows, bytes] to hold %s", name.op, name.argument, dtype_name);
    }
    int64_t block = lls_dtype_block_bytes(dtype), elems = lls_dtype_block_elems(dtype);
    int last = t->ndim - 1;
    if (t->shape[last] % block) {
        return fail("ArgumentError", "%s: %s has rows of %lld bytes, must be a multiple of %s's %lld", name.op,
                    name.argument, (long long)t->shape[last], dtype_name, (long long)block);
    }
    bool gapless = (t->shape[last] <= 1 || t->stride[last] == 1) &&
                   (last == 0 || t->shape[0] <= 1 || t->stride[0] == t->shape[last]);
    if (!gapless)
        return fail("ArgumentError", "%s: %s must be contiguous to hold %s", name.op, name.argument, dtype_name);
    t->dtype = dtype;
    t->shape[last] = t->shape[last] / block * elems;
    t->stride[last] = 1;
    if (last == 1) t->stride[0] = t->shape[1];
    return true;
}

// ---- Views ------------------------------------------------------------------------------------------

bool ArrayView::take(const ArgumentName &name, const dlpack::Tensor &view) {
    lls_dtype dtype = view.dtype.lanes == 1 ? dtype_of(view.dtype.code, view.dtype.bits) : (lls_dtype)0;
    if (view.ndim > LLS_MAX_DIMS) {
        return fail("ArgumentError", "%s: %s has %d axes, must have at most %d", name.op, name.argument, (int)view.ndim,
                    LLS_MAX_DIMS);
    }
    tensor.data = (char *)view.data + view.byte_offset;
    tensor.dtype = dtype;
    tensor.layout = LLS_STRIDED;
    tensor.ndim = view.ndim;
    switch (view.device.type) {
    case dlpack::CPU:
    case dlpack::CUDA_HOST: tensor.device = {LLS_CPU, 0}; break;
    case dlpack::CUDA:
    case dlpack::CUDA_MANAGED: tensor.device = {LLS_CUDA, view.device.index}; break;
    default: return fail("ArgumentError", "%s: %s is on a device that is neither CPU nor CUDA", name.op, name.argument);
    }
    int64_t stride = 1;
    for (int i = view.ndim - 1; i >= 0; i--) {
        tensor.shape[i] = view.shape[i];
        tensor.stride[i] = view.strides ? view.strides[i] : stride;
        stride *= view.shape[i];
    }
    return true;
}

bool ArrayView::open_exchange(const ArgumentName &name, PyObject *object) {
    dlpack::Tensor view;
    if (type_->api->view_of_object(object, &view)) return prefix_error(name);
    return take(name, view) && (tensor.dtype || unknown_dtype(name, object));
}

// A call of object.__dlpack__; the first of the newer and the older protocol that the object knows.
static PyObject *dlpack_capsule(PyObject *object, PyObject *stream) {
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (!method) return nullptr;
    PyObject *empty = PyTuple_New(0), *options = Py_BuildValue("{s:O,s:(ii)}", "stream", stream, "max_version", 1, 0);
    PyObject *capsule = empty && options ? PyObject_Call(method, empty, options) : nullptr;
    if (!capsule && options && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        if (PyDict_DelItemString(options, "max_version") == 0) capsule = PyObject_Call(method, empty, options);
    }
    Py_XDECREF(empty), Py_XDECREF(options), Py_DECREF(method);
    return capsule;
}

bool ArrayView::open_dlpack(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream) {
    lls_device device;
    if (!device_of(name, object, type_, &device)) return false;
    // The array API standard: None on the CPU; on CUDA 1 is the legacy default stream, which C calls 0.
    PyObject *number = device.type == LLS_CUDA ? PyLong_FromVoidPtr(stream ? stream : (void *)1) : Py_NewRef(Py_None);
    PyObject *capsule = number ? dlpack_capsule(object, number) : nullptr;
    Py_XDECREF(number);
    if (!capsule) return prefix_error(name);
    bool read_only = false;
    dlpack::Tensor *view = nullptr;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        versioned_ = (dlpack::ManagedVersioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        view = &versioned_->tensor;
        read_only = versioned_->flags & dlpack::READ_ONLY;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        managed_ = (dlpack::Managed *)PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        view = &managed_->tensor;
    }
    Py_DECREF(capsule);
    if (!view)
        return fail("DtypeError", "%s: %s has a __dlpack__ that gives no DLPack capsule", name.op, name.argument);
    if (versioned_ && versioned_->version.major > 1) {
        return fail("DtypeError", "%s: %s speaks DLPack %u, must be 1", name.op, name.argument,
                    (unsigned)versioned_->version.major);
    }
    if (read_only && writable) return fail("ArgumentError", "%s: %s is read-only", name.op, name.argument);
    return take(name, *view) && (tensor.dtype || unknown_dtype(name, object));
}

// struct's format characters, native or little-endian.
static lls_dtype buffer_dtype(const Py_buffer &buffer) {
    const char *format = buffer.format ? buffer.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (format[0] == 0 || format[1] != 0) return (lls_dtype)0;
    switch (*format) {
    case 'f': return LLS_F32;
    case 'e': return LLS_F16;
    case 'b': return LLS_I8;
    case 'B': return LLS_U8;
    case 'i':
    case 'l':
    case 'q': return buffer.itemsize == 4 ? LLS_I32 : LLS_I64;
    default: return (lls_dtype)0;
    }
}

// NumPy has neither bfloat16 nor float8 of its own; those of ml_dtypes have no buffer format. The same bits as unsigned
// integers have one.
static const struct MlDtype {
    const char *name, *bits;
    lls_dtype dtype;
} ml_dtypes[] = {
    {"bfloat16", "uint16", LLS_BF16}, {"float8_e4m3fn", "uint8", LLS_F8_E4M3}, {"float8_e5m2", "uint8", LLS_F8_E5M2}};

// The array as integers and the dtype it has; NULL where it is none of these.
static PyObject *ml_bits(PyObject *array, lls_dtype *found) {
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : nullptr, *bits = nullptr;
    PyErr_Clear();
    for (const MlDtype &ml : ml_dtypes) {
        if (!name || !PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, ml.name) != 0) continue;
        *found = ml.dtype;
        bits = PyObject_CallMethod(array, "view", "s", ml.bits);
    }
    Py_XDECREF(dtype), Py_XDECREF(name);
    return bits;
}

bool ArrayView::open_buffer(const ArgumentName &name, PyObject *object, bool writable) {
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    lls_dtype ml = (lls_dtype)0;
    if (PyObject_GetBuffer(object, &buffer_, flags)) {
        PyErr_Clear();
        owned_ = ml_bits(object, &ml);
        if (!owned_ || PyObject_GetBuffer(owned_, &buffer_, flags)) {
            PyErr_Clear();
            if (writable && PyObject_GetBuffer(owned_ ? owned_ : object, &buffer_, flags & ~PyBUF_WRITABLE) == 0) {
                has_buffer_ = true;
                return fail("ArgumentError", "%s: %s is read-only", name.op, name.argument);
            }
            PyErr_Clear();
            return unknown_dtype(name, object);
        }
    }
    has_buffer_ = true;
    tensor.dtype = ml ? ml : buffer_dtype(buffer_);
    if (!tensor.dtype) return unknown_dtype(name, object);
    if (buffer_.ndim > LLS_MAX_DIMS) {
        return fail("ArgumentError", "%s: %s has %d axes, must have at most %d", name.op, name.argument, buffer_.ndim,
                    LLS_MAX_DIMS);
    }
    tensor.data = buffer_.buf;
    tensor.device = {LLS_CPU, 0};
    tensor.layout = LLS_STRIDED;
    tensor.ndim = buffer_.ndim;
    int64_t stride = 1;
    for (int i = buffer_.ndim - 1; i >= 0; i--) {
        tensor.shape[i] = buffer_.shape[i];
        // A stride that is no multiple of the element (a field of a record) cannot be said in elements: -1 has it
        // refused like any stride that an op cannot walk. ctypes gives no strides, whatever it is asked for.
        Py_ssize_t bytes = buffer_.strides ? buffer_.strides[i] : stride * buffer_.itemsize;
        tensor.stride[i] = bytes % buffer_.itemsize ? -1 : bytes / buffer_.itemsize;
        stride *= buffer_.shape[i];
    }
    return true;
}

// An array without elements has no strides to honour, and frameworks leave odd ones there.
static void forget_strides_of_nothing(lls_tensor *t) {
    if (lls_tensor_numel(t) == 0) *t = lls_tensor_make(t->data, t->dtype, t->device, t->ndim, t->shape);
}

bool ArrayView::open(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream) {
    if (!open_any(name, object, writable, stream)) return false;
    forget_strides_of_nothing(&tensor);
    return true;
}

bool ArrayView::open_any(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream) {
    type_ = array_type(object);
    if (!type_) return false;
    if (type_->api) return open_exchange(name, object);
    // NumPy by its buffer: its __dlpack__ knows neither bfloat16 nor, in older versions, read-only arrays.
    if (type_->framework == ArrayType::NUMPY) return open_buffer(name, object, writable);
    if (PyObject_HasAttrString((PyObject *)type_->type, "__dlpack__"))
        return open_dlpack(name, object, writable, stream);
    if (PyObject_CheckBuffer(object)) return open_buffer(name, object, writable);
    return fail("DtypeError", "%s: %s is a %s, must be an array (torch, NumPy, JAX, CuPy, or another with %s)", name.op,
                name.argument, type_->type->tp_name, "__dlpack__ or the buffer protocol");
}

void ArrayView::release() {
    type_ = nullptr;
    if (!managed_ && !versioned_ && !has_buffer_ && !owned_) return;
    // These may run Python code, which must not meet an error that is on its way to the caller.
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (managed_ && managed_->deleter) managed_->deleter(managed_);
    if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
    if (has_buffer_) PyBuffer_Release(&buffer_);
    Py_CLEAR(owned_);
    managed_ = nullptr;
    versioned_ = nullptr;
    has_buffer_ = false;
    PyErr_Restore(type, value, trace);
}

// ---- Devices and streams ----------------------------------------------------------------------------

bool device_of(const ArgumentName &name, PyObject *object, const ArrayType *type, lls_device *device) {
    *device = {LLS_CPU, 0};
    if (type->framework == ArrayType::NUMPY) return true;
    if (!PyObject_HasAttrString((PyObject *)type->type, "__dlpack_device__")) return true;
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", nullptr);
    if (!pair) return prefix_error(name);
    PyObject *kind = PySequence_GetItem(pair, 0), *index = PySequence_GetItem(pair, 1);
    long kind_number = kind ? PyLong_AsLong(kind) : -1, index_number = index ? PyLong_AsLong(index) : -1;
    Py_XDECREF(kind), Py_XDECREF(index), Py_DECREF(pair);
    if (PyErr_Occurred()) return prefix_error(name);
    if (kind_number == dlpack::CUDA || kind_number == dlpack::CUDA_MANAGED) *device = {LLS_CUDA, (int32_t)index_number};
    return true;
}

bool current_stream(PyObject *object, const ArrayType *type, int32_t device_index, lls_stream *stream) {
    *stream = nullptr;
    if (type->api && type->api->current_stream)
        return type->api->current_stream(dlpack::CUDA, device_index, stream) == 0;
    PyObject *arrays = PyImport_ImportModule("llm_speed.arrays");
    PyObject *number = arrays ? PyObject_CallMethod(arrays, "current_stream", "Oi", object, (int)device_index)
                              : nullptr;
    if (number) *stream = PyLong_AsVoidPtr(number);
    Py_XDECREF(arrays), Py_XDECREF(number);
    return !PyErr_Occurred();
}

static PyObject *torch_attribute(const char *name) {
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *value = torch ? PyObject_GetAttrString(torch, name) : nullptr;
    Py_XDECREF(torch);
    return value;
}

int is_grad_recorded() {
    static PyObject *is_grad_enabled;
    if (!is_grad_enabled && !(is_grad_enabled = torch_attribute("is_grad_enabled"))) return -1;
    PyObject *enabled = PyObject_CallNoArgs(is_grad_enabled);
    Py_XDECREF(enabled); // True and False never die
    return enabled ? enabled == Py_True : -1;
}

bool check_no_grad(const ArgumentName &name, PyObject *object) {
    static PyObject *requires_grad;
    if (!requires_grad && !(requires_grad = PyUnicode_InternFromString("requires_grad"))) return false;
    PyObject *needs = PyObject_GetAttr(object, requires_grad);
    if (!needs) return false;
    Py_DECREF(needs);
    if (needs != Py_True) return true;
    return fail("ArgumentError",
                "%s: %s requires a gradient, which these ops do not compute: call within torch.no_grad(), or pass "
                "%s.detach()",
                name.op, name.argument, name.argument);
}

} // namespace llm_speed
