/* Python arrays as lls_tensor views, without a copy: torch, NumPy, JAX, CuPy, and whatever else speaks DLPack or the
 * buffer protocol. */
#ifndef LLM_SPEED_ARRAYS_H
#define LLM_SPEED_ARRAYS_H

#include <Python.h>

#include "dlpack.h"
#include "llmspeed/core.h"

namespace llm_speed {

// What is known of an array type, found out at its first array.
struct ArrayType {
    PyTypeObject *type;
    const dlpack::ExchangeApi *api; // NULL: none
    enum Framework { OTHER, TORCH, NUMPY, JAX } framework;
};
// NULL with a Python error set.
const ArrayType *array_type(PyObject *object);

// Where an error happened: "rmsnorm: x".
struct ArgumentName {
    const char *op, *argument;
};

// The view of one argument, and what keeps it alive until the call is over.
class ArrayView {
  public:
    ArrayView() = default;
    ~ArrayView() {
        release();
    }
    ArrayView(const ArrayView &) = delete;
    ArrayView &operator=(const ArrayView &) = delete;

    // `stream` is where the call will run: arrays that come by __dlpack__ are made ready for it. An output must be
    // writable. False with a Python error set.
    bool open(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream);
    void release();

    // NULL: not open.
    const ArrayType *type() const {
        return type_;
    }
    lls_tensor tensor;

  private:
    bool open_any(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream);
    bool open_exchange(const ArgumentName &name, PyObject *object);
    bool open_dlpack(const ArgumentName &name, PyObject *object, bool writable, lls_stream stream);
    bool open_buffer(const ArgumentName &name, PyObject *object, bool writable);
    bool take(const ArgumentName &name, const dlpack::Tensor &view);

    const ArrayType *type_ = nullptr;
    dlpack::Managed *managed_ = nullptr;
    dlpack::ManagedVersioned *versioned_ = nullptr;
    Py_buffer buffer_;
    bool has_buffer_ = false;
    PyObject *owned_ = nullptr;
};

// A view of u8 [rows, bytes] as GGUF blocks [rows, k], or [bytes] as [k]. False with a Python error set.
bool view_as_blocks(const ArgumentName &name, lls_tensor *tensor, const char *dtype);
// LLS_F32 of "f32"; 0 for no dtype's name.
lls_dtype dtype_named(const char *name);

// The stream on which the framework of this array works now; false with a Python error set.
bool current_stream(PyObject *object, const ArrayType *type, int32_t device_index, lls_stream *stream);
// The device of an array whose type has no exchange API, without opening it; false with a Python error set.
bool device_of(const ArgumentName &name, PyObject *object, const ArrayType *type, lls_device *device);
// Does torch record gradients now? -1 with a Python error set.
int is_grad_recorded();
// False with an error set for a torch tensor that asks for a gradient.
bool check_no_grad(const ArgumentName &name, PyObject *object);

} // namespace llm_speed

#endif
