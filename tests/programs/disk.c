/* Blocks of a disk by libiscsi: logs in, writes, reads back and compares, in pieces of every size
 * up to 128 KiB; then asks for a block beyond the end. Prints "ok" last.
 *
 *   disk URL */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, BLOCKS_MAX = 256 };

static struct iscsi_context *iscsi;
static int lun;

static void fail(const char *what)
{
    printf("wrong: %s: %s\n", what, iscsi_get_error(iscsi));
    exit(1);
}

#define CHECK(that) do { if (!(that)) fail(#that); } while (0)

static unsigned char pattern(unsigned lba, int index)
{
    return (unsigned char)(lba * 13 + index * 7 + index / 512);
}

static void write_blocks(unsigned lba, int blocks)
{
    static unsigned char data[BLOCKS_MAX * BLOCK];
    for (int i = 0; i < blocks * BLOCK; i++)
        data[i] = pattern(lba, i);
    struct scsi_task *task =
        iscsi_write10_sync(iscsi, lun, lba, data, blocks * BLOCK, BLOCK, 0, 0, 0, 0, 0);
    CHECK(task && task->status == SCSI_STATUS_GOOD);
    scsi_free_scsi_task(task);
}

static void read_blocks(unsigned lba, int blocks)
{
    struct scsi_task *task =
        iscsi_read10_sync(iscsi, lun, lba, blocks * BLOCK, BLOCK, 0, 0, 0, 0, 0);
    CHECK(task && task->status == SCSI_STATUS_GOOD);
    CHECK(task->datain.size == blocks * BLOCK);
    for (int i = 0; i < blocks * BLOCK; i++)
        CHECK(task->datain.data[i] == pattern(lba, i));
    scsi_free_scsi_task(task);
}

static unsigned last_lba(void)
{
    struct scsi_task *task = iscsi_readcapacity10_sync(iscsi, lun, 0, 0);
    CHECK(task && task->status == SCSI_STATUS_GOOD);
    struct scsi_readcapacity10 *capacity = scsi_datain_unmarshall(task);
    CHECK(capacity && capacity->block_size == BLOCK);
    unsigned lba = capacity->lba;
    scsi_free_scsi_task(task);
    return lba;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(iscsi = iscsi_create_context("iqn.2001-04.com.example:initiator"));
    struct iscsi_url *url = iscsi_parse_full_url(iscsi, argv[1]);
    CHECK(url);
    lun = url->lun;
    CHECK(!iscsi_init_transport(iscsi, url->transport));
    CHECK(!iscsi_set_targetname(iscsi, url->target));
    CHECK(!iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL));
    CHECK(!iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE));
    CHECK(!iscsi_full_connect_sync(iscsi, url->portal, lun));
    unsigned lba = 0, last = last_lba();
    for (int blocks = 1; blocks <= BLOCKS_MAX; blocks *= 2) {
        write_blocks(lba, blocks);
        read_blocks(lba, blocks);
        lba += blocks;
    }
    /* All of it is still there. */
    lba = 0;
    for (int blocks = 1; blocks <= BLOCKS_MAX; blocks *= 2) {
        read_blocks(lba, blocks);
        lba += blocks;
    }
    write_blocks(last, 1);
    read_blocks(last, 1);
    struct scsi_task *task = iscsi_read10_sync(iscsi, lun, last + 1, BLOCK, BLOCK, 0, 0, 0, 0, 0);
    CHECK(task && task->status == SCSI_STATUS_CHECK_CONDITION);
    scsi_free_scsi_task(task);
    CHECK(!iscsi_logout_sync(iscsi));
    iscsi_destroy_url(url);
    iscsi_destroy_context(iscsi);
    printf("ok\n");
    return 0;
}
