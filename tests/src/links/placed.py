"""WRITE, FLUSH and ATOMIC WRITE to a peer, whose endpoint and region are the arguments. Says
its own, does so, says "done", and stays for what the peer does to its memory."""

import signal
import sys
from ipaddress import ip_address

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE

SIZE, PSN, MTU = 4096, 77, 1024
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_FLUSH_GLOBAL)
OPERATIONS = e.IBV_QP_EX_WITH_RDMA_WRITE | e.IBV_QP_EX_WITH_FLUSH | e.IBV_QP_EX_WITH_ATOMIC_WRITE

(qpn, psn, _, gid), (address, rkey, _) = (argument.split(",") for argument in sys.argv[1:])
address, rkey = int(address), int(rkey)
digits = ip_address(gid).packed.hex()
gid = ":".join(digits[at:at + 4] for at in range(0, 32, 4))
context = Context(name="rxe0")
pd = PD(context)
cq = CQ(context, 16)
memory = MR(pd, SIZE, ACCESS)
qp = QPEx(context, QPInitAttrEx(
    qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, cap=QPCap(max_send_wr=8, max_recv_wr=8),
    comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, send_ops_flags=OPERATIONS))
print(f"{qp.qp_num},{PSN},{MTU},{context.query_gid(1, 1)} {memory.buf},{memory.rkey},{SIZE}", flush=True)

attr = QPAttr(port_num=1)
attr.qp_access_flags = ACCESS
attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=1, hop_limit=64), is_global=1, port_num=1)
attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn = e.IBV_MTU_1024, int(qpn), int(psn), PSN
attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 16, 7, 7
qp.to_rts(attr)


def post(name, *arguments):
    """Posts one, and waits for it to end well."""
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 1, e.IBV_SEND_SIGNALED
    getattr(qp, "wr_" + name)(*arguments)
    if name == "rdma_write":
        qp.wr_set_sge(SGE(memory.buf, SIZE, memory.lkey))
    qp.wr_complete()
    while True:
        count, found = cq.poll(1)
        if count:
            break
    if found[0].status != e.IBV_WC_SUCCESS:
        sys.exit(f"{name} ended with {found[0].status}")


memory.write(bytes(index % 251 for index in range(SIZE)), SIZE)
post("rdma_write", rkey, address)
post("flush", rkey, address, SIZE, e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE)
post("atomic_write", rkey, address + 8, b"from rxe")
memory.write(bytes(SIZE), SIZE)
print("done", flush=True)
signal.pause()
