"""One side of transfers over RC, whose every byte is compared.

One side listens by TCP. The other reads situations, one a line: its name, and options as KEY=VALUE.
It says "ready" before each, and both sides run it, each in its role, with a QP and memory of its
own. The first one that does not end as it should ends both.
"""

import argparse
import json
import random
import socket
import subprocess
import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
          | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
STATUS = {value: name[len("IBV_WC_"):] for name, value in vars(e).items()
          if name.startswith("IBV_WC_") and (name.endswith("_ERR") or name == "IBV_WC_SUCCESS")}
OPCODE = {"send": e.IBV_WR_SEND, "write": e.IBV_WR_RDMA_WRITE, "read": e.IBV_WR_RDMA_READ}
COUNTERS = "/sys/class/infiniband/{}/ports/1/hw_counters/{}"


class Link:
    """Lines of JSON to and from the other side."""

    def __init__(self, address, port):
        if address is None:
            listener = socket.socket(socket.AF_INET6)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::", port))
            listener.listen(1)
            stream = listener.accept()[0]
        else:
            stream = socket.create_connection((address, port))
        self.stream, self.lines = stream, stream.makefile("r")

    def say(self, value=None):
        self.stream.sendall((json.dumps(value) + "\n").encode())

    def hear(self):
        line = self.lines.readline()
        if not line:
            sys.exit("the other side is gone")
        return json.loads(line)

    def swap(self, value=None):
        self.say(value)
        return self.hear()


class Side:
    """A connected QP and one region, with a slot for each message."""

    def __init__(self, options, link):
        self.options, self.link = options, link
        self.context = Context(name=options.device)
        self.pd = PD(self.context)
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, 2 * options.count + 2, None, self.channel, 0)
        self.memory = MR(self.pd, options.size * options.count, ACCESS)
        self.base = random.Random(options.size).randbytes(options.size + 251)
        cap = QPCap(max_send_wr=options.depth, max_recv_wr=options.count)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, init)
        self.connect()

    def connect(self):
        options = self.options
        gid = str(self.context.query_gid(1, options.gid))
        psn = random.SystemRandom().randrange(1 << 24)
        own = dict(qpn=self.qp.qp_num, psn=psn, gid=gid, addr=self.memory.buf, rkey=self.memory.rkey)
        self.peer = peer = self.link.swap(own)
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=options.gid, hop_limit=64,
                            traffic_class=options.tclass)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.path_mtu = options.mtu.bit_length() - 8
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = peer["qpn"], peer["psn"], psn
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = options.rnr_timer
        attr.timeout, attr.retry_cnt, attr.rnr_retry = options.timeout, options.retry, options.rnr_retry
        self.qp.to_rts(attr)

    def completions(self):
        """Some, once there are."""
        while True:
            for _ in range(2):
                count, found = self.cq.poll(64)
                if count:
                    return found
                self.cq.req_notify()
            self.channel.get_cq_event(self.cq)
            self.cq.ack_events(1)

    def message(self, index):
        start = index % 251
        return self.base[start:start + self.options.size]

    def fill(self):
        for index in range(self.options.count):
            self.memory.write(self.message(index), self.options.size, index * self.options.size)

    def check(self, index):
        if self.memory.read(self.options.size, index * self.options.size) != self.message(index):
            sys.exit(f"message {index} has other bytes than were sent")

    def sge(self, index, size):
        return [SGE(self.memory.buf + index * self.options.size, size, self.memory.lkey)]

    def receive(self, index, size):
        self.qp.post_recv(RecvWR(wr_id=index, num_sge=1, sg=self.sge(index, size)))

    def post(self, index, rkey=None):
        options = self.options
        work = SendWR(wr_id=index, num_sge=1, sg=self.sge(index, options.size), opcode=OPCODE[options.op])
        if options.op != "send":
            offset = index * options.size
            work.set_wr_rdma(self.peer["rkey"] if rkey is None else rkey, self.peer["addr"] + offset)
        self.qp.post_send(work)


def expect(wc, status, what):
    name = STATUS.get(wc.status, wc.status)
    print(what, wc.wr_id, name, flush=True)
    if name != status:
        sys.exit(f"{what} {wc.wr_id} ended with {name}, not with {status}")


