/* A file of one process as the remote memory of another, over librpma: the client writes it in
 * pieces, has them flushed, reads them back and compares; the server compares what is in the file.
 * Each prints "ok" last.
 *
 *   rpma serve HOST PORT FILE
 *   rpma write HOST PORT */
#include <fcntl.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 1 << 20, PIECE = 1 << 14, DESCRIPTOR_MAX = 64 };

/* What the server says of its memory when it accepts. */
struct offer {
    unsigned char len, descriptor[DESCRIPTOR_MAX];
};

#define CHECK(that) do { \
        int code_ = (that); \
        if (code_) { \
            printf("wrong: %s: %s\n", #that, rpma_err_2str(code_)); \
            exit(1); \
        } \
    } while (0)

static unsigned char pattern(int index)
{
    return (unsigned char)(index * 31 + index / 4096);
}

static int is_pattern(const unsigned char *bytes)
{
    for (int i = 0; i < SIZE; i++) {
        if (bytes[i] != pattern(i))
            return 0;
    }
    return 1;
}

static struct rpma_peer *peer_at(const char *host, enum rpma_util_ibv_context_type type)
{
    struct ibv_context *context;
    struct rpma_peer *peer;
    CHECK(rpma_utils_get_ibv_context(host, type, &context));
    CHECK(rpma_peer_new(context, &peer));
    return peer;
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event expected)
{
    enum rpma_conn_event event;
    CHECK(rpma_conn_next_event(conn, &event));
    if (event != expected) {
        printf("wrong: %s\n", rpma_utils_conn_event_2str(event));
        exit(1);
    }
}

static unsigned char *mapped(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file < 0 || ftruncate(file, SIZE));
    void *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(bytes == MAP_FAILED);
    close(file);
    return bytes;
}

static void serve(const char *host, const char *port, const char *path)
{
    unsigned char *bytes = mapped(path);
    struct rpma_peer *peer = peer_at(host, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    struct rpma_mr_local *mr;
    int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC
        | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    CHECK(rpma_mr_reg(peer, bytes, SIZE, usage, &mr));
    struct offer offer = { 0 };
    size_t len;
    CHECK(rpma_mr_get_descriptor_size(mr, &len));
    CHECK(len > DESCRIPTOR_MAX);
    offer.len = (unsigned char)len;
    CHECK(rpma_mr_get_descriptor(mr, offer.descriptor));
    struct rpma_ep *ep;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    struct rpma_conn_private_data data = { &offer, sizeof offer };
    CHECK(rpma_ep_listen(peer, host, port, &ep));
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, &data, &conn));
    expect(conn, RPMA_CONN_ESTABLISHED);
    expect(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_disconnect(conn));
    CHECK(rpma_conn_delete(&conn));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_ep_shutdown(&ep));
    CHECK(rpma_peer_delete(&peer));
    CHECK(!is_pattern(bytes));
}

static void wait_for(struct rpma_conn *conn, enum ibv_wc_opcode opcode)
{
    struct rpma_cq *cq;
    struct ibv_wc wc;
    CHECK(rpma_conn_get_cq(conn, &cq));
    CHECK(rpma_cq_wait(cq));
    CHECK(rpma_cq_get_wc(cq, 1, &wc, NULL));
    if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
        printf("wrong: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
}

static void write_and_read(const char *host, const char *port)
{
    static unsigned char bytes[SIZE], back[SIZE];
    for (int i = 0; i < SIZE; i++)
        bytes[i] = pattern(i);
    struct rpma_peer *peer = peer_at(host, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    CHECK(rpma_conn_req_new(peer, host, port, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &conn));
    expect(conn, RPMA_CONN_ESTABLISHED);
    struct rpma_conn_private_data data;
    CHECK(rpma_conn_get_private_data(conn, &data));
    CHECK(data.len < sizeof(struct offer));
    const struct offer *offer = data.ptr;
    struct rpma_mr_remote *remote;
    CHECK(rpma_mr_remote_from_descriptor(offer->descriptor, offer->len, &remote));
    struct rpma_mr_local *from, *to;
    CHECK(rpma_mr_reg(peer, bytes, SIZE, RPMA_MR_USAGE_WRITE_SRC, &from));
    CHECK(rpma_mr_reg(peer, back, SIZE, RPMA_MR_USAGE_READ_DST, &to));
    int always = RPMA_F_COMPLETION_ALWAYS;
    for (int at = 0; at < SIZE; at += PIECE) {
        CHECK(rpma_write(conn, remote, at, from, at, PIECE, RPMA_F_COMPLETION_ON_ERROR, NULL));
        CHECK(rpma_flush(conn, remote, at, PIECE, RPMA_FLUSH_TYPE_VISIBILITY, always, NULL));
        /* Where nothing is persistent, a flush is a READ. */
        wait_for(conn, IBV_WC_RDMA_READ);
    }
    for (int at = 0; at < SIZE; at += PIECE) {
        CHECK(rpma_read(conn, to, at, remote, at, PIECE, always, NULL));
        wait_for(conn, IBV_WC_RDMA_READ);
    }
    CHECK(!is_pattern(back));
    CHECK(rpma_mr_dereg(&to));
    CHECK(rpma_mr_dereg(&from));
    CHECK(rpma_mr_remote_delete(&remote));
    CHECK(rpma_conn_disconnect(conn));
    expect(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_delete(&conn));
    CHECK(rpma_peer_delete(&peer));
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "serve"))
        serve(argv[2], argv[3], argv[4]);
    else if (argc == 4 && !strcmp(argv[1], "write"))
        write_and_read(argv[2], argv[3]);
    else
        return 2;
    printf("ok\n");
    return 0;
}
