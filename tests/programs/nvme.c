/* A host of NVMe over Fabrics (NVM Express over Fabrics 1.1, NVMe/RDMA transport binding) that
 * connects by rdma_cm: enables the controller, identifies it and its namespace, writes by capsule
 * and by the controller's READ, reads back by its WRITE, several at a time, and compares. Prints
 * "ok" last.
 *
 *   nvme ADDRESS PORT SUBSYSTEM */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 32, SQE = 64, CQE = 16, CAPSULE_DATA = 4096, DATA = 128 << 10, INFLIGHT = 8 };

enum { IDENTIFY = 0x06, SET_FEATURES = 0x09, WRITE = 0x01, READ = 0x02, FLUSH = 0x00 };
enum { FABRICS = 0x7f, PROPERTY_SET = 0x00, CONNECT = 0x01, PROPERTY_GET = 0x04 };
enum { CAP = 0x00, VS = 0x08, CC = 0x14, CSTS = 0x1c };
/* Descriptors: data in the capsule, at an offset; data behind an R_Key. */
enum { IN_CAPSULE = 0x01, KEYED = 0x40 };
enum { INVALID_NAMESPACE = 0x0b };

/* What a command needs: its capsule, room for the answer, and data a controller may reach. */
struct slot {
    uint8_t capsule[SQE + CAPSULE_DATA];
    uint8_t answer[CQE];
    uint8_t data[DATA];
    int is_under_way; /* its capsule may still be read */
};

struct queue {
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    struct slot *slots;
    uint16_t answers;
};

static const char *address, *port, *subsystem;

static void fail(const char *what)
{
    printf("wrong: %s (%s)\n", what, strerror(errno));
    exit(1);
}

#define CHECK(that) do { if (!(that)) fail(#that); } while (0)

static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static void post_answer(struct queue *q, int slot)
{
    uint8_t *at = q->slots[slot].answer;
    CHECK(!rdma_post_recv(q->id, at, at, CQE, q->mr));
}

/* A connection for a queue, with the NVMe/RDMA private data. */
static void open_queue(struct queue *q, uint16_t qid)
{
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
    CHECK(!rdma_getaddrinfo(address, port, &hints, &found));
    struct ibv_qp_init_attr attr = {
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    };
    CHECK(!rdma_create_ep(&q->id, found, NULL, &attr));
    rdma_freeaddrinfo(found);
    CHECK(q->slots = calloc(DEPTH, sizeof *q->slots));
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    CHECK(q->mr = ibv_reg_mr(q->id->pd, q->slots, DEPTH * sizeof *q->slots, access));
    for (int slot = 0; slot < DEPTH; slot++)
        post_answer(q, slot);
    uint8_t asked[32] = { 0 };
    put(asked + 2, qid, 2);
    put(asked + 4, DEPTH, 2);     /* answers it takes */
    put(asked + 6, DEPTH - 1, 2); /* commands it sends, less one */
    struct rdma_conn_param param = {
        .private_data = asked, .private_data_len = sizeof asked, .responder_resources = 16,
        .retry_count = 7, .rnr_retry_count = 7, .flow_control = 1,
    };
    CHECK(!rdma_connect(q->id, &param));
    struct rdma_conn_param *got = &q->id->event->param.conn;
    CHECK(got->private_data_len >= 32 && get(got->private_data, 2) == 0);
    CHECK(get((const uint8_t *)got->private_data + 2, 2) > 0);
}

static void close_queue(struct queue *q)
{
    CHECK(!rdma_disconnect(q->id));
    CHECK(!ibv_dereg_mr(q->mr));
    rdma_destroy_ep(q->id);
    free(q->slots);
}

/* A capsule with this opcode and a data descriptor; all else is zero. */
static uint8_t *command(struct queue *q, int slot, uint8_t opcode, int descriptor, uint32_t length)
{
    struct slot *at = &q->slots[slot];
    uint8_t *sqe = at->capsule;
    memset(sqe, 0, SQE);
    sqe[0] = opcode;
    sqe[1] = 0x40; /* The descriptor is an SGL. */
    put(sqe + 2, slot, 2);
    sqe[39] = (uint8_t)descriptor;
    if (descriptor == KEYED) {
        put(sqe + 24, (uintptr_t)at->data, 8);
        put(sqe + 32, length, 3);
        put(sqe + 35, q->mr->rkey, 4);
    } else {
        put(sqe + 32, length, 4);
    }
    return sqe;
}