def transfer(side):
    """All messages arrive, whatever happens on the way."""
    options = side.options
    sends = options.op == "send"
    if options.responds:
        if options.op == "read":
            side.fill()
        for index in range(options.count if sends else 0):
            side.receive(index, options.size)
        side.link.swap()
        left = options.count if sends else 0
        while left:
            for wc in side.completions():
                expect(wc, "SUCCESS", "receive")
                side.check(wc.wr_id)
                left -= 1
        side.link.swap()
        if options.op == "write":
            for index in range(options.count):
                side.check(index)
        return
    if options.op != "read":
        side.fill()
    side.link.swap()
    posted = done = 0
    while done < options.count:
        while posted < min(options.count, done + options.depth):
            side.post(posted)
            posted += 1
        for wc in side.completions():
            expect(wc, "SUCCESS", options.op)
            if wc.wr_id != done:
                sys.exit(f"{options.op} {wc.wr_id} ended out of order")
            done += 1
    if options.op == "read":
        for index in range(options.count):
            side.check(index)
    side.link.swap()


def late(side):
    """The receive is posted once the responder has refused the message for lack of one."""
    if side.options.responds:
        before = counted(side.options, "send_rnr_err")
        side.link.swap()
        while counted(side.options, "send_rnr_err") == before:
            pass
        side.receive(0, side.options.size)
        expect(side.completions()[0], "SUCCESS", "receive")
        side.check(0)
    else:
        side.fill()
        side.link.swap()
        side.post(0)
        expect(side.completions()[0], "SUCCESS", "send")


def never(side):
    """There is no receive at all."""
    side.link.swap()
    if not side.options.responds:
        side.post(0)
        expect(side.completions()[0], "RNR_RETRY_EXC_ERR", "send")


def wrong_key(side):
    """The responder has no region of that key."""
    side.link.swap()
    if not side.options.responds:
        side.post(0, side.peer["rkey"] ^ 0x5500)
        expect(side.completions()[0], "REM_ACCESS_ERR", side.options.op)


def too_long(side):
    """The message is longer than the receive."""
    sender, receiver = side.options.sender, side.options.receiver
    if side.options.responds:
        side.receive(0, side.options.size // 2)
        side.link.swap()
        expect(side.completions()[0], receiver, "receive")
    else:
        side.link.swap()
        side.post(0)
        expect(side.completions()[0], sender, "send")


def destroyed(side):
    """The responder's QP goes away in the middle of it all."""
    options = side.options
    if options.responds:
        side.link.swap()
        side.link.hear()
        side.qp.close()
        return
    side.fill()
    side.link.swap()
    outstanding = done = failed = 0
    while outstanding or not failed:
        while not failed and outstanding < options.depth:
            side.post(outstanding % options.count)
            outstanding += 1
        for wc in side.completions():
            outstanding -= 1
            if failed or wc.status != e.IBV_WC_SUCCESS:
                expect(wc, "WR_FLUSH_ERR" if failed else "RETRY_EXC_ERR", options.op)
                failed += 1
                continue
            if done == 0:
                side.link.say()
            done += 1


def counted(options, name):
    """The value of a counter of the kernel's device; of ours, the sum over all processes."""
    if options.stat is None:
        with open(COUNTERS.format(options.device, name)) as counter:
            return int(counter.read())
    said = subprocess.run([options.stat, "stat", "--json"], stdout=subprocess.PIPE, check=True)
    groups = (process.get(group, {}) for process in json.loads(said.stdout)
              for group in ("counters", "discards"))
    return sum(group.get(name, 0) for group in groups)


SITUATIONS = {run.__name__: run for run in (transfer, late, never, wrong_key, too_long, destroyed)}

DEFAULTS = dict(mtu=1024, op="send", size=10000, count=8, depth=8, timeout=17, retry=7, rnr_retry=7,
                rnr_timer=14, tclass=0, requester="here")


def run(line, own, link):
    """One situation."""
    name, *words = line.split()
    given = dict(word.split("=") for word in words)
    given = {key: int(value) if value.isdigit() else value for key, value in given.items()}
    options = argparse.Namespace(**{**DEFAULTS, **vars(own), **given})
    options.responds = (options.requester == "here") != options.is_here
    told = options.tell.split(",") if hasattr(options, "tell") and options.stat else []
    before = {name: counted(options, name) for name in told}
    side = Side(options, link)
    SITUATIONS[name](side)
    link.swap()
    for name in told:
        print(name, counted(options, name) - before[name], flush=True)
    # The QP answers until the other side has all it needs.
    link.swap()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="address of the side that listens; without, this is it")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--gid", type=int, default=1)
    parser.add_argument("--stat", help="our command, where the device is ours")
    own = parser.parse_args()
    own.is_here = own.peer is not None
    link = Link(own.peer, own.port)
    while True:
        if own.is_here:
            print("ready", flush=True)
        line = sys.stdin.readline() if own.is_here else ""
        line = link.swap(line) or line
        if not line:
            return
        run(line, own, link)


main()
