/* The parts of the DLPack 1.3 ABI that the binding reads, declared here so that no copy of it has to be installed.
 * Source: the DLPack specification, https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef LLM_SPEED_DLPACK_H
#define LLM_SPEED_DLPACK_H

#include <cstdint>

namespace dlpack {

enum DeviceType : int32_t { CPU = 1, CUDA = 2, CUDA_HOST = 3, CUDA_MANAGED = 13 };
enum TypeCode : uint8_t { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, FLOAT8_E4M3FN = 10, FLOAT8_E5M2 = 12 };

struct Version {
    uint32_t major, minor;
};

struct Tensor {
    void *data;
    struct {
        int32_t type, index;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; // elements; NULL: row-major without gaps
    uint64_t byte_offset;
};

// What a "dltensor" capsule holds.
struct Managed {
    Tensor tensor;
    void *manager;
    void (*deleter)(Managed *);
};

// What a "dltensor_versioned" capsule holds.
struct ManagedVersioned {
    Version version;
    void *manager;
    void (*deleter)(ManagedVersioned *);
    uint64_t flags;
    Tensor tensor;
};
constexpr uint64_t READ_ONLY = 1;

// What the capsule type(x).__dlpack_c_exchange_api__ points to: a framework's tensors without a Python call.
struct ExchangeApi {
    Version version;
    ExchangeApi *previous;
    void *allocate; // not used here
    int (*managed_from_object)(void *object, ManagedVersioned **out);
    void *managed_to_object; // not used here
    // Fills *out with a view that borrows from the object; NULL where the framework cannot.
    int (*view_of_object)(void *object, Tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_index, void **out);
};

} // namespace dlpack

#endif
