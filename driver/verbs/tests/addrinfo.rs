//! `rdma_getaddrinfo`, by a program in C.

mod common;

const PRELUDE: &str = r#"
#define _GNU_SOURCE /* EAI_ADDRFAMILY */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(that) do { if (!(that)) printf("line %d: %s\n", __LINE__, #that); } while (0)

static struct rdma_addrinfo *found;

static int ask(const char *node, const char *service, const struct rdma_addrinfo *hints)
{
    rdma_freeaddrinfo(found);
    found = NULL;
    return rdma_getaddrinfo(node, service, hints, &found);
}

/* Whether it is this address, as `getnameinfo` writes it. */
static int is(const struct sockaddr *address, socklen_t len, const char *node, const char *service)
{
    char host[64], port[16];
    int flags = NI_NUMERICHOST | NI_NUMERICSERV;
    if (getnameinfo(address, len, host, sizeof host, port, sizeof port, flags))
        return 0;
    return !strcmp(host, node) && !strcmp(port, service);
}

#define SOURCE_IS(node, port) CHECK(is(found->ai_src_addr, found->ai_src_len, node, port))
#define TARGET_IS(node, port) CHECK(is(found->ai_dst_addr, found->ai_dst_len, node, port))
#define KIND_IS(type, space) CHECK(found->ai_qp_type == type && found->ai_port_space == space)
"#;

fn check(name: &str, body: &str) {
    let folder = common::library_folder(name);
    let source = format!("{PRELUDE}\n#line 1\nint main(void) {{\n{body}\nreturn 0; }}");
    let Some(program) = common::compile(&folder, &source, &["-lrdmacm"]) else { return };
    assert_eq!(common::run(&folder, &program), "");
}

#[test]
fn a_node_is_where_to_connect_to() {
    check(
        "addrinfo_active",
        r#"
        CHECK(ask("127.0.0.1", "7471", NULL) == 0);
        CHECK(found->ai_flags == 0 && found->ai_family == AF_INET);
        KIND_IS(IBV_QPT_RC, RDMA_PS_TCP);
        TARGET_IS("127.0.0.1", "7471");
        CHECK(!strcmp(found->ai_dst_canonname, "127.0.0.1"));
        CHECK(!found->ai_src_addr && !found->ai_src_len && !found->ai_src_canonname);
        CHECK(!found->ai_route_len && !found->ai_connect_len && !found->ai_next);

        CHECK(ask("::1", NULL, NULL) == 0);
        CHECK(found->ai_family == AF_INET6 && found->ai_dst_len == sizeof(struct sockaddr_in6));
        TARGET_IS("::1", "0");
        CHECK(ask(NULL, "80", NULL) == 0);
        CHECK(found->ai_dst_addr);

        /* With a source from elsewhere, which is copied. */
        struct sockaddr_in source = { AF_INET };
        inet_pton(AF_INET, "10.1.2.3", &source.sin_addr);
        struct rdma_addrinfo hints = { RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP };
        hints.ai_src_addr = (struct sockaddr *)&source;
        hints.ai_src_len = sizeof source;
        CHECK(ask("127.0.0.2", "1", &hints) == 0);
        SOURCE_IS("10.1.2.3", "0");
        TARGET_IS("127.0.0.2", "1");
        CHECK(found->ai_src_addr != hints.ai_src_addr);
        "#,
    );
}

#[test]
fn a_passive_node_is_where_to_listen() {
    check(
        "addrinfo_passive",
        r#"
        struct rdma_addrinfo hints = { RAI_PASSIVE, AF_INET, .ai_port_space = RDMA_PS_TCP };
        CHECK(ask(NULL, "7471", &hints) == 0);
        CHECK(found->ai_flags == RAI_PASSIVE);
        KIND_IS(IBV_QPT_RC, RDMA_PS_TCP);
        SOURCE_IS("0.0.0.0", "7471");
        CHECK(!found->ai_src_canonname && !found->ai_dst_addr && !found->ai_dst_len);

        hints.ai_family = AF_INET6;
        CHECK(ask(NULL, "7471", &hints) == 0);
        SOURCE_IS("::", "7471");
        hints.ai_family = 0;
        CHECK(ask("127.0.0.1", NULL, &hints) == 0);
        SOURCE_IS("127.0.0.1", "0");
        CHECK(!strcmp(found->ai_src_canonname, "127.0.0.1"));
        "#,
    );
}