static void submit(struct queue *q, int slot, size_t capsule_data)
{
    struct slot *at = &q->slots[slot];
    at->is_under_way = 1;
    CHECK(!rdma_post_send(q->id, at, at->capsule, SQE + capsule_data, q->mr, 0));
}

/* The next answer: the slot it is of, its status and its result. */
static int answer(struct queue *q, uint16_t *status, uint64_t *result)
{
    struct ibv_wc wc;
    CHECK(rdma_get_recv_comp(q->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == CQE);
    uint8_t *cqe = (uint8_t *)(uintptr_t)wc.wr_id;
    int slot = (int)get(cqe + 12, 2);
    CHECK(slot < DEPTH);
    *status = (uint16_t)(get(cqe + 14, 2) >> 1 & 0x7ff);
    *result = get(cqe, 8);
    CHECK(!rdma_post_recv(q->id, cqe, cqe, CQE, q->mr));
    while (q->slots[slot].is_under_way) {
        CHECK(rdma_get_send_comp(q->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
        ((struct slot *)(uintptr_t)wc.wr_id)->is_under_way = 0;
    }
    q->answers++;
    return slot;
}

/* One command by itself, in slot 0. */
static uint16_t alone(struct queue *q, uint64_t *result)
{
    uint16_t status;
    submit(q, 0, 0);
    CHECK(answer(q, &status, result) == 0);
    return status;
}

static uint8_t *fabrics(struct queue *q, uint8_t type, int descriptor, uint32_t length)
{
    uint8_t *sqe = command(q, 0, FABRICS, descriptor, length);
    sqe[4] = type;
    return sqe;
}

/* Makes a connection a queue of a controller, or of a new one; which. */
static uint16_t join(struct queue *q, uint16_t qid, uint16_t controller)
{
    uint64_t result;
    uint8_t *data = q->slots[0].data;
    uint8_t *sqe = fabrics(q, CONNECT, KEYED, 1024);
    put(sqe + 42, qid, 2);
    put(sqe + 44, DEPTH - 1, 2);
    memset(data, 0, 1024);
    memset(data, 0x5a, 16); /* host identifier */
    put(data + 16, controller, 2);
    snprintf((char *)data + 256, 256, "%s", subsystem);
    snprintf((char *)data + 512, 256, "nqn.2014-08.org.example:host");
    CHECK(alone(q, &result) == 0);
    return (uint16_t)result;
}

static uint64_t property(struct queue *q, uint32_t offset, int is_wide)
{
    uint64_t result;
    uint8_t *sqe = fabrics(q, PROPERTY_GET, KEYED, 0);
    sqe[40] = (uint8_t)is_wide;
    put(sqe + 44, offset, 4);
    CHECK(alone(q, &result) == 0);
    return result;
}

static void configure(struct queue *q, uint32_t value)
{
    uint64_t result;
    uint8_t *sqe = fabrics(q, PROPERTY_SET, KEYED, 0);
    put(sqe + 44, CC, 4);
    put(sqe + 48, value, 8);
    CHECK(alone(q, &result) == 0);
}

static const uint8_t *identify(struct queue *q, uint32_t space, uint8_t what)
{
    uint64_t result;
    uint8_t *sqe = command(q, 0, IDENTIFY, KEYED, 4096);
    put(sqe + 4, space, 4);
    sqe[40] = what;
    CHECK(alone(q, &result) == 0);
    return q->slots[0].data;
}

static uint8_t pattern(uint64_t lba, uint32_t index)
{
    return (uint8_t)(lba * 13 + index * 7 + index / 512);
}

static void transfer(struct queue *q, int slot, uint8_t opcode, uint64_t lba, uint32_t length)
{
    int in_capsule = opcode == WRITE && length <= CAPSULE_DATA;
    uint8_t *sqe = command(q, slot, opcode, in_capsule ? IN_CAPSULE : KEYED, length);
    uint8_t *data = in_capsule ? sqe + SQE : q->slots[slot].data;
    put(sqe + 4, 1, 4);
    put(sqe + 40, lba, 8);
    put(sqe + 48, length / 512 - 1, 2);
    for (uint32_t i = 0; i < length; i++)
        data[i] = opcode == WRITE ? pattern(lba, i) : 0;
    submit(q, slot, in_capsule ? length : 0);
}

/* As many transfers at a time as slots are used, one behind the other on the disk, each larger
 * than that before. */
static void move_all(struct queue *q, uint8_t opcode, uint64_t last)
{
    uint32_t lengths[DEPTH] = { 0 };
    uint64_t lbas[DEPTH] = { 0 };
    uint32_t begun = 0, done = 0, rounds = 40;
    uint64_t lba = 0;
    while (done < rounds) {
        while (begun < rounds && begun - done < INFLIGHT) {
            int slot = 0;
            while (lengths[slot])
                slot++;
            uint32_t length = 512u << begun % 9;
            CHECK(lba + length / 512 <= last);
            lengths[slot] = length;
            lbas[slot] = lba;
            transfer(q, slot, opcode, lba, length);
            lba += length / 512;
            begun++;
        }
        uint16_t status;
        uint64_t result;
        int slot = answer(q, &status, &result);
        CHECK(status == 0 && lengths[slot]);
        for (uint32_t i = 0; opcode == READ && i < lengths[slot]; i++)
            CHECK(q->slots[slot].data[i] == pattern(lbas[slot], i));
        lengths[slot] = 0;
        done++;
    }
}

static void use_disk(struct queue *io, uint64_t blocks)
{
    uint16_t status;
    uint64_t result;
    move_all(io, WRITE, blocks);
    uint8_t *sqe = command(io, 0, FLUSH, KEYED, 0);
    put(sqe + 4, 1, 4);
    CHECK(alone(io, &result) == 0);
    move_all(io, READ, blocks);
    transfer(io, 0, READ, blocks, 512);
    answer(io, &status, &result);
    CHECK(status); /* Which one depends on what is behind the controller. */
    sqe = command(io, 0, READ, KEYED, 512);
    put(sqe + 4, 7, 4);
    CHECK((alone(io, &result) & 0xff) == INVALID_NAMESPACE);
    move_all(io, READ, blocks);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    address = argv[1], port = argv[2], subsystem = argv[3];
    struct queue admin = { 0 }, io = { 0 };
    uint64_t result;
    open_queue(&admin, 0);
    uint16_t controller = join(&admin, 0, 0xffff);
    printf("capabilities %#llx, version %#llx\n", (unsigned long long)property(&admin, CAP, 1),
           (unsigned long long)property(&admin, VS, 0));
    configure(&admin, 0x460001); /* entries of 64 and 16 bytes; enabled */
    while (!(property(&admin, CSTS, 0) & 1))
        ;
    const uint8_t *said = identify(&admin, 0, 1);
    printf("model %.40s namespaces %llu\n", said + 24, (unsigned long long)get(said + 516, 4));
    /* A capsule takes the largest data this program puts in one. */
    CHECK(get(said + 1792, 4) * 16 >= SQE + CAPSULE_DATA);
    said = identify(&admin, 1, 0);
    uint64_t blocks = get(said, 8);
    CHECK(said[128 + 2] == 9); /* blocks of 512 bytes */
    uint8_t *sqe = command(&admin, 0, SET_FEATURES, KEYED, 0);
    put(sqe + 40, 7, 4); /* one queue of each kind */
    CHECK(alone(&admin, &result) == 0);
    open_queue(&io, 1);
    CHECK(join(&io, 1, controller) == controller);
    use_disk(&io, blocks);
    printf("%u answers\n", admin.answers + io.answers);
    close_queue(&io);
    configure(&admin, 0x464001); /* normal shutdown */
    while ((property(&admin, CSTS, 0) >> 2 & 3) != 2)
        ;
    close_queue(&admin);
    printf("ok\n");
    return 0;
}
