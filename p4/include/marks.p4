// Marks: that a sum has overflowed int32, and that a packet met congestion. A slot keeps them, and the
// result carries them to all workers.

#ifndef INNET_MARKS_P4
#define INNET_MARKS_P4

control Marks(inout headers_t hdr, inout metadata_t meta) {
    register<bit<8>>(CELLS) marks;

    action update_marks() {
        bit<8> held;
        marks.read(held, meta.index);
        held = meta.new_chunk == 1 ? 0 : held;
        hdr.innet.flags = held | hdr.innet.flags & MARKS
            | (bit<8>)(meta.overflow0 | meta.overflow1 | meta.overflow2 | meta.overflow3);
        marks.write(meta.index, hdr.innet.flags);
    }

    action mark_ecn() {
        hdr.innet.flags = hdr.innet.flags | FLAG_ECN;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.dscp_ecn & 3 == 3) {
            mark_ecn(); // congestion experienced (RFC 3168)
        }
        update_marks();
    }
}

#endif
