#include "errors.h"

#include <pybind11/pybind11.h>

#include <cstdarg>

namespace llm_speed {

PyObject *raise(lls_status status) {
    PyObject *errors = PyImport_ImportModule("llm_speed.errors");
    PyObject *error = errors ? PyObject_CallMethod(errors, "from_status", "iss", (int)status, lls_status_name(status),
                                                   lls_last_error())
                             : nullptr;
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(errors), Py_XDECREF(error);
    return nullptr;
}

bool fail(const char *kind, const char *format, ...) {
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    PyObject *errors = text ? PyImport_ImportModule("llm_speed.errors") : nullptr;
    PyObject *cls = errors ? PyObject_GetAttrString(errors, kind) : nullptr;
    if (cls) PyErr_SetObject(cls, text);
    Py_XDECREF(text), Py_XDECREF(errors), Py_XDECREF(cls);
    return false;
}

void check(lls_status status) {
    if (!status) return;
    raise(status);
    throw pybind11::error_already_set();
}

} // namespace llm_speed
