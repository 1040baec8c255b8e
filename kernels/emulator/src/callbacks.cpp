// What the compiler's instrumentation calls at each load and store. Compiled without it.

extern "C" {

// In Rust: `place` is where the kernel goes on after the access.
void emulator_access(const void* address, unsigned bytes, unsigned writes, const void* place);

#define ACCESS(name, bytes, writes) \
    void name(const void* address) { emulator_access(address, bytes, writes, __builtin_return_address(0)); }

ACCESS(__tsan_read1, 1, 0)
ACCESS(__tsan_read2, 2, 0)
ACCESS(__tsan_read4, 4, 0)
ACCESS(__tsan_read8, 8, 0)
ACCESS(__tsan_read16, 16, 0)
ACCESS(__tsan_write1, 1, 1)
ACCESS(__tsan_write2, 2, 1)
ACCESS(__tsan_write4, 4, 1)
ACCESS(__tsan_write8, 8, 1)
ACCESS(__tsan_write16, 16, 1)
// The compiler knows no better alignment; a card's instruction needs that of the type all the same.
ACCESS(__tsan_unaligned_read2, 2, 0)
ACCESS(__tsan_unaligned_read4, 4, 0)
ACCESS(__tsan_unaligned_read8, 8, 0)
ACCESS(__tsan_unaligned_read16, 16, 0)
ACCESS(__tsan_unaligned_write2, 2, 1)
ACCESS(__tsan_unaligned_write4, 4, 1)
ACCESS(__tsan_unaligned_write8, 8, 1)
ACCESS(__tsan_unaligned_write16, 16, 1)

void __tsan_read_range(const void* address, unsigned long bytes) {
    emulator_access(address, static_cast<unsigned>(bytes), 0, __builtin_return_address(0));
}
void __tsan_write_range(const void* address, unsigned long bytes) {
    emulator_access(address, static_cast<unsigned>(bytes), 1, __builtin_return_address(0));
}

// A pointer to a vector that is not aligned as one: where the compiler loads its elements singly, a card does not.
struct SourceLocation {
    const char* file;
    unsigned line;
    unsigned column;
};
struct TypeMismatch {
    SourceLocation location;
    const void* type;
    unsigned char log2_alignment;
    unsigned char kind;
};

void emulator_misaligned(const void* address, unsigned alignment, const char* file, unsigned line);

void __ubsan_handle_type_mismatch_v1(const TypeMismatch* mismatch, const void* address) {
    emulator_misaligned(address, 1u << mismatch->log2_alignment, mismatch->location.file, mismatch->location.line);
}

void __tsan_init() {}
void __tsan_func_entry(const void*) {}
void __tsan_func_exit() {}
}
