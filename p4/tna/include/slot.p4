// What stands beside the members of a slot, and what is done with its values.

#ifndef INNET_TNA_SLOT_P4
#define INNET_TNA_SLOT_P4

// A stateful ALU of a Tofino 1 compares under no mask that comes with the packet, so the child's bit is
// looked for by its number.
#define SEEN(i) (0, 1, (32w1 << i) &&& (32w1 << i), i)
#define SEEN_COUNT(i) SEEN(i): do_count_read();
#define SEEN_EXPONENT(i) SEEN(i): do_exponent_read();
#define SEEN_VALUES(i) (0, 1, (32w1 << i) &&& (32w1 << i), i, _): choose_read();
#define CHILDREN(M) REPEAT_0_7(M) REPEAT_8_15(M) REPEAT_16_23(M) REPEAT_24_31(M)

#ifndef FIRST_OPERATION
#define FIRST_OPERATION VALUES_OR // which keeps nothing
#endif

control Slot(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<16>, slot_index_t>(2 * SLOTS) count;
    Register<bit<16>, slot_index_t>(2 * SLOTS) exponent;
    Register<bit<8>, slot_index_t>(2 * SLOTS) marks;

    RegisterAction<bit<16>, slot_index_t, bit<16>>(count) count_start = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = meta.weight;
            result = held;
        }
    };
    RegisterAction<bit<16>, slot_index_t, bit<16>>(count) count_add = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = held + meta.weight;
            result = held;
        }
    };
    RegisterAction<bit<16>, slot_index_t, bit<16>>(count) count_read = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    action do_count_start() { hdr.innet.count = count_start.execute(SLOT_INDEX); }
    action do_count_add() { hdr.innet.count = count_add.execute(SLOT_INDEX); }
    action do_count_read() { hdr.innet.count = count_read.execute(SLOT_INDEX); }
    table update_count {
        key = {
            meta.fresh: ternary;
            meta.open: ternary;
            meta.before: ternary;
            meta.child: ternary;
        }
        actions = { do_count_start; do_count_add; do_count_read; @defaultonly NoAction; }
        const entries = {
            (1, _, _, _): do_count_start();
            (0, 0, _, _): do_count_read();
            CHILDREN(SEEN_COUNT)
            (0, 1, _, _): do_count_add();
        }
        const default_action = NoAction();
    }

    RegisterAction<bit<16>, slot_index_t, bit<16>>(exponent) exponent_start = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = hdr.innet.exponent;
            result = held;
        }
    };
    RegisterAction<bit<16>, slot_index_t, bit<16>>(exponent) exponent_raise = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = max(held, hdr.innet.exponent);
            result = held;
        }
    };
    RegisterAction<bit<16>, slot_index_t, bit<16>>(exponent) exponent_read = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    action do_exponent_start() { hdr.innet.exponent = exponent_start.execute(SLOT_INDEX); }
    action do_exponent_raise() { hdr.innet.exponent = exponent_raise.execute(SLOT_INDEX); }
    action do_exponent_read() { hdr.innet.exponent = exponent_read.execute(SLOT_INDEX); }
    table update_exponent {
        key = {
            meta.fresh: ternary;
            meta.open: ternary;
            meta.before: ternary;
            meta.child: ternary;
        }
        actions = { do_exponent_start; do_exponent_raise; do_exponent_read; @defaultonly NoAction; }
        const entries = {
            (1, _, _, _): do_exponent_start();
            (0, 0, _, _): do_exponent_read();
            CHILDREN(SEEN_EXPONENT)
            (0, 1, _, _): do_exponent_raise();
        }
        const default_action = NoAction();
    }

    RegisterAction<bit<8>, slot_index_t, bit<8>>(marks) marks_start = {
        void apply(inout bit<8> held, out bit<8> result) {
            held = meta.marks;
            result = held;
        }
    };
    RegisterAction<bit<8>, slot_index_t, bit<8>>(marks) marks_add = {
        void apply(inout bit<8> held, out bit<8> result) {
            held = held | meta.marks;
            result = held;
        }
    };
    RegisterAction<bit<8>, slot_index_t, bit<8>>(marks) marks_read = {
        void apply(inout bit<8> held, out bit<8> result) {
            result = held;
        }
    };
    action do_marks_start() { hdr.innet.flags = marks_start.execute(SLOT_INDEX); }
    action do_marks_add() { hdr.innet.flags = marks_add.execute(SLOT_INDEX); }
    action do_marks_read() { hdr.innet.flags = marks_read.execute(SLOT_INDEX); }
    table update_marks {
        key = { meta.fresh: ternary; meta.open: ternary; }
        actions = { do_marks_start; do_marks_add; do_marks_read; @defaultonly NoAction; }
        const entries = {
            (1, _): do_marks_start();
            (0, 1): do_marks_add();
            (0, _): do_marks_read();
        }
        const default_action = NoAction();
    }

    // The first of a chunk overwrites what the slot held: no clearing pass is needed.
    action choose(bit<3> operation, bit<32> keep) {
        meta.operation = operation;
        meta.keep = keep;
    }
    action choose_read() { meta.operation = VALUES_READ; }
    table choose_operation {
        key = {
            meta.fresh: ternary;
            meta.open: ternary;
            meta.before: ternary;
            meta.child: ternary;
            hdr.innet.operation: ternary;
        }
        actions = { choose; choose_read; }
        const entries = {
            (1, _, _, _, _): choose(FIRST_OPERATION, 0);
            (0, 0, _, _, _): choose_read();
            CHILDREN(SEEN_VALUES)
#ifdef FLOATS
            (0, 1, _, _, OPERATION_SUM_FLOAT32): choose(VALUES_SUM, 0);
#else
            (0, 1, _, _, OPERATION_SUM): choose(VALUES_SUM, 0);
            (0, 1, _, _, OPERATION_OR): choose(VALUES_OR, 0xffffffff);
            (0, 1, _, _, OPERATION_MAX): choose(VALUES_MAX, 0);
#endif
        }
        const default_action = choose_read();
    }

    action with_child() { hdr.innet.bitmap = meta.before | meta.add; }
    action as_before() { hdr.innet.bitmap = meta.before; }
    table update_bitmap {
        key = { meta.fresh: ternary; meta.open: ternary; }
        actions = { with_child; as_before; }
        const entries = {
            (1, _): with_child();
            (0, 1): with_child();
        }
        const default_action = as_before();
    }

    action compare() { meta.difference = meta.before_signature ^ meta.chunk_signature; }

    apply {
#if PARTS > 1
        if (meta.last_part == 1) {
            update_count.apply();
            update_exponent.apply();
            update_marks.apply();
        }
        if (meta.finds == 0) {
            choose_operation.apply();
            update_bitmap.apply();
            compare();
        } else if (meta.other == 1 || meta.before != hdr.harvest.bitmap) {
            meta.overtaken = 1;
            meta.operation = VALUES_UNTOUCHED;
        }
#else
        update_count.apply();
        update_exponent.apply();
        update_marks.apply();
        choose_operation.apply();
        update_bitmap.apply();
        compare();
#endif
    }
}

#endif
