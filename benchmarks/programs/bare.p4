// The slot pool without protection: no admission, no epochs, no overflow detection, no partial
// results. Any packet may name any worker. benchmarks.protection measures what these
// cost slots.p4; the rest, checksums and stale packets among it, is the same in both.
//
// p4c-bm2-ss -DVALUES=64 -I p4 -o bare.json benchmarks/programs/bare.p4, then gzip

#include <core.p4>
#include <v1model.p4>

#define SLOTS 1024
#define WORKERS 4

#include "include/headers.p4"

struct metadata_t {
    bit<32> worker_bit;
    bit<32> index;
    bit<32> age;
    bit<1>  new_chunk;
    bit<1>  mismatch;
    bit<1>  worker_seen;
}

#include "include/parser.p4"

#define VALUE_REGISTER(i) register<bit<32>>(2 * SLOTS) value##i;
#define VALUE_OVERWRITE(i) \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_READ(i) \
    value##i.read(hdr.values.v##i, meta.index);
#define VALUE_SUM(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = held + hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_OR(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = held | hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_MAX(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = (int<32>)held > (int<32>)hdr.values.v##i ? held : hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);

control BareIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    register<bit<32>>(2 * SLOTS) sequence;
    register<bit<32>>(2 * SLOTS) chunk_signature;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<16>>(2 * SLOTS) count;
    register<bit<16>>(2 * SLOTS) exponent;
    REPEAT(VALUE_REGISTER)

    action update_chunk() {
        bit<32> held;
        sequence.read(held, meta.index);
        meta.age = hdr.innet.sequence - held;
        meta.new_chunk = (bit<1>)(meta.age != 0 && meta.age < 0x80000000);
        sequence.write(meta.index, meta.new_chunk == 1 ? hdr.innet.sequence : held);
    }

    action check_signature() {
        bit<32> signature = hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        chunk_signature.read(held, meta.index);
        held = meta.new_chunk == 1 ? signature : held;
        meta.mismatch = (bit<1>)(held != signature);
        chunk_signature.write(meta.index, held);
    }

    action update_bitmap() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        meta.worker_seen = (bit<1>)(before & meta.worker_bit != 0);
        hdr.innet.bitmap = before | meta.worker_bit;
        bitmap.write(meta.index, hdr.innet.bitmap);
    }

    action update_count() {
        bit<16> before;
        count.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.count = meta.worker_seen == 1 ? before : before + 1;
        count.write(meta.index, hdr.innet.count);
    }

    action update_exponent() {
        bit<16> before;
        exponent.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.exponent = meta.worker_seen == 1 || before > hdr.innet.exponent
            ? before : hdr.innet.exponent;
        exponent.write(meta.index, hdr.innet.exponent);
    }

    action overwrite() { REPEAT(VALUE_OVERWRITE) }
    action read()      { REPEAT(VALUE_READ) }
    action sum()       { bit<32> held; REPEAT(VALUE_SUM) }
    action or()        { bit<32> held; REPEAT(VALUE_OR) }
    action max()       { bit<32> held; REPEAT(VALUE_MAX) }

    table combine {
        key = {
            meta.new_chunk: exact;
            meta.worker_seen: exact;
            hdr.innet.operation: exact;
        }
        actions = { overwrite; read; sum; or; max; NoAction; }
        const entries = {
            (1, 0, OPERATION_SUM): overwrite();
            (1, 0, OPERATION_OR):  overwrite();
            (1, 0, OPERATION_MAX): overwrite();
            (0, 0, OPERATION_SUM): sum();
            (0, 0, OPERATION_OR):  or();
            (0, 0, OPERATION_MAX): max();
            (0, 1, OPERATION_SUM): read();
            (0, 1, OPERATION_OR):  read();
            (0, 1, OPERATION_MAX): read();
        }
        const default_action = NoAction();
    }

    apply {
        if (standard_metadata.parser_error != error.NoError
            || standard_metadata.checksum_error == 1 || !hdr.values.isValid()) {
            mark_to_drop(standard_metadata);
        } else {
            meta.worker_bit = (bit<32>)1 << (bit<8>)hdr.innet.worker;
            meta.index = (bit<32>)hdr.innet.slot << 1 | (bit<32>)hdr.innet.slot_version;
            update_chunk();
            if (meta.age >= 0x80000000) {
                mark_to_drop(standard_metadata);
            } else {
                check_signature();
                if (meta.mismatch == 1) {
                    mark_to_drop(standard_metadata);
                } else {
                    update_bitmap();
                    update_count();
                    update_exponent();
                    combine.apply();
                    if (hdr.innet.count != WORKERS) {
                        mark_to_drop(standard_metadata);
                    } else {
                        hdr.innet.flags = hdr.innet.flags | FLAG_RESULT;
                        if (meta.worker_seen == 1) {
                            standard_metadata.egress_spec = standard_metadata.ingress_port;
                        } else {
                            standard_metadata.mcast_grp = 1;
                        }
                    }
                }
            }
        }
    }
}

control BareEgress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    action address(bit<48> mac, bit<32> ip, bit<16> udp_port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = ip;
        hdr.udp.source_port = UDP_PORT_INNET;
        hdr.udp.destination_port = udp_port;
        hdr.udp.checksum = 0;
    }

    table deliver {
        key = { standard_metadata.egress_port: exact; }
        actions = { address; NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        deliver.apply();
        if (standard_metadata.instance_type == 5) {
            hdr.innet.worker = standard_metadata.egress_rid;
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), BareIngress(), BareEgress(), UpdateChecksums(),
         InnetDeparser()) main;
