// The values: a register each, with four register actions, as many as a stateful ALU of a Tofino 1 has.

#ifndef INNET_TNA_VALUES_P4
#define INNET_TNA_VALUES_P4

const int<32> MOST  = 0x7fffffff;
const int<32> LEAST = -0x80000000;

// A sum that would leave int32 stays at the end that it has reached, also when later ones would bring it
// back: the overflow is in the value itself, since there is no second output for a flag.
#define VALUE_REGISTER(i) \
    Register<int<32>, index_t>(CELLS) value##i; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) read##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) sum##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            if (held != MOST && held != LEAST) { \
                held = held |+| (int<32>)hdr.values.v##i; \
            } \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) or##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            held = (held & (int<32>)meta.keep) | (int<32>)hdr.values.v##i; \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) max##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            held = max(held, (int<32>)hdr.values.v##i); \
            result = held; \
        } \
    }; \
    action do_read##i() { hdr.values.v##i = (bit<32>)read##i.execute(INDEX); } \
    action do_sum##i() { hdr.values.v##i = (bit<32>)sum##i.execute(INDEX); } \
    action do_or##i() { hdr.values.v##i = (bit<32>)or##i.execute(INDEX); } \
    action do_max##i() { hdr.values.v##i = (bit<32>)max##i.execute(INDEX); } \
    table combine##i { \
        key = { meta.operation: exact; } \
        actions = { do_read##i; do_sum##i; do_or##i; do_max##i; @defaultonly NoAction; } \
        const entries = { \
            VALUES_READ: do_read##i(); \
            VALUES_SUM: do_sum##i(); \
            VALUES_OR: do_or##i(); \
            VALUES_MAX: do_max##i(); \
        } \
        const default_action = NoAction(); \
    }

#define VALUE_APPLY(i) combine##i.apply();

control Values(inout headers_t hdr, in metadata_t meta) {
    REPEAT(VALUE_REGISTER)

    apply {
        REPEAT(VALUE_APPLY)
    }
}

#endif