#[test]
fn the_kind_of_qp_and_the_port_space_follow_from_each_other() {
    check(
        "addrinfo_kinds",
        r#"
        struct { int type, space, found_type, found_space; } rows[] = {
            { 0, 0, IBV_QPT_RC, RDMA_PS_TCP },
            { 0, RDMA_PS_UDP, IBV_QPT_UD, RDMA_PS_UDP },
            { 0, RDMA_PS_IPOIB, IBV_QPT_UD, RDMA_PS_IPOIB },
            { 0, RDMA_PS_IB, IBV_QPT_RC, RDMA_PS_IB },
            { IBV_QPT_UD, 0, IBV_QPT_UD, RDMA_PS_UDP },
            { IBV_QPT_UD, RDMA_PS_IB, IBV_QPT_UD, RDMA_PS_IB },
            { IBV_QPT_UC, 0, IBV_QPT_UC, RDMA_PS_TCP },
            { IBV_QPT_XRC_SEND, RDMA_PS_IB, IBV_QPT_XRC_SEND, RDMA_PS_IB },
            { IBV_QPT_XRC_RECV, RDMA_PS_TCP, IBV_QPT_XRC_RECV, RDMA_PS_TCP },
        };
        for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct rdma_addrinfo hints = { 0 };
            hints.ai_qp_type = rows[i].type;
            hints.ai_port_space = rows[i].space;
            int code = ask("127.0.0.1", "7471", &hints);
            if (code || found->ai_qp_type != rows[i].found_type
                || found->ai_port_space != rows[i].found_space)
                printf("row %u: %d\n", i, code);
        }
        struct rdma_addrinfo hints = { .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_UDP };
        CHECK(ask("127.0.0.1", "7471", &hints) == EAI_SOCKTYPE);
        "#,
    );
}

#[test]
fn without_a_node_the_hints_are_the_answer() {
    check(
        "addrinfo_hints",
        r#"
        struct sockaddr_in source = { AF_INET, 1 }, target = { AF_INET, 2 };
        struct rdma_addrinfo hints = {
            RAI_PASSIVE | RAI_NOROUTE, AF_INET, IBV_QPT_UD, RDMA_PS_UDP
        };
        hints.ai_src_addr = (struct sockaddr *)&source;
        hints.ai_dst_addr = (struct sockaddr *)&target;
        hints.ai_src_len = hints.ai_dst_len = sizeof source;
        CHECK(ask(NULL, NULL, &hints) == 0);
        CHECK(found->ai_flags == (RAI_PASSIVE | RAI_NOROUTE) && found->ai_family == AF_INET);
        KIND_IS(IBV_QPT_UD, RDMA_PS_UDP);
        CHECK(!memcmp(found->ai_src_addr, &source, sizeof source));
        CHECK(!memcmp(found->ai_dst_addr, &target, sizeof target));
        "#,
    );
}

#[test]
fn what_is_not_there_says_why() {
    check(
        "addrinfo_errors",
        r#"
        errno = 0;
        CHECK(ask(NULL, NULL, NULL) == -1 && errno == EINVAL);
        struct rdma_addrinfo hints = { RAI_NUMERICHOST };
        CHECK(ask("localhost", NULL, &hints) == EAI_NONAME);
        CHECK(ask("127.0.0.1", "no-such-service", NULL) == EAI_SERVICE);
        hints.ai_family = 27; /* AF_IB */
        CHECK(ask("::1", NULL, &hints) == EAI_FAMILY);
        hints.ai_family = AF_INET6;
        CHECK(ask("127.0.0.1", NULL, &hints) == EAI_ADDRFAMILY);
        struct rdma_addrinfo hollow = { .ai_dst_len = sizeof(struct sockaddr_in) };
        errno = 0;
        CHECK(ask(NULL, NULL, &hollow) == -1 && errno == EINVAL);
        rdma_freeaddrinfo(NULL);
        "#,
    );
}
