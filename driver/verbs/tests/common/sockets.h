/* rsockets of one program, whose ends are its threads or its children. Each check prints the line
 * it is on when it fails. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define FAILS(x, e) do { errno = 0; CHECK((x) == -1); CHECK(errno == (e)); } while (0)

static int listener = -1;
static struct sockaddr_in address;

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port) };
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return here;
}

/* Opens the listener on a port of its own, which `address` then has. */
static void open_listener(void) {
    struct sockaddr_in here = loopback(0);
    socklen_t len = sizeof address;
    CHECK((listener = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(!rbind(listener, (struct sockaddr *)&here, sizeof here));
    CHECK(!rlisten(listener, 8));
    CHECK(!rgetsockname(listener, (struct sockaddr *)&address, &len));
    CHECK(len == sizeof address && address.sin_port);
}

static int connect_to_listener(void) {
    int socket = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(socket >= 0);
    CHECK(!rconnect(socket, (struct sockaddr *)&address, sizeof address));
    return socket;
}

/* The two ends of a connection: nobody need call accept for connect to succeed. */
static int client, server;

static void open_pair(void) {
    if (listener < 0)
        open_listener();
    client = connect_to_listener();
    CHECK((server = raccept(listener, NULL, NULL)) >= 0);
}

static void close_pair(void) {
    CHECK(!rclose(client) && !rclose(server));
}

/* The byte at a place of a stream. */
static unsigned char pattern(size_t at) {
    return at * 7 + at / 251;
}

static void send_pattern(int socket, size_t from, size_t to, size_t most) {
    unsigned char *bytes = malloc(most);
    while (from < to) {
        size_t len = to - from < most ? to - from : most;
        for (size_t i = 0; i < len; i++)
            bytes[i] = pattern(from + i);
        CHECK(rsend(socket, bytes, len, 0) == (ssize_t)len);
        from += len;
    }
    free(bytes);
}

static void recv_pattern(int socket, size_t from, size_t to, size_t most) {
    unsigned char *bytes = malloc(most);
    while (from < to) {
        size_t len = to - from < most ? to - from : most;
        ssize_t got = rrecv(socket, bytes, len, 0);
        CHECK(got > 0);
        for (ssize_t i = 0; i < got; i++)
            CHECK(bytes[i] == pattern(from + i));
        from += got;
    }
    free(bytes);
}

/* What a socket has to say within a minute. */
static int revents(int socket, int events) {
    struct pollfd fd = { .fd = socket, .events = events };
    return rpoll(&fd, 1, 60000) == 1 ? fd.revents : -1;
}

/* What it has to say now. */
static int revents_now(int socket, int events) {
    struct pollfd fd = { .fd = socket, .events = events };
    return rpoll(&fd, 1, 0) ? fd.revents : 0;
}

static void *in_thread(void *(*run)(void *), void *argument) {
    pthread_t *thread = malloc(sizeof *thread);
    CHECK(!pthread_create(thread, NULL, run, argument));
    return thread;
}

static void join(void *thread) {
    CHECK(!pthread_join(*(pthread_t *)thread, NULL));
    free(thread);
}
